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
from tests.contract.memory_ledger import Limits

ONE = Fraction(1)
DELTA = Fraction(1, 10**9)
#: Failures that no test reaches which is not about them.
MANY = 1000


class LedgerHarness(ABC):
    """How a contract test sets a ledger up: two roles, two roots, any number of sessions."""

    roles: tuple[int, int]
    roots: tuple[int, int]

    @abstractmethod
    def grant(
        self,
        role: int,
        epsilon: str,
        delta: str = "0.5",
        composition: str = "basic",
        window: timedelta | None = None,
    ) -> Limits:
        """Grant a budget and return what the account may hold."""

    @abstractmethod
    def revoke(self, role: int) -> None: ...
    @abstractmethod
    def advance(self, time: timedelta) -> None:
        """Let so much time pass for windows of whole days, or go back."""

    @abstractmethod
    def cap(
        self, root: int, epsilon: str | None, delta: str = "0.5", composition: str = "basic"
    ) -> Limits: ...
    @abstractmethod
    def keep(self, root: int, lifetime: timedelta | None) -> None:
        """Set how long answers over a root are stored."""

    @abstractmethod
    def allow(self, root: int, failures: int, in_all: int | None = None) -> None:
        """Set how many questions over a root may fail; at first they are many."""

    @abstractmethod
    def resume(self, role: int | None, root: int) -> None:
        """Let the failures of a role, or of all, over a root count no more."""

    @abstractmethod
    def session(self) -> Ledger: ...
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
        for first in (True, False):
            hit = ledger.open(harness.charge(role=1))
            assert isinstance(hit, Hit)
            assert (hit.payload, hit.charged) == ("x", first)
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

    def test_fresh_leaves_others_what_they_paid_for(self, harness: LedgerHarness) -> None:
        alice, bob = harness.session(), harness.session()
        alice.finish(alice.open(harness.charge()), "first")
        assert bob.open(harness.charge(role=1)).charged
        for payload in ("alice's", "alice's next"):
            opened = alice.open(replace(harness.charge(), fresh=True))
            assert isinstance(opened, Charged)
            assert bob.open(harness.charge(role=1)).payload == "first"
            assert alice.finish(opened, payload) is not None
            for ledger, role, expected in ((bob, 1, "first"), (alice, 0, payload)):
                hit = ledger.open(harness.charge(role=role))
                assert (hit.payload, hit.charged) == (expected, False)
                peeked = ledger.peek(harness.roles[role], b"text of q")
                assert peeked is not None
                assert peeked.payload == expected
                assert ledger.outlook(harness.charge(role=role)).stored
        assert [harness.spent(role) for role in harness.roles[:2]] == [3, 1]
        opened = bob.open(replace(harness.charge(role=1), fresh=True))
        assert isinstance(opened, Charged)
        bob.finish(opened, "bob's")
        assert bob.open(harness.charge(role=1)).payload == "bob's"
        assert alice.open(harness.charge()).payload == "alice's next"

    def test_fresh_leaves_others_what_they_pay_for_meanwhile(self, harness: LedgerHarness) -> None:
        alice, bob = harness.session(), harness.session()
        alice.finish(alice.open(harness.charge()), "first")
        opened = alice.open(replace(harness.charge(), fresh=True))
        assert bob.open(harness.charge(role=1)).payload == "first"
        assert alice.finish(opened, "alice's") is not None
        for ledger, role, expected in ((bob, 1, "first"), (alice, 0, "alice's")):
            hit = ledger.open(harness.charge(role=role))
            assert (hit.payload, hit.charged) == (expected, False)
        assert [harness.spent(role) for role in harness.roles[:2]] == [2, 1]

    def test_fresh_leaves_others_what_they_compute(self, harness: LedgerHarness) -> None:
        alice, bob = harness.session(), harness.session()
        computed = bob.open(harness.charge(role=1))
        alices = alice.open(replace(harness.charge(), fresh=True))
        assert isinstance(alices, Charged)
        alice.finish(alices, "alice's")
        assert bob.finish(computed, "bob's") is not None
        assert bob.open(harness.charge(role=1)).payload == "bob's"
        assert alice.open(harness.charge()).payload == "alice's"
        assert [harness.spent(role) for role in harness.roles[:2]] == [1, 1]

    def test_the_newer_of_two_answers_is_shown(self, harness: LedgerHarness) -> None:
        alice, bob = harness.session(), harness.session()
        computed = bob.open(harness.charge(role=1))
        alice.finish(alice.open(replace(harness.charge(), fresh=True)), "alice's own")
        bob.fail(computed)
        alice.finish(alice.open(replace(harness.charge(), fresh=True)), "alice's next")
        hit = alice.open(harness.charge())
        assert (hit.payload, hit.charged) == ("alice's next", False)

    def test_an_answer_expires_by_the_clock(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        harness.keep(harness.roots[1], timedelta(hours=1))
        taken_at = ledger.finish(ledger.open(harness.charge(roots=(0, 1))), "x")
        assert isinstance(ledger.open(harness.charge(roots=(0, 1))), Hit)
        harness.keep(harness.roots[0], timedelta(microseconds=1))
        assert ledger.peek(harness.roles[0], b"text of q") is None
        opened = ledger.open(harness.charge(roots=(0, 1)))
        assert isinstance(opened, Charged)
        harness.keep(harness.roots[0], None)
        again = ledger.finish(opened, "y")
        assert taken_at is not None
        assert again is not None
        assert again > taken_at
        assert ledger.open(harness.charge(roots=(0, 1))) == Hit(opened.spend, "y", again)

    def test_purge_deletes_expired_answers_only_and_gives_nothing_back(
        self, harness: LedgerHarness
    ) -> None:
        ledger = harness.session()
        ledger.finish(ledger.open(harness.charge(b"old", roots=(0,))), "old")
        ledger.finish(ledger.open(harness.charge(b"new", roots=(1,))), "new")
        assert ledger.purge() == 0
        harness.keep(harness.roots[0], timedelta(microseconds=1))
        assert ledger.purge() == 1
        assert ledger.purge() == 0
        harness.keep(harness.roots[0], None)
        assert harness.spent(harness.roles[0]) == 2
        assert harness.lost(harness.roots[0]) == 1
        assert isinstance(ledger.open(harness.charge(b"new", roots=(1,))), Hit)
        assert isinstance(ledger.open(harness.charge(b"old", roots=(0,))), Charged)
        assert harness.spent(harness.roles[0]) == 3

    def test_purge_leaves_a_question_to_whoever_computes_it(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        ledger.finish(ledger.open(harness.charge()), "old")
        opened = ledger.open(replace(harness.charge(), fresh=True))
        harness.keep(harness.roots[0], timedelta(microseconds=1))
        assert harness.session().purge() == 1
        harness.keep(harness.roots[0], None)
        assert ledger.finish(opened, "new") is not None
        hit = ledger.open(harness.charge())
        assert isinstance(hit, Hit)
        assert hit.payload == "new"

    def test_zcdp_sums_rho_and_stops_at_its_limit(self, harness: LedgerHarness) -> None:
        limits = harness.grant(harness.roles[0], "2", "1e-6", "zcdp")
        assert limits.loss is not None
        ledger = harness.session()
        rho = limits.loss / 10
        many = replace(harness.charge(), epsilon=Fraction(1, 2), delta=Fraction(0), rho=rho)
        for i in range(10):
            ledger.open(replace(many, key=b"%d" % i, rho_delta=Fraction(0)))
        assert harness.spent(harness.roles[0]) == 5  # in epsilon, more than basic would allow
        tiny = replace(many, key=b"more", rho=Fraction(1, 10**30), rho_delta=Fraction(0))
        with pytest.raises(BudgetExceeded) as caught:
            ledger.open(tiny)
        assert "left are rho = 0 " in (caught.value.detail or "")
        assert harness.spent(harness.roles[0]) == 5

    def test_zcdp_keeps_half_of_delta_for_the_conversion(self, harness: LedgerHarness) -> None:
        harness.grant(harness.roles[0], "10", "1e-6", "zcdp")
        ledger = harness.session()
        half = Fraction(1, 2 * 10**6)
        ledger.open(replace(harness.charge(b"1"), delta=half))
        assert isinstance(ledger.open(replace(harness.charge(b"2"), delta=Fraction(0))), Charged)
        with pytest.raises(BudgetExceeded) as caught:
            ledger.open(harness.charge(b"3"))
        assert "delta = 0." in (caught.value.detail or "")

    def test_zcdp_prices_a_mechanism_without_rho_by_its_epsilon(
        self, harness: LedgerHarness
    ) -> None:
        limits = harness.grant(harness.roles[0], "4", "1e-6", "zcdp")
        assert limits.loss is not None
        ledger = harness.session()
        plain = replace(harness.charge(), epsilon=Fraction(3, 10), delta=Fraction(0))
        fits = int(limits.loss / Fraction(9, 200))
        for i in range(fits):
            ledger.open(replace(plain, key=b"%d" % i))
        with pytest.raises(BudgetExceeded) as caught:
            ledger.open(replace(plain, key=b"more"))
        assert "costs rho = 0.045 " in (caught.value.detail or "")
        large = replace(plain, key=b"large", epsilon=Fraction(50))
        with pytest.raises(BudgetExceeded, match="exceeded") as caught:
            ledger.open(large)
        assert "costs rho = 50 " in (caught.value.detail or "")

    def test_zcdp_limits_a_root_for_all_roles_together(self, harness: LedgerHarness) -> None:
        limits = harness.cap(harness.roots[1], "2", "1e-6", "zcdp")
        assert limits.loss is not None
        ledger = harness.session()
        most = replace(harness.charge(b"1", roots=(1,)), rho=limits.loss, rho_delta=Fraction(0))
        ledger.open(most)
        with pytest.raises(BudgetExceeded):
            ledger.open(
                replace(
                    harness.charge(b"2", role=1, roots=(0, 1)),
                    rho=Fraction(1, 10**20),
                    rho_delta=Fraction(0),
                )
            )
        assert harness.spent(harness.roles[1]) == 0

    def test_a_change_of_composition_prices_the_whole_history(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        small = replace(harness.charge(), epsilon=Fraction(1, 20), delta=Fraction(0))
        for i in range(60):
            ledger.open(replace(small, key=b"%d" % i))
        harness.grant(harness.roles[0], "2.9", "1e-6")
        with pytest.raises(BudgetExceeded):  # 61 times 0.05 is more than 2.9
            ledger.open(replace(small, key=b"more"))
        harness.grant(harness.roles[0], "2.9", "1e-6", "zcdp")
        ledger.open(replace(small, key=b"more"))  # 61 times 0.00125 is less than 0.13
        harness.grant(harness.roles[0], "3.05", "1e-6", "basic")
        with pytest.raises(BudgetExceeded):
            ledger.open(replace(small, key=b"yet more"))

    def test_a_stored_answer_costs_a_new_role_its_rho(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        asked = replace(harness.charge(), rho=Fraction(1, 8), rho_delta=Fraction(0))
        ledger.finish(ledger.open(asked), "x")
        limits = harness.grant(harness.roles[1], "1", "1e-6", "zcdp")
        assert limits.loss is not None
        assert limits.loss < Fraction(1, 8)
        with pytest.raises(BudgetExceeded):
            ledger.open(replace(asked, role=harness.roles[1]))
        harness.grant(harness.roles[1], "4", "1e-6", "zcdp")
        hit = ledger.open(replace(asked, role=harness.roles[1]))
        assert isinstance(hit, Hit)
        assert hit.charged

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
        waiting.join(120)
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
        waiting.join(120)
        assert isinstance(found[0], Charged)
        assert harness.spent(harness.roles[0]) == 2

    def test_a_restored_ledger_charges_nothing(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        ledger.finish(ledger.open(harness.charge()), "x")
        harness.misplace()
        with pytest.raises(LedgerRestored):
            ledger.open(harness.charge(b"other"))
        assert ledger.peek(harness.roles[0], b"text of q") is None
