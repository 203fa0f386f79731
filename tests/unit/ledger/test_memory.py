"""The ledger in memory keeps the contract."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest

from dpsql.ledger.memory import Books, MemoryLedger
from dpsql.ledger.model import Ledger
from tests.contract.ledger import LedgerContract, LedgerHarness


class MemoryHarness(LedgerHarness):
    roles = (1, 2)
    roots = (7, 8)

    def __init__(self) -> None:
        self.books = Books()

    def grant(self, role: int, epsilon: str, delta: str = "0.5") -> None:
        self.books.budgets[role] = (Fraction(epsilon), Fraction(delta))

    def cap(self, root: int, epsilon: str | None, delta: str = "0.5") -> None:
        self.books.caps[root] = (None if epsilon is None else Fraction(epsilon), Fraction(delta))

    def session(self, lifetime: timedelta | None = None) -> Ledger:
        return MemoryLedger(self.books, lifetime=lifetime)

    def end(self, session: Ledger) -> None:
        assert isinstance(session, MemoryLedger)
        session.close()

    def spent(self, role: int) -> Fraction:
        return self.books.spent.get(role, (Fraction(0),))[0]

    def lost(self, root: int) -> Fraction:
        return self.books.lost.get(root, (Fraction(0),))[0]

    def misplace(self) -> None:
        self.books.in_place = False


@pytest.fixture
def harness() -> LedgerHarness:
    harness = MemoryHarness()
    for role in harness.roles:
        harness.grant(role, "100")
    for root in harness.roots:
        harness.cap(root, None)
    return harness


class TestMemoryLedger(LedgerContract):
    pass
