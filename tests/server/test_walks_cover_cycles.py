"""The two-sided bound of sampled boundaries on cycles, under skew that is chosen against it.

As in ``test_walks_cover``: starts walk, eta is 0.05, and so many runs may fail that honest walks
exceed it with probability below 1e-10.  Each kind of data has a mutant that it must catch.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from dpsql.core.sampling import Estimate, chernoff_high
from dpsql.statistics import certified
from dpsql.statistics.walks import Report, Runner
from tests.server import test_walks_cover as cover
from tests.server.test_walks_cover import ETA, Edges, failures, session, walking, zipf

__all__ = ["session", "walking"]

RUNS = 20


def most_failures(runs: int, level: float) -> int:
    """Return the least number that a binomial of ``runs`` and eta exceeds below ``level``."""
    above = 1.0
    for number in range(runs + 1):
        above -= math.comb(runs, number) * ETA**number * (1 - ETA) ** (runs - number)
        if above < level:
            return number
    return runs


MOST_FAILURES = most_failures(RUNS, 1e-10)


def hub(generator: random.Random, rows: int) -> Edges:
    """One node with many edges out that lead nowhere; the results are elsewhere."""
    edges: Edges = [(0, 1000 + i) for i in range(200)]
    edges += [(1 + generator.randrange(20), 1 + generator.randrange(20)) for _ in range(rows)]
    return [*edges, (0, 3)]


def steep(generator: random.Random, rows: int) -> Edges:
    """Both ends from Zipf's law at 1.5."""
    ends = [zipf(generator, 1.5, rows // 3, rows) for _ in range(2)]
    return list(zip(*ends, strict=True))


def even(generator: random.Random, rows: int) -> Edges:
    """No skew at all: hundreds of groups of nearly one size."""
    return [(generator.randrange(12), generator.randrange(12)) for _ in range(rows)]


def empty(generator: random.Random, _rows: int) -> Edges:
    """Edges that never meet: all longer paths have no result."""
    return cover.empty(generator)


#: Rows of each table; few where paths are long, lest exact counts take all the time.
ROWS = {"Q5": 300, "Q7": 60}
CASES = [(name, data) for name in ROWS for data in (hub, steep, empty)] + [("Q5", even)]


def failed_runs(session: Any, monkeypatch: pytest.MonkeyPatch, name: str, data: Any) -> int:
    """Return how many of ``RUNS`` runs failed."""
    made = {"data": lambda generator: data(generator, ROWS[name])}
    monkeypatch.setattr(cover, "DATA", made)
    failed = failures(session, name, "data", RUNS)[0]
    print(f"failed {failed} of {RUNS}")  # noqa: T201
    return failed


@pytest.mark.parametrize(("name", "data"), CASES)
@pytest.mark.usefixtures("walking")
def test_coverage_on_cycles(
    session: Any, monkeypatch: pytest.MonkeyPatch, name: str, data: Any
) -> None:
    refuted = 0
    refutes = certified.refutes

    def counted(*arguments: Any, **options: Any) -> bool:
        nonlocal refuted
        found = refutes(*arguments, **options)
        refuted += found
        return found

    monkeypatch.setattr(certified, "refutes", counted)
    if name == "Q5":  # else so few walks are allowed that nearly all is counted
        monkeypatch.setattr(Runner, "allowance", lambda *_: 50_000)
    assert failed_runs(session, monkeypatch, name, data) <= MOST_FAILURES
    print(f"refuted {refuted}")  # noqa: T201
    if (name, data) in (("Q7", steep), ("Q5", even)):  # hundreds
        assert refuted > 0, "walks alone had starts leave"


def trust_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the group that the first walks found largest for the largest."""
    monkeypatch.setattr(certified, "refutes", lambda *_, **__: True)
    monkeypatch.setattr(certified, "walks_to_refute", lambda bar, eta: 8)


def trust_degrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the start with most rows in the first relation for that of the largest group."""

    def leaders(self: Any, report: Report) -> list[Any]:
        return list(self.runner.starts(self.chain, 0, 1)) if report.samples else []

    monkeypatch.setattr(certified._Search, "_leaders", leaders)
    trust_the_first_look(monkeypatch)


def trust_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the largest mean of the first walks, and say that it was counted."""

    def plugged_in(_self: Any, report: Report, _allowance: int) -> Estimate:
        largest = max((s.mean for s in report.samples.values()), default=0.0) * report.scale
        return Estimate(round(largest), 0, True, largest)

    monkeypatch.setattr(certified._Search, "run", plugged_in)


def trust_the_upper_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no walk met a result, take what so many walks may miss instead of counting."""
    run = certified._Search.run

    def filled(self: Any, report: Report, allowance: int) -> Estimate | None:
        if report.samples:
            return run(self, report, allowance)
        largest = math.prod(self.runner.largest[step.degree] for step in self.chain.steps)
        missed = chernoff_high(certified.PILOT, 0.0, self.eta) * largest
        return Estimate(math.ceil(missed), 0, False, 0.0)

    monkeypatch.setattr(certified._Search, "run", filled)


@pytest.mark.parametrize(
    ("name", "data", "mutant"),
    [
        ("Q5", hub, trust_degrees),
        ("Q7", hub, trust_degrees),
        ("Q5", steep, trust_the_estimate),
        ("Q7", steep, trust_the_first_look),
        ("Q5", even, trust_the_first_look),
        ("Q5", empty, trust_the_upper_end),
        ("Q7", empty, trust_the_upper_end),
    ],
)
@pytest.mark.usefixtures("walking")
def test_mutants_are_caught_on_cycles(
    session: Any, monkeypatch: pytest.MonkeyPatch, name: str, data: Any, mutant: Any
) -> None:
    mutant(monkeypatch)
    assert failed_runs(session, monkeypatch, name, data) > MOST_FAILURES


def test_the_limit_is_the_binomials() -> None:
    assert most_failures(40, 1e-10) <= cover.MOST_FAILURES
    assert most_failures(1, 0.06) == 0
    assert most_failures(1, 0.04) == 1
