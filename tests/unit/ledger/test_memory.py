"""The ledger in memory keeps the contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from dpsql.ledger.model import Ledger
from tests.contract.conversion import rho_for
from tests.contract.failures import FailureContract
from tests.contract.ledger import MANY, LedgerContract, LedgerHarness
from tests.contract.memory_ledger import Books, Limits, MemoryLedger, Spent
from tests.contract.windows import WindowContract


class MemoryHarness(LedgerHarness):
    roles = (1, 2)
    roots = (7, 8)

    def __init__(self) -> None:
        self.books = Books()

    def grant(
        self,
        role: int,
        epsilon: str,
        delta: str = "0.5",
        composition: str = "basic",
        window: timedelta | None = None,
    ) -> Limits:
        limits = _limits(epsilon, delta, composition)
        if window is not None:
            before = self.books.budgets.get(role)
            same = before is not None and before.window == window
            anchor = before.anchor if before and same else self.books.now()
            limits = replace(limits, window=window, anchor=anchor)
        self.books.budgets[role] = limits
        return self.books.budgets[role]

    def revoke(self, role: int) -> None:
        del self.books.budgets[role]

    def advance(self, time: timedelta) -> None:
        self.books.late += time

    def cap(
        self, root: int, epsilon: str | None, delta: str = "0.5", composition: str = "basic"
    ) -> Limits:
        self.books.caps[root] = _limits(epsilon, delta, composition)
        return self.books.caps[root]

    def keep(self, root: int, lifetime: timedelta | None) -> None:
        if lifetime is None:
            del self.books.lifetimes[root]
        else:
            self.books.lifetimes[root] = lifetime

    def allow(self, root: int, failures: int, in_all: int | None = None) -> None:
        self.books.failure_limits[root] = (failures, in_all)

    def resume(self, role: int | None, root: int) -> None:
        self.books.resume(role, root)

    def session(self) -> Ledger:
        return MemoryLedger(self.books)

    def end(self, session: Ledger) -> None:
        assert isinstance(session, MemoryLedger)
        session.close()

    def spent(self, role: int) -> Fraction:
        return self.books.spent.get(role, Spent()).epsilon

    def lost(self, root: int) -> Fraction:
        return self.books.lost.get(root, Spent()).epsilon

    def misplace(self) -> None:
        self.books.in_place = False


def _limits(epsilon: str | None, delta: str, composition: str) -> Limits:
    if epsilon is None or composition == "basic":
        return Limits(None if epsilon is None else Fraction(epsilon), Fraction(delta))
    return Limits(rho_for(Fraction(epsilon), Fraction(delta) / 2), Fraction(delta) / 2, "zcdp")


@pytest.fixture
def harness() -> LedgerHarness:
    harness = MemoryHarness()
    for role in harness.roles:
        harness.grant(role, "100")
    for root in harness.roots:
        harness.cap(root, None)
        harness.allow(root, MANY)
    return harness


class TestMemoryLedger(LedgerContract):
    pass


class TestFailuresInMemory(FailureContract):
    pass


class TestMemoryWindows(WindowContract):
    pass
