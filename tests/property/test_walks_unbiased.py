"""The expectation over all walks, each enumerated, is the size of every group, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dpsql.model import Boundary, JoinQuery
from dpsql.statistics import walks as module
from dpsql.statistics.chains import (
    Chain,
    from_groups,
    from_one_side,
    make_chain,
    plan_chains,
    walkable,
)
from dpsql.statistics.sizes import read_facts
from dpsql.statistics.walks import Runner
from tests.property.in_parts import in_parts
from tests.property.random_joins import (
    SnapshotDatabase,
    cases,
    plain,
    some_boundaries,
)

pytestmark = pytest.mark.server

#: Every number of choices up to ROWS divides it.
RADIX = 12
ROWS = 4
STEPS = 4
#: Stands in for dp.draw: walk w takes, in step s, the choice that the s-th digit of w says.
ENUMERATED = f"""
create function pg_temp.enumerated(key bytea, walk bigint, step integer, choices bigint)
returns bigint language sql immutable strict as $$
select mod(div(walk::numeric, {RADIX} ^ (step - 1)::numeric), {RADIX})::bigint
       * choices / (case when {RADIX} % choices = 0 then {RADIX} else 0 end) $$
"""


class Enumerating(SnapshotDatabase):
    """Walks as the digits say instead of at random."""

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        return super().execute(sql.replace("dp.draw(", "pg_temp.enumerated("), parameters)


@pytest.fixture(scope="module")
def connection(server: Any) -> Iterator[psycopg.Connection[Any]]:
    database = server.create_database()
    with database.connect() as connection:
        connection.execute(ENUMERATED)
        connection.execute("set jit = off")
        yield connection
    server.drop_database(database)


def few_rows(statements: list[str]) -> list[str]:
    """Keep the first rows of each table."""
    seen: dict[str, int] = {}
    kept = []
    for statement in statements:
        if statement.startswith("INSERT"):
            table = statement.split(" VALUES")[0]
            seen[table] = seen.get(table, 0) + 1
            if seen[table] > ROWS:
                continue
        kept.append(statement)
    return kept


def sizes_of_groups(
    connection: psycopg.Connection[Any], query: JoinQuery, boundary: Boundary
) -> dict[tuple[str, ...], int]:
    attributes = sorted(boundary.attributes)
    inner = plain(query, boundary.occurrences, attributes)
    keys = ", ".join(f"CAST(a{a} AS {query.attributes[a].type_name})::text" for a in attributes)
    rows = connection.execute(f"SELECT {keys}, n FROM ({inner}) AS t")
    return {tuple(row[:-1]): int(row[-1]) for row in rows}


def variants(
    query: JoinQuery, chain: Chain, groups: dict[Boundary, dict[tuple[str, ...], int]], sizes: Any
) -> Iterator[tuple[Chain, list[tuple[str, ...]]]]:
    """Yield walks from random rows, from whole groups and from one side of them."""
    wanted = [s.boundary for s in chain.stretches]
    whole = make_chain(query, chain.order, (), wanted)
    yield whole, []
    for stretch in whole.stretches:
        boundary = stretch.boundary
        side = from_one_side(query, boundary, sizes)
        for other in (from_groups(query, whole, stretch, wanted), side):
            at = [sorted(boundary.attributes).index(a) for a in other.start]
            starts = sorted({tuple(key[i] for i in at) for key in groups[boundary]})
            if starts:
                yield other, starts[:2]


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much,
                           HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    case=cases(types=("integer", "bigint", "date", "uuid", "boolean")),
    cut=st.booleans(),
)
def test_the_mean_of_all_walks_is_the_size_of_the_group(
    connection: psycopg.Connection[Any], case: tuple[list[str], JoinQuery], cut: bool
) -> None:
    """In tables, and in tables in parts, through which walks take other statements."""
    statements, query = case
    assume(any(walkable(query, b) for b in some_boundaries(query)))
    with connection.transaction(force_rollback=True):
        for statement in few_rows(statements):
            connection.execute(statement)
        query, told = in_parts(connection, query) if cut else (query, query)
        boundaries = [
            b for b in some_boundaries(query) if walkable(query, b) and len(b.occurrences) <= STEPS
        ]
        assume(boundaries)
        database = Enumerating(connection)
        groups = {b: sizes_of_groups(connection, told, b) for b in boundaries}
        sizes = read_facts(query, database).sizes(query)
        chains = plan_chains(query, boundaries, sizes)
        assert {s.boundary for c in chains for s in c.stretches} == set(boundaries)
        for chain in chains:
            for walked, starts in variants(query, chain, groups, sizes):
                compare(query, walked, starts, database, groups, sizes)


def compare(
    query: JoinQuery,
    chain: Chain,
    starts: list[tuple[str, ...]],
    database: SnapshotDatabase,
    groups: dict[Boundary, dict[tuple[str, ...], int]],
    sizes: Any,
) -> None:
    runner = Runner(query, database, b"0" * module.KEY_BYTES, sizes, lambda: None)
    runner.learn(step.degree for step in chain.steps)
    if not all(runner.largest[step.degree] for step in chain.steps):
        return
    drawn = [n for n, step in enumerate(chain.steps, 1) if step.kept or not step.fixed]
    reports = runner.walk(chain, RADIX ** max(drawn, default=0), starts)
    for stretch, report in zip(chain.stretches, reports, strict=True):
        true = groups[stretch.boundary]
        for key, sample in report.samples.items():
            assert math.isclose(sample.mean * report.scale, true.get(key, 0), rel_tol=1e-9)
        if stretch.first == 0:
            at = [sorted(stretch.boundary.attributes).index(a) for a in stretch.fixed]
            place = [chain.start.index(a) for a in stretch.fixed]
            begun = {tuple(start[i] for i in place) for start in starts or [()]}
            expected = {k for k in true if tuple(k[i] for i in at) in begun}
            assert {k for k, s in report.samples.items() if s.total > 0} == expected
