"""Counting over parts on other servers equals one server's plain join, whatever the parts hold."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.query.counting_sql import counting_sql
from dpsql.query.elimination import make_plan
from dpsql.query.places import with_places
from dpsql.relation import Column, Relation, quote_identifier
from dpsql.server.facts import read_parts
from dpsql.statistics.counts import count
from dpsql.statistics.sizes import Facts
from tests.expressions import parsed
from tests.property.random_joins import (
    SnapshotDatabase,
    canonical,
    cases,
    plain,
    relaxed,
    some_boundaries,
)
from tests.server.shards import READER, WRITER, Shards, sharded

pytestmark = pytest.mark.server
#: Where the two parts of a relation are: on shards by number, or here.
LAYOUTS = ((0, 1), (0, 0), (1, None))
#: Where the parts of its two parts are.
NESTED = (((0, 0), (1, 1)), ((0, 1), (1, 0)), ((0, 0), (1, None)), ((0,), (1, 1)))
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as found:
        yield found


@pytest.fixture(scope="module")
def connection(shards: Shards) -> Iterator[psycopg.Connection[Any]]:
    with shards.near.connect() as connection:
        yield connection


@st.composite
def cut_cases(draw: st.DrawFn) -> tuple[list[str], JoinQuery, list[tuple[Any, ...] | None], int]:
    """Draw a case, where the parts of each relation are (``None``: it is not cut), and a seed."""
    statements, query = draw(cases(schema="public"))
    relations = {o.relation.name for o in query.occurrences}
    places = [
        draw(st.sampled_from((*LAYOUTS, LAYOUTS[0], None, *NESTED, NESTED[0])))
        if f in relations
        else None
        for f in _names()
    ]
    return statements, query, places, draw(st.integers(0, 2**20))


def _names() -> list[str]:
    return ["t0", 'tabl"e 1', "t2"]


class Cut:
    """The relations of a case in parts; made and dropped outside of what is counted."""

    def __init__(self, shards: Shards, connection: Any, statements: list[str]) -> None:
        self.shards = shards
        self.connection = connection
        self.statements = statements
        self.far: list[tuple[int, str]] = []

    def make(self, names: dict[str, tuple[Any, ...]], astray: int | None) -> None:
        """Load the rows through the parents, or, for ``astray``, into parts that it chooses."""
        for statement in self.statements:
            name = next(n for n in _names() if quote_identifier(n) in statement)
            if name not in names:
                self.connection.execute(statement)
            elif statement.startswith("CREATE"):
                self._create(name, statement, names[name])
            elif statement.startswith("INSERT"):
                target = statement.removesuffix(" ON CONFLICT DO NOTHING")
                if astray is not None:
                    part = astray = (astray * 1103515245 + 12345) % 2**31
                    target = self._into(target, name, names[name], part // 4096)
                if target:
                    self.connection.execute(target)

    def _create(self, name: str, statement: str, places: tuple[Any, ...]) -> None:
        columns = statement[statement.index("(") :]
        self._cut(name, columns, "c0", places)

    def _cut(
        self, name: str, columns: str, key: str, places: tuple[Any, ...], of: str = ""
    ) -> None:
        """Make a partitioned table of parts that are tables, or are made of more parts."""
        parent = f"public.{quote_identifier(name)}"
        made = of or columns
        self.connection.execute(f"CREATE TABLE {parent} {made} PARTITION BY HASH ({key})")
        last = re.findall(r"c\d+", columns)[-1]
        for i, place in enumerate(places):
            part = f"public.{quote_identifier(f'{name} {i}')}"
            of = f"PARTITION OF {parent} FOR VALUES WITH (MODULUS {len(places)}, REMAINDER {i})"
            if isinstance(place, tuple):
                self._cut(f"{name} {i}", columns, last, place, of)
                continue
            if place is None:
                self.connection.execute(f"CREATE TABLE {part} {of}")
            else:
                far = f"f{next(NUMBERS)}"
                self.shards.far[place].sql(
                    f"CREATE TABLE {far} {columns}; GRANT SELECT ON {far} TO {READER};"
                    f" GRANT ALL ON {far} TO {WRITER}"
                )
                self.far.append((place, far))
                self.connection.execute(
                    f"CREATE FOREIGN TABLE {part} {of} SERVER shard{place}"
                    f" OPTIONS (table_name '{far}')"
                )
            self.connection.execute(f"GRANT SELECT ON {part} TO dp_executor")

    def _into(self, insert: str, name: str, places: tuple[Any, ...], part: int) -> str:
        """Put a row into a foreign part, which checks no bounds; local parts would refuse it."""
        foreign = [n for n, place in leaves(name, places) if place is not None]
        here = quote_identifier(name)
        return insert.replace(here, quote_identifier(foreign[part % len(foreign)]), 1)

    def relation(self, relation: Relation) -> Relation:
        """Return a relation as the catalogue shows it once it is cut."""
        row = self.connection.execute(
            "select c.oid::int8, dp.parts_of(c.oid) from pg_class c where c.oid = %s::regclass",
            (relation.sql,),
        ).fetchone()
        columns = tuple(replace(c, not_null=False) for c in relation.columns)
        facts = read_parts(json.dumps(row[1]) if isinstance(row[1], dict) else row[1])
        return replace(
            relation,
            oid=row[0],
            keys=(),
            columns=columns,
            kind="p",
            **facts,
        )

    def copied(self, query: JoinQuery) -> JoinQuery:
        """Return the query over ordinary tables that say of each row in which part it is.

        Of the partitioned tables PostgreSQL reads some parts only, trusting their bounds.
        """
        occurrences = []
        for occurrence in query.occurrences:
            relation = occurrence.relation
            if relation.parts:
                name = f"copy {occurrence.index} of {relation.name}"
                columns = ", ".join(c.name for c in relation.columns)
                rows = " UNION ALL ".join(
                    f"SELECT {relation.place(i) + 1} AS place, {columns} FROM {p.sql}"
                    for i, p in enumerate(relation.parts)
                )
                self.connection.execute(
                    f"CREATE TABLE IF NOT EXISTS public.{quote_identifier(name)} AS {rows}"
                )
                uses = tuple(
                    replace(u, expression=parsed(f"r{occurrence.index}.place"))
                    if query.attributes[u.attribute].place
                    else u
                    for u in occurrence.uses
                )
                occurrence = replace(
                    occurrence, relation=replace(relation, name=name, parts=()), uses=uses
                )
            occurrences.append(occurrence)
        return replace(query, occurrences=tuple(occurrences))

    def drop(self) -> None:
        for place, name in self.far:
            self.shards.far[place].sql(f"DROP TABLE {name}")


def leaves(name: str, places: tuple[Any, ...]) -> Iterator[tuple[str, int | None]]:
    """List the tables that rows are in, and the shards of these."""
    for i, place in enumerate(places):
        if isinstance(place, tuple):
            yield from leaves(f"{name} {i}", place)
        else:
            yield f"{name} {i}", place


def expect(connection: Any, query: JoinQuery) -> tuple[dict[Any, int], dict[Any, int]]:
    """Count by plain joins."""
    everything = frozenset(range(len(query.occurrences)))
    keys = "".join(f"a{a}::text, " for a in query.groups)
    sql = f"SELECT {keys}n FROM ({plain(query, everything, query.groups)}) AS t"
    groups = {tuple(row[:-1]): int(row[-1] or 0) for row in connection.execute(sql)}
    expected = {}
    for boundary in some_boundaries(query):
        inner = plain(query, boundary.occurrences, sorted(boundary.attributes))
        row = connection.execute(f"SELECT max(n) FROM ({inner}) AS t").fetchone()
        expected[boundary] = int(row[0] or 0) if row else 0
    return groups, expected


def over_parts(
    shards: Shards, connection: Any, case: Any, *, astray: bool
) -> tuple[dict[Any, int], JoinQuery]:
    """Check what is counted over parts against plain joins of the partitioned tables."""
    statements, query, places, seed = case
    names = {n: p for n, p in zip(_names(), places, strict=True) if p is not None}
    cut = Cut(shards, connection, statements)
    try:
        with connection.transaction(force_rollback=True):
            cut.make(names, seed if astray else None)
            occurrences = tuple(
                replace(o, relation=cut.relation(o.relation)) if o.relation.name in names else o
                for o in query.occurrences
            )
            placed = with_places(replace(query, occurrences=occurrences))
            groups, expected = expect(connection, cut.copied(placed))
            counts = count(placed, [*expected], SnapshotDatabase(connection))
            assert canonical(query, counts.groups) == canonical(query, groups)
            assert counts.boundaries == expected
            return counts.groups, placed
    finally:
        cut.drop()


@settings(relaxed, max_examples=60)
@given(case=cut_cases())
def test_parts_on_other_servers_are_one_relation(
    shards: Shards, connection: psycopg.Connection[Any], case: Any
) -> None:
    statements, query, places, _ = case
    names = [n for n, p in zip(_names(), places, strict=True) if p is not None]
    with connection.transaction(force_rollback=True):
        for statement in statements:
            if any(quote_identifier(n) in statement for n in names):
                # a relation in parts on other servers has no key
                if "PRIMARY KEY" not in statement:
                    connection.execute(statement.removesuffix(" ON CONFLICT DO NOTHING"))
            else:
                connection.execute(statement)
        groups, _ = expect(connection, query)
    found, _ = over_parts(shards, connection, case, astray=False)
    assert canonical(query, found) == canonical(query, groups)


@settings(relaxed, max_examples=40)
@given(case=cut_cases())
def test_rows_outside_of_the_bounds_of_their_part_are_counted_as_what_is_defined(
    shards: Shards, connection: psycopg.Connection[Any], case: Any
) -> None:
    over_parts(shards, connection, case, astray=True)


@st.composite
def paths(draw: st.DrawFn) -> tuple[list[str], JoinQuery, list[tuple[Any, ...] | None], int]:
    """Draw a path over two relations that are cut in one way and a third; rows are often alone."""
    places: list[tuple[Any, ...] | None] = [LAYOUTS[0], LAYOUTS[0]]
    places.append(draw(st.sampled_from([None, LAYOUTS[0]])))
    statements, relations = [], []
    for r, name in enumerate(_names()):
        quoted = quote_identifier(name)
        statements.append(f"CREATE TABLE public.{quoted} (c0 integer, c1 integer)")
        pairs = st.tuples(st.integers(1, 4), st.integers(1, 3))
        rows = draw(st.lists(pairs, max_size=8, unique_by=draw(st.sampled_from([None, _key]))))
        statements += [f"INSERT INTO public.{quoted} VALUES ({a}, {b})" for a, b in rows]
        columns = tuple(Column(c, 23, "integer", False) for c in ("c0", "c1"))
        relations.append(Relation(r + 1, "public", name, True, r + 1, columns))
    uses = (
        (AttributeUse(0, parsed("r0.c0"), "c0"),),
        (AttributeUse(0, parsed("r1.c0"), "c0"), AttributeUse(1, parsed("r1.c1"), "c1")),
        (AttributeUse(1, parsed("r2.c0"), "c0"),),
    )
    query = JoinQuery(
        tuple(Occurrence(i, r, u) for i, (r, u) in enumerate(zip(relations, uses, strict=True))),
        (Attribute(0, "integer", True), Attribute(1, "integer", True)),
    )
    return statements, query, places, draw(st.integers(0, 2**20))


def _key(row: tuple[int, int]) -> int:
    return row[0]


@settings(relaxed, max_examples=30)
@given(case=paths(), astray=st.booleans())
def test_rows_that_are_alone_in_their_group_tell_the_same_maximum(
    shards: Shards, connection: psycopg.Connection[Any], case: Any, astray: bool
) -> None:
    _, placed = over_parts(shards, connection, case, astray=astray)
    boundaries = some_boundaries(placed)
    sizes = Facts({}, {}, {}).sizes(placed)
    sql = counting_sql(make_plan(placed, boundaries, sizes=sizes))
    assert "WITH u AS" in sql
