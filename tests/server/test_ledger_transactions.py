"""No transaction, cancel or termination of the asker undoes a charge."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tests.contract.ledger_backend import books, install
from tests.server.waiting import wait_until


class Bank:
    """A database whose ledger can be asked from a backend."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.root = install(database)

    def ask(self, connection: Any, question: str, seconds: float = 0, fresh: bool = False) -> str:
        row = connection.execute(
            "select probe.ask(%s, %s, %s, %s)", (question, self.root, seconds, fresh)
        ).fetchone()
        return str(row[0])

    def computes(self, connection: Any) -> bool:
        """Whether the session has been charged and computes."""
        return self.shows(connection, "computing")

    def shows(self, connection: Any, name: str) -> bool:
        """Whether the session's service session has this name."""
        named = "select application_name from pg_stat_activity where leader_pid = %s"
        return bool(self.database.sql(named, connection.info.backend_pid) == [(name,)])

    def consistent(self, spent: int) -> None:
        found = books(self.database)
        assert found["spends"] == found["roles"] == spent
        assert found["rooted"] == found["roots"]


class Asking:
    """A question that is asked in the background."""

    def __init__(self, bank: Bank, connection: Any, question: str, seconds: float = 0) -> None:
        self.answers: list[str] = []
        self.errors: list[psycopg.Error] = []
        self._asked = (bank, connection, question, seconds)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        bank, *asked = self._asked
        try:
            self.answers.append(bank.ask(*asked))
        except psycopg.Error as error:
            self.errors.append(error)

    def end(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()


#: Seconds of a question that is not waited for.
LONG = 3600


@pytest.fixture
def bank(database: Any) -> Bank:
    return Bank(database)


def test_rollback_keeps_the_charge_and_the_answer(bank: Bank) -> None:
    alice = bank.database.connect("alice", autocommit=False)
    answer = bank.ask(alice, "q")
    alice.rollback()
    assert bank.ask(alice, "q") == answer
    bank.consistent(1)


def test_rollback_to_a_savepoint_keeps_the_charge(bank: Bank) -> None:
    alice = bank.database.connect("alice", autocommit=False)
    alice.execute("savepoint s")
    answer = bank.ask(alice, "q")
    alice.execute("rollback to s")
    assert bank.ask(alice, "q") == answer
    bank.consistent(1)


def test_an_exception_block_keeps_the_charge(bank: Bank) -> None:
    alice = bank.database.connect("alice")
    notices: list[str] = []
    alice.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    alice.execute(
        f"""
        do $$
        declare answer text;
        begin
            begin
                answer := probe.ask('q', {bank.root});
                raise notice '%', answer;
                raise exception 'undo';
            exception when raise_exception then null;
            end;
        end $$"""
    )
    assert bank.ask(alice, "q") == notices[-1]
    bank.consistent(1)


@pytest.mark.parametrize(
    "mode",
    [
        "read only",
        "isolation level repeatable read",
        "isolation level serializable, read only, deferrable",
    ],
)
def test_any_kind_of_transaction_can_ask(bank: Bank, mode: str) -> None:
    alice = bank.database.connect("alice", autocommit=False)
    alice.execute(f"set transaction {mode}")
    first = bank.ask(alice, "q")
    assert bank.ask(alice, "q") == first
    alice.rollback()
    bank.consistent(1)


def test_cancel_while_computing_keeps_the_charge_and_frees_the_question(bank: Bank) -> None:
    alice = bank.database.connect("alice")
    bank.ask(alice, "warm up")
    asking = Asking(bank, alice, "q", LONG)
    wait_until(lambda: bank.computes(alice))
    bank.database.sql("select pg_cancel_backend(%s)", alice.info.backend_pid)
    asking.end()
    assert [type(error) for error in asking.errors] == [psycopg.errors.QueryCanceled]
    assert books(bank.database)["states"] == ["answered", "failed"]
    bank.ask(alice, "q")
    bank.consistent(3)


def test_cancel_while_waiting_for_another_costs_nothing(bank: Bank) -> None:
    alice, bob = bank.database.connect("alice"), bank.database.connect("bob")
    bank.ask(alice, "warm up")
    computing = Asking(bank, alice, "q", LONG)
    wait_until(lambda: bank.computes(alice))
    waiting = Asking(bank, bob, "q")
    wait_until(lambda: bank.shows(bob, "asking"))
    assert not waiting.answers
    bank.database.sql("select pg_cancel_backend(%s)", bob.info.backend_pid)
    waiting.end()
    assert [type(error) for error in waiting.errors] == [psycopg.errors.QueryCanceled]
    assert books(bank.database)["states"] == ["answered", "charged"]
    bank.database.sql("select pg_cancel_backend(%s)", alice.info.backend_pid)
    computing.end()
    bank.consistent(2)


def test_cancel_while_waiting_for_the_ledger_costs_nothing(bank: Bank) -> None:
    alice = bank.database.connect("alice")
    bank.ask(alice, "warm up")
    blocker = bank.database.connect(autocommit=False)
    blocker.execute("lock table dp.role_total in exclusive mode")
    waiting = Asking(bank, alice, "q")
    wait_until(
        lambda: bank.database.sql(
            "select true from pg_stat_activity"
            " where application_name = 'asking' and wait_event_type = 'Lock'"
        )
    )
    bank.database.sql("select pg_cancel_backend(%s)", alice.info.backend_pid)
    waiting.end()
    assert [type(error) for error in waiting.errors] == [psycopg.errors.QueryCanceled]
    blocker.rollback()
    bank.consistent(1)


def test_terminated_asker_keeps_the_charge_and_a_waiter_pays_anew(bank: Bank) -> None:
    alice, bob = bank.database.connect("alice"), bank.database.connect("bob")
    computing = Asking(bank, alice, "q", LONG)
    wait_until(lambda: bank.computes(alice))
    waiting = Asking(bank, bob, "q")
    bank.database.sql("select pg_terminate_backend(%s)", alice.info.backend_pid)
    computing.end()
    waiting.end()
    assert computing.errors
    assert len(waiting.answers) == 1
    bank.consistent(2)


def test_an_uncommitted_grant_is_not_seen_and_does_not_block(bank: Bank) -> None:
    bank.database.sql("grant dp_owner to mallory")
    mallory = bank.database.connect("mallory", autocommit=False)
    mallory.execute("select dp.grant_budget('mallory', epsilon => 5)")
    # to wait for a lock would end with another error: lock_timeout of service sessions
    with pytest.raises(psycopg.Error) as caught:
        bank.ask(mallory, "q")
    assert caught.value.sqlstate == "PD002"
    assert "committed" in (caught.value.diag.message_detail or "")
    mallory.rollback()
    mallory.execute("select dp.grant_budget('mallory', epsilon => 5)")
    mallory.commit()
    bank.ask(mallory, "q")
    mallory.commit()
    bank.consistent(1)
    bank.database.sql("revoke dp_owner, dp_analyst from mallory")


def test_an_open_declaration_of_the_same_relation_does_not_block(bank: Bank) -> None:
    admin = bank.database.connect(autocommit=False)
    admin.execute("select dp.grant_budget('alice', 50)")
    admin.execute("select dp.set_root_cap('secret', 10, 0.1)")
    admin.execute("select dp.record_loss('alice', 'secret', 1, 0, 'published by mistake')")
    alice = bank.database.connect("alice")
    # to wait for a lock would end with an error: lock_timeout of service sessions
    bank.ask(alice, "q")
    admin.rollback()
    bank.consistent(1)


def test_set_role_behind_a_pooler_decides_who_pays(bank: Bank) -> None:
    bank.database.sql("grant alice, bob to mallory")
    pooled = bank.database.connect("mallory")
    with pytest.raises(psycopg.Error) as caught:
        bank.ask(pooled, "q")
    assert caught.value.sqlstate == "PD002"
    pooled.execute("set role alice")
    bank.ask(pooled, "q1")
    pooled.execute("set role bob")
    bank.ask(pooled, "q2")
    bank.ask(pooled, "q3")
    rows = bank.database.sql(
        "select role::text, epsilon_spent from dp.budgets where relation is null"
    )
    assert dict(rows) == {"alice": 1, "bob": 2}
    bank.database.sql("revoke alice, bob from mallory")


def test_exactly_one_wins_the_last_of_the_budget(bank: Bank) -> None:
    bank.database.sql("select dp.grant_budget('alice', 1)")
    connections = [bank.database.connect("alice") for _ in range(6)]
    barrier = threading.Barrier(len(connections))
    outcomes: list[str] = []

    def race(number: int) -> None:
        barrier.wait()
        try:
            bank.ask(connections[number], f"q{number}")
            outcomes.append("won")
        except psycopg.Error as error:
            outcomes.append(str(error.sqlstate))

    threads = [threading.Thread(target=race, args=(i,)) for i in range(len(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["PD001"] * 5 + ["won"]
    bank.consistent(1)


def test_recorded_loss_counts_from_commit_on(bank: Bank) -> None:
    bank.database.sql("select dp.grant_budget('alice', 2)")
    bank.database.sql("select dp.record_loss('alice', null, 1.5, 0, 'answers on paper')")
    alice = bank.database.connect("alice")
    with pytest.raises(psycopg.Error) as caught:
        bank.ask(alice, "q")
    assert caught.value.sqlstate == "PD001"
    assert "epsilon = 0.5" in caught.value.diag.message_detail
    rows = alice.execute("select epsilon_spent, epsilon_remaining from dp.budgets").fetchall()
    assert rows == [(1.5, 0.5)]
    assert alice.execute("select state, question from dp.ledger").fetchall() == [
        ("recorded", "answers on paper")
    ]


def test_revoked_budget_refuses_even_stored_answers_and_keeps_losses(bank: Bank) -> None:
    alice = bank.database.connect("alice")
    bank.ask(alice, "q")
    bank.database.sql("select dp.revoke_budget('alice')")
    with pytest.raises(psycopg.Error) as caught:
        bank.ask(alice, "q")
    assert caught.value.sqlstate == "PD002"
    bank.database.sql("select dp.grant_budget('alice', 1)")
    with pytest.raises(psycopg.Error):
        bank.ask(alice, "other")


def test_owners_see_a_restored_ledger_and_can_acknowledge_it(bank: Bank) -> None:
    alice = bank.database.connect("alice")
    bank.ask(alice, "q")
    bank.database.sql("update dp.ledger_incarnation set token = gen_random_uuid()")
    for question in ("q", "other"):
        with pytest.raises(psycopg.Error) as caught:
            bank.ask(alice, question)
        assert caught.value.sqlstate == "PD051"
        assert "acknowledge_restore" in caught.value.diag.message_hint
    assert bank.database.sql("select status from dp.ledger_status") == [("restored",)]
    with pytest.raises(psycopg.Error) as caught:
        bank.database.sql("select dp.grant_budget('alice', 100)")
    assert caught.value.sqlstate == "PD051"
    bank.database.sql("select dp.acknowledge_restore('backup of Tuesday')")
    assert bank.database.sql("select status from dp.ledger_status") == [("ok",)]
    bank.ask(alice, "other")
    bank.consistent(2)
