"""An answer that was computed and cannot be stored is no failure, and keeps nobody waiting (docs/ledger.md)."""

from __future__ import annotations

from typing import Any

import pytest

from dpsql.errors import LedgerUnavailable, TooManyFailures
from dpsql.ledger.model import Charged, Hit
from dpsql.ledger.store import LedgerStore
from dpsql.ledger.transactions import StatementFailed
from tests.contract.ledger_transactions import Connection
from tests.server.in_service import everywhere
from tests.server.test_failures import CLIENTS
from tests.server.test_ledger_contract import ServerHarness, harness

__all__ = ["harness"]

#: Every statement that stores an answer, or gives a charge up, is refused in a session.
REFUSING = """
from dpsql.ledger.transactions import StatementFailed
from dpsql.server.own_transactions import OwnTransactions
def refusing(run):
    def call(self, name, *rest):
        if name in ("finish", "fail"):
            raise StatementFailed("55P03")
        return run(self, name, *rest)
    return call
OwnTransactions.call = refusing(OwnTransactions.call)
"""
RELEASE = "select dp.release('r{}', 'select c_kind, dp_count(*) from client group by 1')"


@pytest.fixture
def strict(harness: ServerHarness) -> ServerHarness:
    """One failure refuses a role."""
    for root in harness.roots:
        harness.allow(root, 1)
    return harness


def hurried(harness: ServerHarness) -> LedgerStore:
    return harness.session(lock_timeout="50ms")


def charged(store: LedgerStore, charge: Any) -> Charged:
    opened = store.open(charge)
    assert isinstance(opened, Charged)
    return opened


def blocked(harness: ServerHarness, table: str) -> Any:
    blocker = harness.database.connect(autocommit=False)
    blocker.execute(f"lock table {table} in access exclusive mode")
    return blocker


def states(harness: ServerHarness) -> list[tuple[str]]:
    return [tuple(r) for r in harness.admin.execute("select state from dp.spend order by id")]


@pytest.mark.parametrize("table", ["dp.answer", "dp.failure", "dp.spend"])
def test_who_keeps_an_answer_from_being_stored_makes_no_failure(
    strict: ServerHarness, table: str
) -> None:
    store = hurried(strict)
    opened = charged(store, strict.charge())
    blocker = blocked(strict, table)
    with pytest.raises(LedgerUnavailable):
        store.finish(opened, "x")
    blocker.close()
    store.finish(charged(store, strict.charge(b"other")), "x")
    assert strict.admin.execute("select count(*) from dp.failure").fetchone() == (0,)


def test_a_question_whose_answer_was_not_stored_is_not_held(strict: ServerHarness) -> None:
    """The asker's session stays, and does nothing."""
    store = hurried(strict)
    opened = charged(store, strict.charge())
    blocker = blocked(strict, "dp.answer")
    with pytest.raises(LedgerUnavailable):
        store.finish(opened, "x")
    blocker.close()
    assert states(strict) == [("answered",)]
    charged(hurried(strict), strict.charge(role=1))


def test_a_cancel_that_cannot_be_noted_is_no_failure(strict: ServerHarness) -> None:
    store = hurried(strict)
    opened = charged(store, strict.charge())
    blocker = blocked(strict, "dp.answer")
    store.fail(opened, counts=False)
    blocker.close()
    assert states(strict) == [("failed",)]
    charged(store, strict.charge(b"other"))


def test_a_failure_that_cannot_be_noted_counts(strict: ServerHarness) -> None:
    store = hurried(strict)
    opened = charged(store, strict.charge())
    blocker = blocked(strict, "dp.answer")
    store.fail(opened)
    blocker.close()
    with pytest.raises(TooManyFailures):
        store.open(strict.charge(b"other"))


def test_an_answer_is_stored_at_the_second_try(
    strict: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run, failed = hurried(strict), Connection.call, []

    def failing(self: Connection, name: str, *rest: Any) -> Any:
        if name == "finish" and not failed:
            failed.append(name)
            raise StatementFailed("55P03")
        return run(self, name, *rest)

    monkeypatch.setattr(Connection, "call", failing)
    assert store.finish(charged(store, strict.charge()), "x") is not None
    assert failed
    assert isinstance(hurried(strict).open(strict.charge(role=1)), Hit)


def test_the_owner_is_shown_what_refuses(strict: ServerHarness) -> None:
    """A charge that its session abandoned counts, while the session lives."""
    store = hurried(strict)
    charged(store, strict.charge())
    with pytest.raises(TooManyFailures):
        store.open(strict.charge(b"other"))
    shown = "select failures, stopped from dp.failures where role is not null"
    assert strict.admin.execute(shown).fetchall() == [(1, True)]


@pytest.mark.parametrize("statement", [CLIENTS, RELEASE])
def test_answered_questions_never_stop_a_role(shop: Any, statement: str) -> None:
    shop.sql("select dp.set_failure_limit('client', 1)")
    with shop.connect() as session:
        session.execute(everywhere(REFUSING))
        session.execute("set session authorization alice")
        for i in range(3):
            assert session.execute(statement.format(i)).fetchall()
        assert shop.sql("select count(*) from dp.failure") == [(0,)]
        assert shop.sql("select distinct state from dp.spend") == [("answered",)]
