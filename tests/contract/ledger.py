"""The contract of `dpsql.ledger.model.Ledger`; run on the one in memory and on the real one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from dpsql.errors import BudgetExceeded, LedgerRestored, NoBudget, UndeclaredRelation
from dpsql.ledger.model import Charge, Charged, Hit, Ledger

ONE = Fraction(1)
DELTA = Fraction(1, 10**9)


class LedgerHarness(ABC):
    """How a contract test sets a ledger up: two roles, two roots, any number of sessions."""

    roles: tuple[int, int]
    roots: tuple[int, int]

    @abstractmethod
    def grant(self, role: int, epsilon: str, delta: str = "0.5") -> None: ...
    @abstractmethod
    def cap(self, root: int, epsilon: str | None, delta: str = "0.5") -> None: ...
    @abstractmethod
    def session(self, lifetime: timedelta | None = None) -> Ledger: ...
    @abstractmethod
    def end(self, session: Ledger) -> None:
        """End a session as the death of its backend does."""

    @abstractmethod
    def spent(self, role: int) -> Fraction: ...
    @abstractmethod
    def lost(self, root: int) -> Fraction: ...
    @abstractmethod
    def misplace(self) -> None:
        """Make the ledger look restored."""

    def charge(self, key: bytes = b"q", role: int = 0, roots: tuple[int, ...] = (0,)) -> Charge:
        return Charge(
            role=self.roles[role],
            role_name="alice",
            roots=tuple(self.roots[root] for root in roots),
            epsilon=ONE,
            delta=DELTA,
            mechanism="laplace",
            method="residual",
            label="proved",
            question="select dp_count(*) from t",
            key=key,
            text_key=b"text of " + key,
        )


class LedgerContract:
    """Tests; subclasses provide the fixture ``harness``."""

    def test_a_charge_debits_the_role_and_each_root(self, harness: LedgerHarness) -> None:
        opened = harness.session().open(harness.charge(roots=(1, 0)))
        assert isinstance(opened, Charged)
        assert harness.spent(harness.roles[0]) == ONE
        assert [harness.lost(root) for root in harness.roots] == [ONE, ONE]

    def test_a_root_named_twice_pays_once(self, harness: LedgerHarness) -> None:
        harness.session().open(harness.charge(roots=(0, 0)))
        assert harness.lost(harness.roots[0]) == ONE

    def test_the_same_question_again_is_free_and_equal(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        opened = ledger.open(harness.charge())
        assert isinstance(opened, Charged)
        taken_at = ledger.finish(opened, "the answer\u2713")
        again = harness.session().open(harness.charge())
        assert again == Hit(opened.spend, "the answer\u2713", taken_at)
        assert harness.spent(harness.roles[0]) == ONE

    def test_peek_finds_what_the_role_paid_for(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        assert ledger.peek(harness.roles[0], b"text of q") is None
        opened = ledger.open(harness.charge())
        assert ledger.peek(harness.roles[0], b"text of q") is None
        ledger.finish(opened, "x")
        found = ledger.peek(harness.roles[0], b"text of q")
        assert found is not None
        assert found.payload == "x"
        assert ledger.peek(harness.roles[1], b"text of q") is None

    def test_another_role_pays_for_a_stored_answer_and_roots_do_not(
        self, harness: LedgerHarness
    ) -> None:
        ledger = harness.session()
        opened = ledger.open(harness.charge())
        ledger.finish(opened, "x")
        for _ in range(2):
            hit = ledger.open(harness.charge(role=1))
            assert isinstance(hit, Hit)
            assert hit.payload == "x"
            assert harness.spent(harness.roles[1]) == ONE
            assert harness.lost(harness.roots[0]) == ONE

    def test_a_role_that_cannot_pay_is_not_shown_a_stored_answer(
        self, harness: LedgerHarness
    ) -> None:
        harness.grant(harness.roles[1], "0.5")
        ledger = harness.session()
        ledger.finish(ledger.open(harness.charge()), "x")
        with pytest.raises(BudgetExceeded):
            ledger.open(harness.charge(role=1))

    def test_a_role_without_budget_is_refused(self, harness: LedgerHarness) -> None:
        with pytest.raises(NoBudget):
            harness.session().open(replace(harness.charge(), role=3))

    def test_an_unknown_root_is_refused(self, harness: LedgerHarness) -> None:
        with pytest.raises(UndeclaredRelation):
            harness.session().open(replace(harness.charge(), roots=(10**6,)))
        assert harness.spent(harness.roles[0]) == 0

    def test_a_budget_can_be_spent_to_the_last_digit_and_no_further(
        self, harness: LedgerHarness
    ) -> None:
        third = Fraction(1, 3)
        harness.grant(harness.roles[0], "1.1")
        ledger = harness.session()
        tenth = replace(harness.charge(), epsilon=Fraction(1, 10))
        for i in range(11):
            ledger.open(replace(tenth, key=b"%d" % i))
        assert harness.spent(harness.roles[0]) == Fraction(11, 10)
        for epsilon in (Fraction(1, 10**30), third):
            with pytest.raises(BudgetExceeded) as caught:
                ledger.open(replace(tenth, key=b"more", epsilon=epsilon))
            assert "left are epsilon = 0 " in (caught.value.detail or "")
        assert harness.spent(harness.roles[0]) == Fraction(11, 10)

    def test_a_delta_beyond_the_budget_is_refused(self, harness: LedgerHarness) -> None:
        harness.grant(harness.roles[0], "100", "1e-9")
        ledger = harness.session()
        ledger.open(harness.charge(b"1"))
        with pytest.raises(BudgetExceeded):
            ledger.open(harness.charge(b"2"))

    def test_a_root_cap_binds_all_roles_together_and_tells_no_numbers_of_others(
        self, harness: LedgerHarness
    ) -> None:
        harness.cap(harness.roots[1], "1.5")
        ledger = harness.session()
        ledger.open(harness.charge(b"1", role=0, roots=(1,)))
        with pytest.raises(BudgetExceeded) as caught:
            ledger.open(harness.charge(b"2", role=1, roots=(0, 1)))
        assert "0.5" not in str(caught.value.detail)
        assert harness.spent(harness.roles[1]) == 0
        assert harness.lost(harness.roots[0]) == 0

    def test_a_failed_question_keeps_its_charge_and_is_charged_again(
        self, harness: LedgerHarness
    ) -> None:
        ledger = harness.session()
        ledger.fail(ledger.open(harness.charge()))
        assert harness.spent(harness.roles[0]) == ONE
        assert isinstance(ledger.open(harness.charge()), Charged)
        assert harness.spent(harness.roles[0]) == 2

    def test_an_answer_cannot_be_stored_after_a_failure(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        opened = ledger.open(harness.charge())
        ledger.fail(opened)
        assert ledger.finish(opened, "x") is None
        assert isinstance(ledger.open(harness.charge()), Charged)

    def test_a_question_left_open_by_the_own_session_is_charged_again(
        self, harness: LedgerHarness
    ) -> None:
        ledger = harness.session()
        first = ledger.open(harness.charge())
        second = ledger.open(harness.charge())
        assert isinstance(second, Charged)
        assert second != first
        ledger.finish(second, "second")
        assert ledger.finish(first, "first") is None
        assert harness.session().open(harness.charge()) == ledger.open(harness.charge())

    def test_fresh_pays_again_and_replaces_the_answer(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        ledger.finish(ledger.open(harness.charge()), "old")
        opened = ledger.open(replace(harness.charge(), fresh=True))
        assert isinstance(opened, Charged)
        meanwhile = harness.session().open(harness.charge())
        assert isinstance(meanwhile, Hit)
        assert meanwhile.payload == "old"
        ledger.finish(opened, "new")
        assert harness.spent(harness.roles[0]) == 2
        after = ledger.open(harness.charge())
        assert isinstance(after, Hit)
        assert after.payload == "new"

    def test_an_answer_expires_by_the_clock(self, harness: LedgerHarness) -> None:
        ledger = harness.session(lifetime=timedelta(microseconds=1))
        ledger.finish(ledger.open(harness.charge()), "x")
        assert isinstance(ledger.open(harness.charge()), Charged)

    def test_one_asker_computes_and_others_wait(self, harness: LedgerHarness) -> None:
        computing = harness.session()
        opened = computing.open(harness.charge())
        found: list[Hit | Charged] = []
        waiting = threading.Thread(
            target=lambda: found.append(harness.session().open(harness.charge()))
        )
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        computing.finish(opened, "x")
        waiting.join(5)
        assert isinstance(found[0], Hit)
        assert harness.spent(harness.roles[0]) == ONE

    def test_a_waiter_takes_over_when_the_computing_session_dies(
        self, harness: LedgerHarness
    ) -> None:
        computing = harness.session()
        computing.open(harness.charge())
        found: list[Hit | Charged] = []
        waiting = threading.Thread(
            target=lambda: found.append(harness.session().open(harness.charge()))
        )
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
        harness.end(computing)
        waiting.join(5)
        assert isinstance(found[0], Charged)
        assert harness.spent(harness.roles[0]) == 2

    def test_a_restored_ledger_charges_nothing(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        ledger.finish(ledger.open(harness.charge()), "x")
        harness.misplace()
        with pytest.raises(LedgerRestored):
            ledger.open(harness.charge(b"other"))
        assert ledger.peek(harness.roles[0], b"text of q") is None
