"""What sampled boundaries answer: with nothing patched, without rows, at the least rate.

At an eta of 1e-12 a failure never shows.  Data without any result, or of NULLs, are no matter of
coverage: there is nothing to walk, and every boundary is counted by definition.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dpsql.core.residual import required
from dpsql.core.sampling import Estimate, chernoff_high
from dpsql.errors import InvalidParameter
from dpsql.model import Boundary
from dpsql.statistics import certified
from dpsql.statistics.counts import count
from dpsql.statistics.walks import Report, estimate
from tests.property.random_joins import SnapshotDatabase
from tests.server.walk_cases import (
    DATA,
    QUERIES,
    TABLES,
    Edges,
    empty,
    fill,
    holds,
    let_walk,
    network,
    open_session,
    try_out,
    walk,
)

UNPATCHED = DATA | {"empty": empty}


@pytest.fixture(scope="module")
def session(server: Any) -> Iterator[psycopg.Connection[Any]]:
    with open_session(server) as connection:
        yield connection


def as_it_runs(
    session: Any, name: str, data: str, alpha: float
) -> tuple[dict[Boundary, int], dict[Boundary, Estimate]]:
    """Count and walk with nothing patched, and a failure probability that never shows."""
    generator = random.Random(data)
    query = QUERIES[name]
    wanted = required(query.shape())
    fill(session, UNPATCHED[data](generator, name))
    true = count(query, wanted, SnapshotDatabase(session), answer=False).boundaries
    return true, walk(session, query, wanted, eta=1e-12, alpha=alpha, rate=0.5)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("data", UNPATCHED)
def test_as_it_runs_it_is_exact_or_close(session: Any, name: str, data: str) -> None:
    """But for 1e-12 a run."""
    true, found = as_it_runs(session, name, data, alpha=0.01)
    assert holds(true, found, 0.01)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("data", UNPATCHED)
def test_as_the_server_runs_it_it_is_exact(session: Any, name: str, data: str) -> None:
    """Alpha is 0 there: nothing but the largest group itself, but for 1e-12 a run."""
    true, found = as_it_runs(session, name, data, alpha=0.0)
    assert {b: e.value for b, e in found.items()} == true


def trust_the_upper_end(patch: pytest.MonkeyPatch) -> None:
    """Where no walk met a result, take what so many walks may miss instead of counting."""
    let_walk(patch)
    run = certified._Search.run

    def filled(self: Any, report: Report, allowance: int) -> Estimate | None:
        if report.samples:
            return run(self, report, allowance)
        largest = math.prod(self.runner.largest[step.degree] for step in self.chain.steps)
        missed = chernoff_high(certified.PILOT, 0.0, self.eta) * largest
        return Estimate(math.ceil(missed), 0, False, 0.0)

    patch.setattr(certified._Search, "run", filled)


@pytest.mark.parametrize("name", QUERIES)
def test_without_results_there_is_nothing_to_walk(session: Any, name: str) -> None:
    outcome = try_out(session, name, empty, 3, eta=0.05, alpha=0.7)
    assert (outcome.failed, outcome.rounds, outcome.settled) == (0, 0, 0)
    outcome = try_out(session, name, empty, 3, eta=0.05, alpha=0.7, prepare=trust_the_upper_end)
    assert outcome.failed == outcome.runs


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_the_least_rate_is_at_least_one_walk(session: Any, name: str, filtered: bool) -> None:
    query = QUERIES[name]
    wanted = required(query.shape())
    fill(session, network(random.Random(name), name))
    for rate in (1e-300, 1e-9, 1e-4):
        found = walk(session, query, wanted, published=True, filtered=filtered, rate=rate)
        assert set(found) == set(wanted)
        assert all(e.exact or e.walks > 0 for e in found.values())


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("rows", [[], [(None, None)] * 5, [(None, 1), (1, None)]])
def test_no_rows_and_null_keys_count_as_zero(
    session: Any, name: str, rows: Edges, published: bool, filtered: bool
) -> None:
    query = QUERIES[name]
    wanted = required(query.shape())
    fill(session, [rows] * TABLES)
    true = count(query, wanted, SnapshotDatabase(session), answer=False).boundaries
    found = walk(session, query, wanted, published=published, filtered=filtered)
    assert {b: e.value for b, e in found.items()} == true
    assert all(e.exact for e in found.values())


@pytest.mark.parametrize("filtered", [False, True])
def test_the_published_estimate_finds_a_leader_that_stands_out(
    session: Any, filtered: bool
) -> None:
    """A star: one group has nearly all results, so that every walk from it has the same weight."""
    star: Edges = [(0, 0)] * 20 + [(i, i) for i in range(1, 30)]
    fill(session, [star] * TABLES)
    query = QUERIES["Q4"]
    wanted = required(query.shape())
    true = count(query, wanted, SnapshotDatabase(session), answer=False).boundaries
    found = walk(session, query, wanted, published=True, filtered=filtered, rate=1e-3)
    for boundary, estimate_ in found.items():
        assert math.isclose(estimate_.centre, true[boundary], rel_tol=1e-9)
        assert estimate_.value >= true[boundary]
        assert estimate_.exact == (len(boundary.occurrences) == 1)


def test_the_same_key_walks_the_same_way(session: Any) -> None:
    generator = random.Random(1)
    fill(session, network(generator, "Q6"))
    query = QUERIES["Q6"]
    wanted = required(query.shape())
    key = secrets.token_bytes(16)
    first, second, other = (
        walk(session, query, wanted, published=True, key=k) for k in (key, key, bytes(16))
    )
    assert first == second
    assert first != other


@pytest.mark.parametrize("rate", [0, -0.5, 1.5, math.nan])
def test_a_rate_outside_zero_to_one_reads_nothing(rate: float) -> None:
    query = QUERIES["Q5"]
    with pytest.raises(InvalidParameter) as caught:
        estimate(query, required(query.shape()), None, key=bytes(16), rate=rate, eta=0.1)  # type: ignore[arg-type]
    assert caught.value.sqlstate == "PD040"
    assert caught.value.detail == f"Got {rate!r}."
