"""Searches that trust their first look fail on cycles, under skew that is chosen against it.

Honest runs on the same data are in ``test_walks_cover``; here are searches that leave out a part
of what makes them certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from dpsql.core.sampling import Estimate
from dpsql.statistics import certified
from dpsql.statistics.walks import Report
from tests.server.binomials import most_failures
from tests.server.walk_cases import (
    Data,
    even,
    hub,
    let_walk,
    lost,
    open_session,
    plateau,
    skewed,
    try_out,
)

ETA = 0.05
RUNS = 100
#: Of as many honest runs; exceeded with probability below 1e-10.
MOST_FAILURES = most_failures(RUNS, ETA, 1e-10)


@pytest.fixture(scope="module")
def session(server: Any) -> Iterator[psycopg.Connection[Any]]:
    with open_session(server) as connection:
        yield connection


def trust_the_first_look(patch: pytest.MonkeyPatch) -> None:
    """Take the group that the first walks found largest for the largest."""
    patch.setattr(certified, "refutes", lambda *_, **__: True)


def trust_degrees(patch: pytest.MonkeyPatch) -> None:
    """Take the start with most rows in the first relation for that of the largest group."""

    def leaders(self: Any, report: Report) -> list[Any]:
        return list(self.runner.starts(self.chain, 0, 1)) if report.samples else []

    patch.setattr(certified._Search, "_leaders", leaders)
    trust_the_first_look(patch)


def trust_the_estimate(patch: pytest.MonkeyPatch) -> None:
    """Take the largest mean of the first walks, and say that it was counted."""

    def plugged_in(_self: Any, report: Report, _allowance: int) -> Estimate:
        largest = max((s.mean for s in report.samples.values()), default=0.0) * report.scale
        return Estimate(round(largest), 0, True, largest)

    patch.setattr(certified._Search, "run", plugged_in)


@pytest.mark.parametrize(
    ("name", "data", "mutant"),
    [
        ("Q5", lost, trust_degrees),
        ("Q7", lost, trust_degrees),
        ("Q5", skewed, trust_the_estimate),
        ("Q5", even, trust_the_first_look),
        ("Q6", hub, trust_the_first_look),
        ("Q7", plateau, trust_the_first_look),
    ],
)
def test_mutants_are_caught_on_cycles(
    session: Any, name: str, data: Data, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    def prepare(patch: pytest.MonkeyPatch) -> None:
        let_walk(patch)
        mutant(patch)

    limit = MOST_FAILURES
    outcome = try_out(session, name, data, RUNS, eta=ETA, alpha=0.0, enough=limit, prepare=prepare)
    assert outcome.failed > limit
