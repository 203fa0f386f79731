"""Columns read in ranges of pages, by several processes, are the columns of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.query.elimination import make_plan
from dpsql.relation import Column, Relation
from dpsql.statistics import limits, native
from dpsql.statistics.arrays import Memory, NotInArrays
from dpsql.statistics.reading import read_tables
from dpsql.statistics.sizes import read_facts
from tests.expressions import parsed
from tests.property.random_joins import SnapshotDatabase

ROWS = 40_000


class Watching(SnapshotDatabase):
    """Keeps the plans of statements that pack."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.plans: list[str] = []

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        if "dp.pack" in sql:
            plan = self.connection.execute(f"explain {sql}").fetchall()
            self.plans.append("\n".join(row[0] for row in plan))
        return super().execute(sql, parameters)


@pytest.fixture
def connection(database: Any) -> Any:
    connection = database.connect()
    connection.execute(
        "create table wide (a bigint, b integer not null, c text);"
        " alter table wide alter c set storage plain;"
        f" insert into wide select nullif(i, 5) * 1000003::bigint, -i, repeat('x', 200)"
        f" from generate_series(1, {ROWS}) i;"
        " insert into wide values (4000000000, 7, ''); analyze wide"
    )
    return connection


def query(kind: str = "r") -> JoinQuery:
    columns = (Column("a", 20, "bigint", False), Column("b", 23, "integer", True))
    wide = Relation(0, "public", "wide", True, 1, columns, kind=kind)
    uses = (AttributeUse(0, parsed("r0.a"), "a"), AttributeUse(1, parsed("r0.b"), "b"))
    other = (AttributeUse(0, parsed("r1.a"), "a"),)
    filters = (parsed("r0.b <> -9"),)
    attributes = (Attribute(0, "bigint", True), Attribute(1, "integer", False))
    return JoinQuery(
        (Occurrence(0, wide, uses, filters), Occurrence(1, wide, other)), attributes, (), (1,)
    )


def read(database: Watching, memory: Memory, oid: int) -> dict[int, tuple[dict[int, Any], int]]:
    from dataclasses import replace

    found = query()
    relation = replace(found.occurrences[0].relation, oid=oid)
    found = replace(
        found, occurrences=tuple(replace(o, relation=relation) for o in found.occurrences)
    )
    facts = read_facts(found, database)
    plan = make_plan(found, (), answer=True, sizes=facts.sizes(found))
    return read_tables(plan, facts, database, memory)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("pages", [8192, 100, 7])
def test_every_row_is_read_once(
    connection: Any, pages: int, parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGES", pages)
    if parallel:
        connection.execute("set parallel_setup_cost = 0; set parallel_tuple_cost = 0;"
                           " set min_parallel_table_scan_size = 0")  # fmt: skip
    oid, size = connection.execute(
        "select 'wide'::regclass::oid::int, pg_relation_size('wide') / 8192"
    ).fetchone()
    database = Watching(connection)
    memory = Memory(64 << 20)
    tables = read(database, memory, oid)
    expected = connection.execute("select a, b from wide where a is not null").fetchall()
    columns, rows = tables[0]
    found = Counter(zip(columns[0].tolist(), columns[1].tolist(), strict=True))
    assert found == Counter(row for row in expected if row[1] != -9)
    assert rows == len(expected) - 1
    assert Counter(tables[1][0][0].tolist()) == Counter(row[0] for row in expected)
    assert memory.used == sum(c.nbytes for t, _ in tables.values() for c in t.values())
    ranged = size > 2 * pages
    assert all(("Tid Range Scan" in plan) == ranged for plan in database.plans)
    assert all(("Parallel" in plan) == parallel for plan in database.plans[:1])
    assert (len(database.plans) > 2) == (size > 4.5 * pages)


def test_more_than_the_bound_is_refused(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    oid = connection.execute("select 'wide'::regclass::oid::int").fetchone()[0]
    with pytest.raises(NotInArrays):
        read(Watching(connection), Memory(100_000), oid)
    monkeypatch.setattr(limits, "PAGES", 50)
    with pytest.raises(NotInArrays):
        read(Watching(connection), Memory(400_000), oid)


def test_a_backend_finds_the_compiled_loops(connection: Any) -> None:
    """Else every answer would silently take the slow ones."""
    connection.execute(
        "create function pg_temp.version() returns int language plpython3u as"
        " $$ import ctypes; return ctypes.CDLL(None).dpsql_arrays_version() $$"
    )
    assert connection.execute("select pg_temp.version()").fetchone() == (native.VERSION,)
