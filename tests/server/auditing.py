"""Audits that draw many numbers by one statement, with sessions that run mutations of the code.

As in `tests.server.test_audit`: an event that is likelier than the claim allows refutes the code.

A mutant is missed when its event fails too often with the row or unit, or happens too often
without it.  The numbers of draws are such that both together have a probability below 1e-9 a case
while the first fails at most once in 25 draws, the second happens at most twice in 100 (with epsilon
1; six times with 0.5).  Every event does better: of 480 draws or more all happened or all but one, and none
without the row or unit, where a case does not say other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from scipy.stats import beta as beta_law

from tests.server import asking
from tests.server.test_audit import DELTA, FALSE_ALARM, patched, refuted

EPSILON = 0.5
#: Draws of each number by one statement: so many share the cost of asking.
COPIES = 10
STATEMENTS = 20
#: Of the code as it is: fewer draws than 49 could never refute the claim.
ACQUITTAL = 5


@dataclass(frozen=True)
class Case:
    """Columns of a question, an event about one, and the mutation that the event gives away.

    Each column is drawn by itself, has an equal part of the budget, and must keep to that part.
    """

    columns: tuple[str, ...]
    source: str
    event: Callable[[Sequence[Any]], bool]
    mutant: str
    settings: str = ""
    epsilon: float = EPSILON
    statements: int = STATEMENTS
    acquittal: int = ACQUITTAL
    alarm: float = FALSE_ALARM

    @property
    def question(self) -> str:
        return f"select {', '.join(self.columns)} {self.source}"

    def hits(self, rows: list[Any]) -> int:
        """Count the event in the columns of one answer."""
        return sum(self.event(values) for values in zip(*rows, strict=True))


def copies(aggregate: str, value: str, number: int = COPIES) -> tuple[str, ...]:
    """Write an aggregate of the same rows so often, each time as another question."""
    return tuple(f"{aggregate} filter (where {value} > {-n})" for n in range(1, number + 1))


def first(limit: float) -> Callable[[Sequence[Any]], bool]:
    """Make the event that the only value is at least so large."""
    return lambda values: values[0] >= limit


class Sessions:
    """The analyst's sessions, one for each database and mutation; ``question`` is the first."""

    def __init__(self, question: str, stack: ExitStack) -> None:
        self.question = question
        self.stack = stack
        self.found: dict[tuple[int, str], Any] = {}

    def of(self, database: Any, patch: str) -> Any:
        key = id(database), patch
        if key not in self.found:
            session = patched(database, self.question, patch)
            self.found[key] = self.stack.enter_context(session)
        return self.found[key]

    def ask(self, database: Any, case: Case, patch: str, statements: int) -> int:
        """Return how often the event happens; the analysis is patched as well."""
        session = self.of(database, patch)
        session.execute("reset all; set dp.fresh = on")
        session.execute(
            f"set dp.epsilon = {case.epsilon * len(case.columns)}; set dp.delta = {DELTA}; {case.settings}"
        )
        return sum(case.hits(session.execute(case.question).fetchall()) for _ in range(statements))


def fixtures(relation: str, **kinds: tuple[str, str]) -> tuple[Any, Any]:
    """Make the fixtures ``neighbours``, two databases of a kind, and their ``sessions``.

    A kind is what both databases have and what the second has besides; a test gets every kind that
    it does not choose from.  The first question of a session is about the relation.
    """

    @pytest.fixture(scope="module", params=kinds)
    def neighbours(server: Any, request: Any) -> Any:
        yield from asking.neighbours(server, *kinds[request.param])

    @pytest.fixture(scope="module")
    def sessions(neighbours: Any) -> Iterator[Sessions]:
        with ExitStack() as stack:
            yield Sessions(f"select dp_count(*) from {relation}", stack)

    return neighbours, sessions


def audited(cases: Mapping[str, Case], kind: str) -> Callable[[Any], Any]:
    """Run a test for every case, each on neighbours of one kind."""

    def mark(test: Any) -> Any:
        test = pytest.mark.parametrize("name", cases)(test)
        return pytest.mark.parametrize("neighbours", [kind], indirect=True)(test)

    return mark


def audit(sessions: Sessions, neighbours: tuple[Any, Any], case: Case, *, hidden: bool) -> None:
    """Acquit the code, refute the mutant."""
    without, with_ = neighbours
    for patch, statements in (("", case.acquittal), (case.mutant, case.statements)):
        hits, other = (sessions.ask(one, case, patch, statements) for one in (with_, without))
        draws = statements * len(case.columns)
        if hidden:  # without the row or unit there is no group, whatever the noise
            assert other == 0
            low = beta_law.ppf(case.alarm, hits, draws - hits + 1) if hits else 0.0
            assert (low > DELTA) == bool(patch)
        else:
            assert refuted(hits, other, draws, case.epsilon, DELTA, case.alarm) == bool(patch)
