"""Counting by elimination equals PostgreSQL's own plain join, on random schemas and data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.query.counting_sql import counting_sql
from dpsql.query.elimination import make_plan
from dpsql.relation import Column, Relation
from dpsql.statistics.counts import count
from tests.expressions import parsed
from tests.kernel_library import TINY, loops_named
from tests.property.random_joins import (
    INTEGERS,
    SnapshotDatabase,
    canonical,
    cases,
    connection,
    plain,
    relaxed,
    some_boundaries,
)

pytestmark = pytest.mark.server
__all__ = ["connection"]


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
        uses = (AttributeUse(0, parsed("r0.x"), "x"),), (AttributeUse(0, parsed("r1.x"), "x"),)
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
    uses = [(AttributeUse(0, parsed(f"r{i}.x"), "x"),) for i in range(2)]
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
    monkeypatch.setitem(codes._HASHED, "text", "pg_catalog.length(:a)::bigint")
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
            occurrences.append(Occurrence(i, relation, (AttributeUse(0, parsed(f"r{i}.x"), "x"),)))
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
