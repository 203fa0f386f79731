"""Random joins of tables of many types, and what PostgreSQL's plain join says of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence, Predicate
from dpsql.query.ir import render
from dpsql.relation import Column, Relation, quote_identifier
from tests.expressions import parsed

#: Literals of each column type.
LITERALS = {
    "integer": ("0", "1", "2", "-2147483648"),
    "smallint": ("0", "1", "2", "-32768"),
    "bigint": ("0", "1", "2", "9223372036854775807"),
    "text": ("'0'", "'1'", "'é \"x\"'", "''"),
    "character varying(3)": ("'0'", "'1'", "'a '", "''"),
    "character(3)": ("'0'", "'1  '", "'a'", "''"),
    "date": ("'2020-01-01'", "'infinity'", "'-infinity'", "'4713-01-01 BC'"),
    "numeric": ("0", "1", "1.50", "'NaN'"),
    "numeric(6,2)": ("0", "1", "1.5", "'NaN'"),
    "boolean": ("true", "false", "true", "false"),
    '"char"': ("'a'", "'0'", "'\\377'", "''"),
    "oid": ("0", "1", "2", "4294967295"),
    "uuid": tuple(f"'{n:032x}'" for n in (0, 1, 2, 2**128 - 1)),
    "timestamp without time zone": (
        "'2020-01-01'",
        "'infinity'",
        "'-infinity'",
        "'294276-12-31 23:59:59.999999'",
    ),
    "timestamp with time zone": (
        "'2020-01-01 00:00+00'",
        "'infinity'",
        "'-infinity'",
        "'4713-01-01 00:00+00 BC'",
    ),
    "time without time zone": ("'00:00'", "'24:00'", "'00:00:00.000001'", "'12:00'"),
    "double precision": ("0", "'-0.0'", "1.5", "'NaN'"),
    "real": ("0", "'-0.0'", "1.5", "'NaN'"),
}
#: Types that an attribute unifies, by its own.
COLUMNS = {kind: (kind,) for kind in LITERALS} | {
    "bigint": ("bigint", "integer", "smallint"),
    "numeric": ("numeric", "numeric(6,2)", "integer"),
    "text": ("text", "character varying(3)", "character(3)"),
    "double precision": ("double precision", "real", "integer"),
}
INTEGERS = ("smallint", "integer", "bigint")
#: Types whose equal values have several texts.
SEVERAL_TEXTS = ("numeric", "numeric(6,2)", "double precision", "real")


class SnapshotDatabase:
    """The Database port over one open transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.ticks = 0

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        with self.connection.transaction(), self.connection.cursor() as cursor:
            if parameters:
                sql = re.sub(r"\$\d", "%s", sql.replace("%", "%%"))
                return cursor.execute(sql, [v for _, v in parameters]).fetchall()
            return cursor.execute(sql).fetchall()

    def stream(self, sql: str, size: int) -> Iterator[list[tuple[object, ...]]]:
        rows = self.execute(sql)
        for first in range(0, len(rows), size):
            yield rows[first : first + size]

    def tick(self) -> None:
        self.ticks += 1


@pytest.fixture(scope="module")
def connection(server: Any) -> Iterator[psycopg.Connection[Any]]:
    database = server.create_database()
    with database.connect() as connection:
        yield connection
    server.drop_database(database)


@st.composite
def cases(
    draw: st.DrawFn,
    types: tuple[str, ...] = tuple(LITERALS),
    simple: bool = False,
    schema: str = "pg_temp",
) -> tuple[list[str], JoinQuery]:
    """Draw DDL and data, and a query over them (self-joins, cycles, predicates, groups).

    ``simple`` cases have no predicates that span relations and group by columns without NULLs.
    """
    unified = draw(st.sampled_from(types))
    statements, relations = [], []
    for r in range(draw(st.integers(1, 3))):
        width = draw(st.integers(1, 3))
        columns = [f"c{k}" for k in range(width)]
        key = draw(st.booleans()) and draw(st.integers(1, width))
        name = f'tabl"e {r}' if r == 1 else f"t{r}"
        kind = draw(st.sampled_from(COLUMNS[unified]))
        ddl = ", ".join(f"{c} {kind}" + (" NOT NULL" if c == "c0" else "") for c in columns)
        quoted = quote_identifier(name)
        statements.append(f"CREATE TABLE {schema}.{quoted} ({ddl})")
        values = LITERALS[kind]
        rows = draw(
            st.lists(
                st.tuples(
                    *(
                        st.sampled_from(values if k == 0 or key else (*values, "NULL"))
                        for k in range(width)
                    )
                ),
                max_size=8,
            )
        )
        if key:
            listed = ", ".join(columns[:key])
            statements.append(f"ALTER TABLE {schema}.{quoted} ADD PRIMARY KEY ({listed})")
        end = " ON CONFLICT DO NOTHING" if key else ""
        statements += [f"INSERT INTO {schema}.{quoted} VALUES ({', '.join(x)}){end}" for x in rows]
        relations.append(
            Relation(
                oid=r + 1,
                schema=schema,
                name=name,
                private=True,
                root=r + 1,
                columns=tuple(
                    Column(c, 0, kind, k == 0 or bool(key and k < key))
                    for k, c in enumerate(columns)
                ),
                keys=(tuple(columns[:key]),) if key else (),
            )
        )
    chosen = [draw(st.sampled_from(relations)) for _ in range(draw(st.integers(1, 5)))]
    places = [(i, c.name) for i, r in enumerate(chosen) for c in r.columns]
    label = {p: draw(st.integers(0, 4)) for p in places}
    classes = [[p for p in places if label[p] == v] for v in range(4)]
    types_of = {(i, c.name): c.type_name for i, r in enumerate(chosen) for c in r.columns}

    def common(kinds: list[str]) -> str:
        return kinds[0] if len(set(kinds)) == 1 else unified

    attributes: list[Attribute] = []
    uses: dict[int, list[AttributeUse]] = {i: [] for i in range(len(chosen))}
    placed: list[list[tuple[int, str]]] = []

    def add(members: list[tuple[int, str]], join: bool) -> int:
        number = len(attributes)
        attributes.append(Attribute(number, common([types_of[p] for p in members]), join))
        placed.append(members)
        for i, c in members:
            uses[i].append(AttributeUse(number, parsed(f"r{i}.{c}"), c))
        return number

    for members in classes:
        if len({i for i, _ in members}) > 1:
            add(members, True)
    joined = {p for members in placed for p in members}
    carried = [p for p in places if p not in joined]
    draw(st.randoms()).shuffle(carried)
    carried = carried[: draw(st.integers(0, 3))]
    if simple:
        carried = [p for p in carried if p[1] == "c0"]
    for p in carried:
        add([p], False)
    everyone = list(range(len(attributes)))
    groups = (
        tuple(draw(st.lists(st.sampled_from(everyone), unique=True, max_size=2)))
        if everyone
        else ()
    )
    predicates = []
    if not simple and len(everyone) > 1 and draw(st.booleans()):
        for _ in range(draw(st.integers(1, 2))):
            a, b = draw(st.sampled_from(everyone)), draw(st.sampled_from(everyone))
            owners = frozenset({placed[a][0][0], placed[b][0][0]})
            operator = draw(st.sampled_from(["<", "<>", "<="]))
            predicates.append(Predicate(parsed(f"a{a} {operator} a{b}"), frozenset({a, b}), owners))
    occurrences = []
    for i, relation in enumerate(chosen):
        filters = (
            (parsed(f"r{i}.c0 <> {LITERALS[relation.columns[0].type_name][1]}"),)
            if draw(st.integers(0, 3)) == 0
            else ()
        )
        occurrences.append(Occurrence(i, relation, tuple(uses[i]), filters))
    query = JoinQuery(tuple(occurrences), tuple(attributes), tuple(predicates), groups)
    return statements, query


def plain(
    query: JoinQuery, inside: frozenset[int], output: Sequence[int], *, weight: str = "1"
) -> str:
    """Write the plain join that counts results of ``inside`` per value of ``output``."""
    conditions, value = ["true"], {}
    for i in sorted(inside):
        occurrence = query.occurrences[i]
        conditions += map(render, occurrence.filters)
        for use in occurrence.uses:
            text = render(use.expression)
            if query.attributes[use.attribute].join:
                conditions.append(f"{text} IS NOT NULL")
            if use.attribute in value:
                conditions.append(f"{value[use.attribute]} = {text}")
            value.setdefault(use.attribute, text)
    for predicate in query.predicates:
        if predicate.occurrences <= inside:
            text = render(predicate.expression)
            conditions.append(re.sub(r"\ba(\d+)\b", lambda m: value[int(m[1])], text))
    columns = "".join(f"{value[a]} AS a{a}, " for a in output)
    source = ", ".join(f"{query.occurrences[i].relation.sql} AS r{i}" for i in sorted(inside))
    group = f" GROUP BY {', '.join(str(k + 1) for k in range(len(output)))}" if output else ""
    text = f"SELECT {columns}sum({weight}::numeric) AS n FROM {source}"
    return f"{text} WHERE {' AND '.join(conditions)}{group}"


def some_boundaries(query: JoinQuery) -> list[Boundary]:
    """Natural boundaries of all connected subsets, and every other attribute set of pairs."""
    shape = query.shape()
    found = set()
    for k in range(1, len(query.occurrences) + 1):
        for chosen in itertools.combinations(range(len(query.occurrences)), k):
            inside = frozenset(chosen)
            found.add(Boundary(inside, shape.boundary(inside)))
            if k <= 2:
                own = frozenset().union(*(shape.attributes[i] for i in chosen))
                found.add(Boundary(inside, own))
    return sorted(found, key=repr)


def canonical(query: JoinQuery, groups: dict[Any, int]) -> dict[Any, int]:
    """Write keys of types whose equal values have several texts in one of them."""

    def text(attribute: int, key: str | None) -> str | None:
        if key is None or query.attributes[attribute].type_name not in SEVERAL_TEXTS:
            return key
        number = Decimal(key)
        return "NaN" if number.is_nan() else str(number.normalize() + 0)

    return {
        tuple(text(a, k) for a, k in zip(query.groups, keys, strict=True)): count
        for keys, count in groups.items()
    }


relaxed = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
