"""Contract tests for charges without an answer; they run on both ledgers."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from dpsql.errors import DpsqlError, TooManyFailures
from dpsql.ledger.model import Charge, Charged, Hit, Ledger
from tests.contract.ledger import MANY, ONE, LedgerHarness

LIMIT = 3


def ask(harness: LedgerHarness, key: bytes = b"more", role: int = 0, root: int = 0) -> Charge:
    return harness.charge(key, role, (root,))


def fail(ledger: Ledger, charge: Charge, *, counts: bool = True) -> None:
    opened = ledger.open(charge)
    assert isinstance(opened, Charged)
    ledger.fail(opened, counts=counts)


def fail_often(harness: LedgerHarness, number: int = LIMIT, role: int = 0, root: int = 0) -> None:
    ledger = harness.session()
    for i in range(number):
        fail(ledger, ask(harness, b"failing %d" % i, role, root))


class FailureContract:
    """Tests; subclasses provide the fixture ``harness``."""

    @pytest.fixture(autouse=True)
    def limits(self, harness: LedgerHarness) -> None:
        for root in harness.roots:
            harness.allow(root, LIMIT)

    def test_after_as_many_failures_as_may_nothing_is_charged(self, harness: LedgerHarness) -> None:
        fail_often(harness, LIMIT - 1)
        ledger = harness.session()
        ledger.finish(ledger.open(ask(harness, b"answered")), "x")
        fail_often(harness, 1)
        with pytest.raises(TooManyFailures) as caught:
            ledger.open(ask(harness))
        assert "SELECT dp.resume('alice'" in str(caught.value.hint)
        assert harness.spent(harness.roles[0]) == LIMIT + 1

    def test_other_roles_and_other_roots_go_on(self, harness: LedgerHarness) -> None:
        fail_often(harness)
        ledger = harness.session()
        for charge in (ask(harness, b"1", role=1), ask(harness, b"2", root=1)):
            ledger.finish(ledger.open(charge), "x")
        with pytest.raises(TooManyFailures):
            ledger.open(harness.charge(b"both", 0, (1, 0)))

    def test_a_failure_counts_for_each_root(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        for i in range(LIMIT):
            fail(ledger, harness.charge(b"%d" % i, 0, (0, 1)))
        for root in (0, 1):
            with pytest.raises(TooManyFailures):
                ledger.open(ask(harness, root=root))
        harness.resume(harness.roles[0], harness.roots[1])
        assert isinstance(ledger.open(ask(harness, root=1)), Charged)
        with pytest.raises(TooManyFailures):
            ledger.open(ask(harness, root=0))

    def test_what_the_asker_or_time_ended_does_not_count(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        for i in range(3 * LIMIT):
            fail(ledger, ask(harness, b"%d" % i), counts=False)
        assert isinstance(ledger.open(ask(harness)), Charged)

    def test_an_answer_does_not_count(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        for i in range(3 * LIMIT):
            ledger.finish(ledger.open(ask(harness, b"%d" % i)), "x")

    def test_who_dies_while_computing_has_failed(self, harness: LedgerHarness) -> None:
        for i in range(LIMIT):
            dying = harness.session()
            assert isinstance(dying.open(ask(harness, b"%d" % i)), Charged)
            harness.end(dying)
        ledger = harness.session()
        # the process of a connection that was closed ends a moment later
        with suppress(TooManyFailures):
            for i in range(MANY):
                ledger.finish(ledger.open(ask(harness, b"again %d" % i)), "x")
        with pytest.raises(TooManyFailures):
            ledger.open(ask(harness))

    def test_what_the_own_session_left_open_has_failed(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        for i in range(LIMIT):
            ledger.open(ask(harness, b"%d" % i))
        with pytest.raises(TooManyFailures):
            ledger.open(ask(harness))

    def test_stored_answers_are_told_as_before(self, harness: LedgerHarness) -> None:
        ledger = harness.session()
        ledger.finish(ledger.open(ask(harness, b"mine")), "mine")
        ledger.finish(ledger.open(ask(harness, b"theirs", role=1)), "theirs")
        fail_often(harness)
        assert ledger.peek(harness.roles[0], b"text of mine") is not None
        for key in (b"mine", b"theirs"):
            assert isinstance(ledger.open(ask(harness, key)), Hit)
        with pytest.raises(TooManyFailures):
            ledger.open(replace(ask(harness, b"mine"), fresh=True))

    def test_an_owner_resumes_and_the_count_begins_anew(self, harness: LedgerHarness) -> None:
        fail_often(harness)
        fail_often(harness, role=1)
        harness.resume(harness.roles[0], harness.roots[0])
        with pytest.raises(TooManyFailures):
            harness.session().open(ask(harness, role=1))
        fail_often(harness, LIMIT - 1)
        ledger = harness.session()
        ledger.finish(ledger.open(ask(harness)), "x")
        fail_often(harness, 1)
        with pytest.raises(TooManyFailures):
            ledger.open(ask(harness, b"again"))
        assert harness.spent(harness.roles[0]) == 2 * LIMIT * ONE + 1

    def test_what_is_open_when_an_owner_resumes_still_counts(self, harness: LedgerHarness) -> None:
        sessions = [harness.session() for _ in range(LIMIT)]
        opened = [s.open(ask(harness, b"%d" % i)) for i, s in enumerate(sessions)]
        harness.resume(None, harness.roots[0])
        for session, charged in zip(sessions, opened, strict=True):
            assert isinstance(charged, Charged)
            session.fail(charged)
        with pytest.raises(TooManyFailures):
            sessions[0].open(ask(harness))

    def test_a_limit_for_all_roles_together(self, harness: LedgerHarness) -> None:
        harness.allow(harness.roots[0], LIMIT, in_all=4)
        fail_often(harness, 2)
        fail_often(harness, 2, role=1)
        for role in (0, 1):
            with pytest.raises(TooManyFailures) as caught:
                harness.session().open(ask(harness, role=role))
            assert "SELECT dp.resume(relation => " in str(caught.value.hint)
        harness.resume(harness.roles[1], harness.roots[0])
        assert isinstance(harness.session().open(ask(harness)), Charged)

    def test_the_outlook_tells_of_failures_what_a_charge_would(
        self, harness: LedgerHarness
    ) -> None:
        ledger = harness.session()
        fail_often(harness, LIMIT - 1)
        assert ledger.outlook(ask(harness)).refused is None
        fail_often(harness, 1)
        outlook = ledger.outlook(ask(harness))
        assert isinstance(outlook.refused, TooManyFailures)
        assert (outlook.by, outlook.stored) == ("role", False)
        harness.allow(harness.roots[0], MANY, in_all=LIMIT)
        assert ledger.outlook(ask(harness)).by == "relation"

    def test_sessions_at_once_have_no_more_failures_than_may_be(
        self, harness: LedgerHarness
    ) -> None:
        """After the first failure, a charge waits if open questions and failures reach the limit."""
        fail_often(harness, 1)
        sessions = [harness.session() for _ in range(LIMIT - 1)]
        opened = [s.open(ask(harness, b"%d" % i)) for i, s in enumerate(sessions)]
        outcome: list[object] = []

        def wait() -> None:
            ledger = harness.session()
            try:
                outcome.append(ledger.open(ask(harness, b"waits")))
            except DpsqlError as error:
                outcome.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        for session, charged in zip(sessions, opened, strict=True):
            assert isinstance(charged, Charged)
            session.fail(charged)
        waiting.join(120)
        assert isinstance(outcome[0], TooManyFailures)
        assert harness.spent(harness.roles[0]) == LIMIT

    def test_who_waits_goes_on_when_others_are_answered(self, harness: LedgerHarness) -> None:
        fail_often(harness, LIMIT - 1)
        computing = harness.session()
        opened = computing.open(ask(harness, b"first"))
        assert isinstance(opened, Charged)
        outcome: list[object] = []
        waiting = threading.Thread(
            target=lambda: outcome.append(harness.session().open(ask(harness, b"waits")))
        )
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        computing.finish(opened, "x")
        waiting.join(120)
        assert isinstance(outcome[0], Charged)

    def test_many_sessions_that_fail_at_once_fail_no_more_often_than_were_open(
        self, harness: LedgerHarness
    ) -> None:
        number = 8
        start = threading.Barrier(number)

        def run(i: int) -> None:
            ledger = harness.session()
            start.wait(60)
            for j in range(LIMIT):
                with suppress(TooManyFailures):
                    fail(ledger, ask(harness, b"%d %d" % (i, j)))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert LIMIT <= harness.spent(harness.roles[0]) <= number
        with pytest.raises(TooManyFailures):
            harness.session().open(ask(harness))
