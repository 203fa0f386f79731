"""Counting by elimination equals PostgreSQL's own plain join, on random schemas and data."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsql.model import (
    Attribute,
    AttributeUse,
    Boundary,
    Column,
    Contributions,
    JoinQuery,
    Occurrence,
    Predicate,
    Relation,
    quote_identifier,
)
from dpsql.query.contribution_sql import per_unit
from dpsql.query.counting_sql import counting_sql
from dpsql.query.elimination import make_plan
from dpsql.statistics.contributions import contributions
from dpsql.statistics.counts import count
from tests.kernel_library import TINY, loops_named

pytestmark = pytest.mark.server

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
            uses[i].append(AttributeUse(number, f"r{i}.{c}", c))
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
            predicates.append(Predicate(f"a{a} {operator} a{b}", frozenset({a, b}), owners))
    occurrences = []
    for i, relation in enumerate(chosen):
        filters = (
            (f"r{i}.c0 <> {LITERALS[relation.columns[0].type_name][1]}",)
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
        conditions += list(occurrence.filters)
        for use in occurrence.uses:
            if query.attributes[use.attribute].join:
                conditions.append(f"{use.sql} IS NOT NULL")
            if use.attribute in value:
                conditions.append(f"{value[use.attribute]} = {use.sql}")
            value.setdefault(use.attribute, use.sql)
    for predicate in query.predicates:
        if predicate.occurrences <= inside:
            conditions.append(re.sub(r"\ba(\d+)\b", lambda m: value[int(m[1])], predicate.sql))
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


def check(
    connection: psycopg.Connection[Any],
    case: tuple[list[str], JoinQuery],
    kernel: Any,
    settings: Sequence[str] = (),
) -> None:
    statements, query = case
    boundaries = some_boundaries(query)
    with connection.transaction(force_rollback=True):
        for statement in statements:
            connection.execute(statement)
        everything = frozenset(range(len(query.occurrences)))
        keys = "".join(f"a{a}::text, " for a in query.groups)
        sql = f"SELECT {keys}n FROM ({plain(query, everything, query.groups)}) AS t"
        groups = {tuple(row[:-1]): int(row[-1] or 0) for row in connection.execute(sql)}
        expected = {}
        for boundary in boundaries:
            inner = plain(query, boundary.occurrences, sorted(boundary.attributes))
            row = connection.execute(f"SELECT max(n) FROM ({inner}) AS t").fetchone()
            expected[boundary] = int(row[0] or 0) if row else 0
        for setting in settings:
            connection.execute(f"SET LOCAL {setting}")
        counts = count(query, boundaries, SnapshotDatabase(connection), kernel=kernel)
        assert canonical(query, counts.groups) == canonical(query, groups)
        assert counts.boundaries == expected


relaxed = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PARALLEL = (
    "parallel_setup_cost = 0",
    "parallel_tuple_cost = 0",
    "min_parallel_table_scan_size = 0",
    "min_parallel_index_scan_size = 0",
    "max_parallel_workers_per_gather = 2",
)


@pytest.fixture(params=["stored", "in place and sorted"])
def writing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the writer's thresholds to both ends: estimates of tiny tables reach neither."""
    from dpsql.query import counting_sql

    extreme = request.param != "stored"
    monkeypatch.setattr(counting_sql, "_WORTH_STORING", 0.0 if extreme else math.inf)
    monkeypatch.setattr(counting_sql, "_MANY_GROUPS", 0.0 if extreme else math.inf)
    monkeypatch.setattr(counting_sql, "_REPEATING", 0.0)


@settings(relaxed, max_examples=80)
@given(case=cases())
@pytest.mark.usefixtures("writing")
def test_sql_equals_the_plain_join(
    connection: psycopg.Connection[Any], case: tuple[list[str], JoinQuery]
) -> None:
    check(connection, case, "sql")


@settings(relaxed, max_examples=20)
@given(case=cases(schema="public"))
@pytest.mark.usefixtures("writing")
def test_parallel_sql_equals_the_plain_join(
    connection: psycopg.Connection[Any], case: tuple[list[str], JoinQuery]
) -> None:
    check(connection, case, "sql", PARALLEL)


@settings(relaxed, max_examples=15)
@given(case=cases(schema="public", simple=True))
def test_parallel_reading_equals_the_plain_join(
    connection: psycopg.Connection[Any], case: tuple[list[str], JoinQuery]
) -> None:
    check(connection, case, "arrays", PARALLEL)


def test_the_settings_for_parallel_plans_force_them(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE TABLE public.p (x int, y int)")
        connection.execute("INSERT INTO public.p SELECT i % 7, i FROM generate_series(1, 500) i")
        for setting in PARALLEL:
            connection.execute(f"SET LOCAL {setting}")
        columns = (Column("x", 23, "integer", False), Column("y", 23, "integer", False))
        relation = Relation(1, "public", "p", True, 1, columns)
        uses = (AttributeUse(0, "r0.x", "x"),), (AttributeUse(0, "r1.x", "x"),)
        query = JoinQuery(
            tuple(Occurrence(i, relation, u) for i, u in enumerate(uses)),
            (Attribute(0, "integer", True),),
        )
        plan = make_plan(query, some_boundaries(query))
        lines = connection.execute(f"EXPLAIN {counting_sql(plan)}").fetchall()
        assert any("Gather" in line for (line,) in lines)


def check_arrays(
    connection: psycopg.Connection[Any], case: tuple[list[str], JoinQuery], loops: str, sizes: str
) -> None:
    """Check the array kernel, and that it ran wherever shape and types allow it.

    Tiny blocks send a few rows through every path.
    """
    from dpsql.statistics import codes, counts, kernel, limits, reading

    fell_back = []
    original = counts._count_in_sql

    def in_sql(plan: Any, database: Any) -> Any:
        fell_back.append(plan)
        return original(plan, database)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_count_in_sql", in_sql)
        patch.setattr(kernel, "find_loops", lambda: loops_named(loops))
        for name, value in (TINY if sizes == "tiny" else {}).items():
            patch.setattr(limits, name, value)
        check(connection, case, "arrays")
    for plan in fell_back:
        attributes = frozenset[int]().union(*reading.needed(plan).values())
        coded = codes.coded_plan(plan, attributes)
        assert coded is None or not reading.readable(coded)


@pytest.mark.parametrize("loops", ["native", "portable"])
@pytest.mark.parametrize("sizes", ["usual", "tiny"])
@relaxed
@given(case=cases(types=INTEGERS, simple=True))
def test_arrays_equal_the_plain_join(
    connection: psycopg.Connection[Any],
    loops: str,
    sizes: str,
    case: tuple[list[str], JoinQuery],
) -> None:
    check_arrays(connection, case, loops, sizes)


@pytest.mark.parametrize(("loops", "sizes"), [("native", "usual"), ("portable", "tiny")])
@settings(relaxed, max_examples=200)
@given(case=cases(simple=True))
def test_coded_keys_equal_the_plain_join(
    connection: psycopg.Connection[Any],
    loops: str,
    sizes: str,
    case: tuple[list[str], JoinQuery],
) -> None:
    check_arrays(connection, case, loops, sizes)


def test_values_that_share_a_hash_are_counted_by_sql(
    connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpsql.statistics import codes, counts

    used = []
    original = counts._count_in_sql
    monkeypatch.setattr(counts, "_count_in_sql", lambda *a: (used.append(1), original(*a))[1])
    columns = (Column("x", 25, "text", True),)
    relation = Relation(1, "pg_temp", "t", True, 1, columns)
    uses = [(AttributeUse(0, f"r{i}.x", "x"),) for i in range(2)]
    query = JoinQuery(
        tuple(Occurrence(i, relation, u) for i, u in enumerate(uses)),
        (Attribute(0, "text", True),),
        groups=(0,),
    )
    case = (
        [
            "CREATE TABLE pg_temp.t (x text NOT NULL)",
            "INSERT INTO pg_temp.t VALUES ('a'), ('a'), ('b'), ('bb')",
        ],
        query,
    )
    check(connection, case, "arrays")
    assert not used
    monkeypatch.setitem(codes._HASHED, "text", "pg_catalog.length({0})::bigint")
    check(connection, case, "arrays")
    assert used


@relaxed
@given(case=cases())
def test_automatic_choice_equals_the_plain_join(
    connection: psycopg.Connection[Any], case: tuple[list[str], JoinQuery]
) -> None:
    check(connection, case, "auto")


@pytest.mark.parametrize("kernel", ["sql", "arrays", "auto"])
@pytest.mark.parametrize("length", [5, 6, 7])
def test_counts_past_two_to_the_63_are_exact(
    connection: psycopg.Connection[Any], length: int, kernel: Any
) -> None:
    """A chain through a single value: the answer is the product of the numbers of rows."""
    sizes = [3000 + 7 * i for i in range(length)]
    with connection.transaction(force_rollback=True):
        occurrences = []
        for i, size in enumerate(sizes):
            connection.execute(f"CREATE TABLE pg_temp.big{i} (x bigint NOT NULL)")
            connection.execute(
                f"INSERT INTO pg_temp.big{i} SELECT 5 FROM generate_series(1, {size})"
            )
            relation = Relation(
                i + 1, "pg_temp", f"big{i}", True, i + 1, (Column("x", 20, "bigint", True),)
            )
            occurrences.append(Occurrence(i, relation, (AttributeUse(0, f"r{i}.x", "x"),)))
        query = JoinQuery(tuple(occurrences), (Attribute(0, "bigint", True),))
        boundaries = some_boundaries(query)
        counts = count(query, boundaries, SnapshotDatabase(connection), kernel=kernel)
    for boundary in boundaries:
        expected = 1
        for i in boundary.occurrences:
            expected *= sizes[i]
        assert counts.boundaries[boundary] == expected
    answer = 1
    for size in sizes:
        answer *= size
    assert counts.groups == {(): answer}


BOUNDS = (1, 2, 3, 5, 8, 20)


def expected_contributions(connection: psycopg.Connection[Any], query: JoinQuery) -> Contributions:
    """Derive the histogram from the counts per group and unit."""
    counted = count(per_unit(query), (), SnapshotDatabase(connection), kernel="sql").groups
    names = per_unit(query).groups
    unit = names.index(query.unit)
    totals: Counter[Any] = Counter()
    for key, n in counted.items():
        totals[key[unit]] += n
    groups: dict[Any, dict[int, tuple[int, int]]] = {}
    for key, n in counted.items():
        shown = tuple(key[names.index(a)] for a in query.groups)
        total = totals[key[unit]]
        cell = groups.setdefault(shown, {})
        amount, share = cell.get(place := bisect_left(BOUNDS, total), (0, 0))
        cell[place] = amount + n, share + n * query.grid // total
    sizes = Counter(bisect_left(BOUNDS, total) for total in totals.values())
    units = tuple(sizes[j] for j in range(len(BOUNDS) + 1))
    return Contributions(BOUNDS, units, groups, query.grid)


@pytest.mark.parametrize("kernel", ["sql", "arrays"])
@settings(relaxed, max_examples=150)
@given(case=cases(simple=True), choice=st.integers(0, 20))
def test_contributions_of_units_are_those_of_the_counts(
    connection: psycopg.Connection[Any], kernel: Any, case: tuple[list[str], JoinQuery], choice: int
) -> None:
    statements, query = case
    joins = [a.id for a in query.attributes if a.join]
    if not joins or any(query.attributes[a].type_name in SEVERAL_TEXTS for a in query.groups):
        return  # which of several texts of a group is shown is for the analyser to settle
    query = replace(query, unit=joins[choice % len(joins)])
    with connection.transaction(force_rollback=True):
        for statement in statements:
            connection.execute(statement)
        (found,) = contributions([query], [BOUNDS], SnapshotDatabase(connection), kernel=kernel)
        assert found == expected_contributions(connection, query)
