"""What the contract of `dpsql.ledger.model.Ledger` says of budgets that hold for each window."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from fractions import Fraction

import pytest

from dpsql.errors import BudgetExceeded
from dpsql.ledger.model import Charge, Charged, Hit, Ledger
from tests.contract.ledger import LedgerHarness

DAY = timedelta(days=1)
MONTH = timedelta(days=30)


def ask(
    harness: LedgerHarness, ledger: Ledger, epsilon: str | Fraction = "1", **kwargs: Fraction
) -> Charge:
    """Ask a question that nobody asked before; return its charge."""
    key = b"%d" % next(_NUMBERS)
    charge = replace(harness.charge(key), epsilon=Fraction(epsilon), delta=Fraction(0), **kwargs)
    assert isinstance(ledger.open(charge), Charged)
    return charge


_NUMBERS = iter(range(10**9))


def refused(harness: LedgerHarness, ledger: Ledger, epsilon: str = "1") -> str:
    with pytest.raises(BudgetExceeded) as caught:
        ask(harness, ledger, epsilon)
    return f"{caught.value.detail} {caught.value.hint}"


class WindowContract:
    """Tests; subclasses provide the fixture ``harness``."""

    def test_a_window_limits_and_the_next_gives_new_budget(self, harness: LedgerHarness) -> None:
        role, ledger = harness.roles[0], harness.session()
        harness.grant(role, "3", window=MONTH)
        for month in range(3):
            ask(harness, ledger, "2.5")
            refused(harness, ledger, "0.51")
            ask(harness, ledger, "0.5")
            assert harness.spent(role) == 3 * (month + 1)
            harness.advance(MONTH)
        assert harness.lost(harness.roots[0]) == 9

    def test_unused_budget_is_not_carried_over(self, harness: LedgerHarness) -> None:
        harness.grant(harness.roles[0], "3", window=MONTH)
        ledger = harness.session()
        harness.advance(5 * MONTH)
        refused(harness, ledger, "3.01")
        ask(harness, ledger, "3")

    def test_windows_are_counted_from_the_grant_not_from_the_first_question(
        self, harness: LedgerHarness
    ) -> None:
        harness.grant(harness.roles[0], "1", window=MONTH)
        ledger = harness.session()
        harness.advance(29 * DAY)
        ask(harness, ledger)
        refused(harness, ledger)
        harness.advance(DAY)
        ask(harness, ledger)
        harness.advance(29 * DAY)
        refused(harness, ledger)

    def test_a_refusal_names_the_window_and_when_the_next_begins(
        self, harness: LedgerHarness
    ) -> None:
        before = datetime.now(timezone.utc)
        harness.grant(harness.roles[0], "1.5", window=MONTH)
        after = datetime.now(timezone.utc)
        ledger = harness.session()
        ask(harness, ledger)
        said = refused(harness, ledger)
        assert (
            "left are epsilon = 0.5 and delta = 0.5 in the window of 30 days that ends at" in said
        )
        times = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", said)
        assert len(times) == 2
        assert times[0] == times[1]
        end = datetime.strptime(times[0], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=timezone.utc)
        # whole seconds are named
        assert before + MONTH - timedelta(seconds=1) <= end <= after + MONTH
        assert "Ask with at most dp.epsilon =" in said
        ask(harness, ledger, "0.5")
        assert "Wait for the next window, which begins at" in refused(harness, ledger)

    def test_the_caps_of_relations_have_no_windows(self, harness: LedgerHarness) -> None:
        harness.grant(harness.roles[0], "3", window=MONTH)
        harness.cap(harness.roots[0], "4")
        ledger = harness.session()
        ask(harness, ledger, "3")
        harness.advance(MONTH)
        assert "cap" in refused(harness, ledger, "3")
        ask(harness, ledger, "1")
        harness.advance(MONTH)
        assert "cap" in refused(harness, ledger, "0.1")

    def test_zcdp_sums_rho_in_each_window(self, harness: LedgerHarness) -> None:
        role, ledger = harness.roles[0], harness.session()
        limits = harness.grant(role, "2", "1e-6", "zcdp", window=MONTH)
        assert limits.loss is not None
        half = limits.loss / 2
        for _ in range(3):
            ask(harness, ledger, "0.5", rho=half, rho_delta=Fraction(0))
            ask(harness, ledger, "0.5", rho=half, rho_delta=Fraction(0))
            with pytest.raises(BudgetExceeded) as caught:
                ask(harness, ledger, "0.5", rho=Fraction(1, 10**30), rho_delta=Fraction(0))
            assert "left are rho = 0 and delta = 5e-7 in the window" in (caught.value.detail or "")
            harness.advance(MONTH)

    def test_delta_is_limited_in_each_window(self, harness: LedgerHarness) -> None:
        harness.grant(harness.roles[0], "100", "1e-9", window=MONTH)
        ledger = harness.session()
        for n in range(3):
            ledger.open(harness.charge(b"first of %d" % n))
            with pytest.raises(BudgetExceeded):
                ledger.open(harness.charge(b"second of %d" % n))
            harness.advance(MONTH)

    def test_a_question_belongs_to_the_window_in_which_it_was_charged(
        self, harness: LedgerHarness
    ) -> None:
        harness.grant(harness.roles[0], "1", window=MONTH)
        ledger = harness.session()
        opened = ledger.open(harness.charge())
        harness.advance(MONTH)
        assert ledger.finish(opened, "x") is not None
        ask(harness, ledger, "1")
        refused(harness, ledger, "0.01")
        again = ledger.open(harness.charge())
        assert isinstance(again, Hit), "what was paid for in another window stays paid for"
        assert harness.spent(harness.roles[0]) == 2

    def test_granting_again_gives_nothing_back_within_the_window(
        self, harness: LedgerHarness
    ) -> None:
        role, ledger = harness.roles[0], harness.session()
        harness.grant(role, "3", window=MONTH)
        ask(harness, ledger, "3")
        harness.advance(10 * DAY)
        harness.grant(role, "3", window=MONTH)
        refused(harness, ledger, "0.1")
        harness.grant(role, "4", window=MONTH)
        ask(harness, ledger, "1")
        refused(harness, ledger, "0.1")
        harness.advance(20 * DAY)  # the windows stayed where they were
        ask(harness, ledger, "4")

    @pytest.mark.parametrize("length", [DAY, 7 * DAY, 365 * DAY])
    def test_a_change_of_the_length_gives_nothing_back_before_the_running_window_ends(
        self, harness: LedgerHarness, length: timedelta
    ) -> None:
        role, ledger = harness.roles[0], harness.session()
        harness.grant(role, "3", window=MONTH)
        ask(harness, ledger, "3")
        harness.advance(10 * DAY)
        harness.grant(role, "3", window=length)
        for _ in range(19):
            refused(harness, ledger, "0.1")
            harness.advance(DAY)
        refused(harness, ledger, "0.1")
        harness.advance(DAY + length)
        ask(harness, ledger, "3")
        refused(harness, ledger, "0.1")

    def test_revoking_and_granting_gives_nothing_back_within_the_window(
        self, harness: LedgerHarness
    ) -> None:
        role, ledger = harness.roles[0], harness.session()
        harness.grant(role, "3", window=MONTH)
        ask(harness, ledger, "3")
        harness.advance(10 * DAY)
        harness.revoke(role)
        harness.grant(role, "3", window=DAY)
        refused(harness, ledger, "0.1")
        harness.advance(19 * DAY)
        refused(harness, ledger, "0.1")
        harness.advance(2 * DAY)
        ask(harness, ledger, "3")

    def test_the_first_window_counts_what_was_spent_under_a_budget_without_windows(
        self, harness: LedgerHarness
    ) -> None:
        role, ledger = harness.roles[0], harness.session()
        ask(harness, ledger, "2")
        harness.advance(100 * DAY)
        harness.grant(role, "3", window=MONTH)
        refused(harness, ledger, "1.1")
        ask(harness, ledger, "0.5")
        harness.advance(29 * DAY)
        refused(harness, ledger, "0.6")
        harness.advance(DAY)
        ask(harness, ledger, "3")
        refused(harness, ledger, "0.1")

    def test_a_budget_without_windows_counts_all_windows(self, harness: LedgerHarness) -> None:
        role, ledger = harness.roles[0], harness.session()
        harness.grant(role, "3", window=MONTH)
        ask(harness, ledger, "3")
        harness.advance(MONTH)
        ask(harness, ledger, "3")
        harness.grant(role, "7")
        refused(harness, ledger, "1.1")
        ask(harness, ledger, "1")
        harness.grant(role, "3", window=MONTH)
        refused(harness, ledger, "0.1")

    def test_a_clock_that_goes_back_gives_nothing_back(self, harness: LedgerHarness) -> None:
        role, ledger = harness.roles[0], harness.session()
        harness.grant(role, "3", window=MONTH)
        ask(harness, ledger, "3")
        harness.advance(MONTH)
        ask(harness, ledger, "2")
        harness.advance(-MONTH)
        refused(harness, ledger, "1.1")
        harness.advance(-10 * MONTH)
        ask(harness, ledger, "0.5")
        harness.advance(11 * MONTH)
        refused(harness, ledger, "0.6")
        ask(harness, ledger, "0.5")

    def test_a_role_that_sees_a_stored_answer_pays_in_its_window(
        self, harness: LedgerHarness
    ) -> None:
        ledger = harness.session()
        ledger.finish(ledger.open(harness.charge()), "x")
        harness.grant(harness.roles[1], "1", window=MONTH)
        hit = ledger.open(harness.charge(role=1))
        assert isinstance(hit, Hit)
        assert hit.charged
        with pytest.raises(BudgetExceeded):
            ledger.open(harness.charge(b"other", role=1))
        harness.advance(MONTH)
        assert isinstance(ledger.open(harness.charge(b"other", role=1)), Charged)

    def test_concurrent_questions_never_exceed_a_window(self, harness: LedgerHarness) -> None:
        harness.grant(harness.roles[0], "3", window=MONTH)
        for _ in range(3):
            before = harness.spent(harness.roles[0])
            _together(8, lambda: ask(harness, harness.session()))
            assert harness.spent(harness.roles[0]) - before == 3
            harness.advance(MONTH)

    def test_the_outlook_says_what_asking_says_and_changes_nothing(
        self, harness: LedgerHarness
    ) -> None:
        role, ledger = harness.roles[0], harness.session()
        harness.grant(role, "3", window=MONTH)
        harness.cap(harness.roots[0], "4")
        seed = random.SystemRandom().getrandbits(32)
        print(f"seed {seed}")  # noqa: T201
        chance = random.Random(seed)
        for n in range(60):
            charge = replace(
                harness.charge(b"outlook %d" % chance.randrange(max(n, 1))),
                epsilon=Fraction(chance.randrange(1, 12), 4),
                delta=Fraction(0),
                roots=(harness.roots[chance.randrange(2)],),
            )
            before = harness.spent(role)
            outlook = ledger.outlook(charge)
            assert ledger.outlook(charge) == outlook or outlook.refused is not None
            assert harness.spent(role) == before
            assert outlook.account is not None
            assert outlook.account.window == "30 days"
            opened, error = _open(ledger, charge)
            if error is not None:
                assert outlook.refused is not None, f"seed {seed}"
                assert (str(error), error.detail, error.hint) == (
                    str(outlook.refused), outlook.refused.detail, outlook.refused.hint
                )  # fmt: skip
                assert not outlook.stored
            else:
                assert outlook.refused is None, f"seed {seed}"
                assert outlook.stored == isinstance(opened, Hit)
                cost = harness.spent(role) - before
                assert cost == (0 if outlook.stored else charge.epsilon)
                if isinstance(opened, Charged):
                    ledger.finish(opened, "x")
            harness.advance(chance.randrange(0, 20) * DAY)


def _open(ledger: Ledger, charge: Charge) -> tuple[Hit | Charged | None, BudgetExceeded | None]:
    try:
        return ledger.open(charge), None
    except BudgetExceeded as error:
        return None, error


def _together(number: int, act: Callable[[], object]) -> None:
    def run() -> None:
        barrier.wait()
        with suppress(BudgetExceeded):
            act()

    barrier = threading.Barrier(number)
    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
