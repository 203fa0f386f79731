"""The two-sided bound of sampled boundaries fails no more often than promised.

Every case asserts that walks decided searches: starts walk that the server's settings would count.
Where walks find the rest of a group themselves a search cannot end between two ends: so it is with
all boundaries of cycles, where walks refute starts and alpha does not matter.  Data without any result leave nothing to walk: ``test_walks_answers``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from dpsql.core.sampling import Sample
from dpsql.statistics import certified
from tests.server.binomials import above, most_failures
from tests.server.walk_cases import (
    DATA,
    Data,
    Edges,
    Outcome,
    hub,
    let_walk,
    open_session,
    plateau,
    rivals,
    try_out,
)

ETA = 0.05
RUNS = 50
#: Of the runs of one case; exceeded with probability below 1e-11.
MOST_FAILURES = most_failures(RUNS, ETA, 1e-11)
#: At so small an eta a limit of few failures tells a margin from a third of it.
STRICT_ETA = 0.001
STRICT_RUNS = 200
STRICT: dict[str, Any] = {"eta": STRICT_ETA, "alpha": 0.7, "asked": 9}
STRICT_LIMIT = most_failures(STRICT_RUNS, STRICT_ETA, 1e-10)
#: Batches of runs that are added where data came up on which walks had nothing to do.
MORE = 4

#: Queries and the alpha that they run with, 0 as on the server.
QUERIES = [("Q4", 0.7), ("Q4", 0.0), ("Q5", 0.0), ("Q6", 0.0), ("Q7", 0.0)]
CASES = [(name, alpha, data) for name, alpha in QUERIES for data in DATA]

Case = tuple[str, float, str]
Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def session(server: Any) -> Iterator[psycopg.Connection[Any]]:
    with open_session(server) as connection:
        yield connection


@pytest.fixture(scope="module")
def outcome_of(session: psycopg.Connection[Any]) -> Callable[[Case], Outcome]:
    """Run a case the first time that somebody asks for it."""
    known: dict[Case, Outcome] = {}

    def find(case: Case) -> Outcome:
        if case not in known:
            name, alpha, data = case
            known[case] = try_out(session, name, DATA[data], RUNS, eta=ETA, alpha=alpha)
        return known[case]

    return find


def decided(outcome: Outcome, alpha: float) -> bool:
    """Whether walks decided enough of the searches."""
    between = outcome.between > 0 or alpha == 0
    return outcome.refuted > 0 and outcome.settled > outcome.runs / 25 and between


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_coverage_where_walks_decide(
    case: Case, outcome_of: Callable[[Case], Outcome], session: psycopg.Connection[Any]
) -> None:
    """A case alone shows a bound that fails in half of the runs (0.967).

    Of networks on triangles every eighth leaves walks nothing to do.  Then more data are drawn:
    of 25 that few are left with a probability below 1e-11.
    """
    name, alpha, data = case
    outcome = outcome_of(case)
    assert outcome.failed <= MOST_FAILURES
    for _ in range(MORE):
        if not decided(outcome, alpha):
            outcome += try_out(session, name, DATA[data], RUNS, eta=ETA, alpha=alpha)
    assert outcome.rounds > 0
    assert outcome.refuted > 0
    assert outcome.settled > outcome.runs / 25, "walks settle searches"
    if alpha > 0:
        assert outcome.between > 0, "some values rest on both ends"
    else:
        assert outcome.between == 0, "without alpha every value is a count"


def test_coverage_of_all_runs_together(outcome_of: Callable[[Case], Outcome]) -> None:
    """1,500 runs, at most 132 failures: a bound that fails at eta exceeds that with 3e-10.

    One that fails twice as often does with probability 0.935, one that fails three times as often
    with 1 - 2e-12 (``test_the_limits_are_the_binomials``).
    """
    total = sum((outcome_of(case) for case in CASES), Outcome())
    assert total.runs == len(CASES) * RUNS
    assert total.failed <= most_failures(total.runs, ETA, 5e-10)


def test_the_limits_are_the_binomials() -> None:
    runs = len(CASES) * RUNS
    limit = most_failures(runs, ETA, 5e-10)
    assert (runs, limit) == (1500, 132)
    alarms = above(runs, ETA, limit) + len(CASES) * above(RUNS, ETA, MOST_FAILURES)
    assert alarms + above(STRICT_RUNS, STRICT_ETA, STRICT_LIMIT) < 1e-9
    assert above(runs, 2 * ETA, limit) > 0.935
    assert above(runs, 3 * ETA, limit) > 1 - 1e-11
    assert above(RUNS, 0.5, MOST_FAILURES) > 0.967
    assert above(STRICT_RUNS, 0.1, STRICT_LIMIT) > 0.999
    assert most_failures(1, 0.06, 0.06) == 1
    assert most_failures(1, 0.04, 0.06) == 0


def test_coverage_at_a_small_eta(session: Any) -> None:
    """Both ends on paths; a bound that fails in one run of ten shows with 0.999."""
    outcome = try_out(session, "Q4", hub, STRICT_RUNS, **STRICT)
    assert outcome.failed <= STRICT_LIMIT
    assert outcome.between > outcome.runs / 2


def trust_means(patch: pytest.MonkeyPatch) -> None:
    """Refute a start as soon as its mean is below the bar."""
    patch.setattr(certified, "refutes", lambda s, bar, eta, found=False: s.mean < bar)


def forget_the_margin(patch: pytest.MonkeyPatch) -> None:
    """Take means for both ends of every interval."""
    patch.setattr(certified, "interval", lambda sample, eta: (sample.mean, sample.mean))


def forget_the_range(patch: pytest.MonkeyPatch) -> None:
    """Leave the last factor out of the range of a walk's weight."""
    begin = certified._Search.__init__

    def forgetful(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        self.range //= self.runner.largest[self.chain.steps[-1].degree]

    patch.setattr(certified._Search, "__init__", forgetful)


def third_of_the_margin(patch: pytest.MonkeyPatch) -> None:
    """Take walks for nine times as many, which divides every half-width by three."""
    refutes, interval = certified.refutes, certified.interval

    def more(sample: Sample) -> Sample:
        return Sample(9 * sample.walks, 9 * sample.total, 9 * sample.squares)

    patch.setattr(certified, "refutes", lambda s, bar, eta, found=False: refutes(more(s), bar, eta))
    patch.setattr(certified, "interval", lambda s, eta: interval(more(s), eta))


@pytest.mark.parametrize(
    ("name", "alpha", "data", "mutant", "runs"),
    [
        ("Q4", 0.7, plateau, forget_the_margin, 400),
        ("Q5", 0.0, hub, trust_means, 200),
        ("Q6", 0.0, hub, trust_means, 700),
        ("Q6", 0.0, hub, forget_the_range, 200),
        ("Q7", 0.0, hub, forget_the_range, 200),
    ],
)
def test_mutants_are_caught(
    session: Any, name: str, alpha: float, data: Data, mutant: Mutant, runs: int
) -> None:
    """The limit is the one of as many honest runs.

    The mutants fail in 0.35 to 0.8 of the runs: that one stays within it has a probability below
    1e-12, were it 0.25 of 700 runs, 0.3 of 400 or 0.45 of 200.
    """
    limit = most_failures(runs, ETA, 1e-11)
    outcome = try_mutant(session, name, data, runs, limit, mutant, eta=ETA, alpha=alpha)
    assert outcome.failed > limit


def test_a_third_of_the_margin_is_caught(session: Any) -> None:
    """It fails in 0.1 of the runs; were it 0.05, in so few with a probability below 1e-10."""
    runs = 1000
    limit = most_failures(runs, STRICT_ETA, 1e-10)
    outcome = try_mutant(session, "Q4", hub, runs, limit, third_of_the_margin, **STRICT)
    assert outcome.failed > limit


def try_mutant(
    session: Any, name: str, data: Data, runs: int, limit: int, mutant: Mutant, **options: Any
) -> Outcome:
    """Run until the limit is exceeded."""

    def prepare(patch: pytest.MonkeyPatch) -> None:
        let_walk(patch)
        mutant(patch)

    return try_out(session, name, data, runs, enough=limit, prepare=prepare, **options)


def test_as_the_server_runs_walks_decide_too(session: Any) -> None:
    """Alpha is 0 and nothing is patched: 80 groups, of which walks refute nearly all.

    The first look finds the largest group here, so that no run should fail at all.
    """

    def many(generator: Any, name: str) -> list[Edges]:
        return rivals(name, [20, 19, *[10] * 78], [20, 0, *[12] * 78], generator)

    outcome = try_out(session, "Q6", many, 12, eta=ETA, alpha=0.0, prepare=lambda _: None)
    assert outcome.failed <= most_failures(12, ETA, 1e-10)
    assert outcome.refuted > 0
    assert outcome.settled > 0
