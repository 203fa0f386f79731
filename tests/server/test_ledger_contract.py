"""The ledger in the database keeps the contract."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from typing import Any

import psycopg
import pytest

from dpsql.errors import LedgerUnavailable
from dpsql.ledger.connection import LedgerConnection
from dpsql.ledger.model import Ledger
from dpsql.ledger.store import LedgerStore
from tests.contract.failures import FailureContract
from tests.contract.ledger import MANY, LedgerContract, LedgerHarness
from tests.contract.memory_ledger import Limits
from tests.contract.windows import WindowContract
from tests.server.waiting import wait_until


class ServerHarness(LedgerHarness):
    def __init__(self, database: Any) -> None:
        self.database = database
        self.admin = database.connect()
        self.sessions: list[LedgerStore] = []
        self.admin.execute("create table a (x int); create table b (x int)")
        self.admin.execute("select dp.protect('a', delta => 0.5), dp.protect('b', delta => 0.5)")
        self.roots = tuple(
            row[0] for row in self.admin.execute("select id from dp.root order by id").fetchall()
        )
        self.roles = tuple(
            self.admin.execute(f"select '{role}'::regrole::oid::int8").fetchone()[0]
            for role in ("alice", "bob")
        )
        for role in self.roles:
            self.grant(role, "100")
        for root in self.roots:
            self.allow(root, MANY)

    def grant(
        self,
        role: int,
        epsilon: str,
        delta: str = "0.5",
        composition: str = "basic",
        window: timedelta | None = None,
    ) -> Limits:
        self.admin.execute(
            "select dp.grant_budget(%s::oid::regrole, %s, %s, %s, %s)",
            (role, epsilon, delta, composition, window),
        )
        row = self.admin.execute(
            "select coalesce(b.rho_limit, b.epsilon), b.delta - b.delta_reserved, b.composition"
            " from dp.role_budget b join dp.principal p on p.id = b.principal and p.role_oid = %s",
            (role,),
        ).fetchone()
        return _limits(row)

    def revoke(self, role: int) -> None:
        self.admin.execute("select dp.revoke_budget(%s::oid::regrole)", (role,))

    def advance(self, time: timedelta) -> None:
        """Move everything that the ledger compares with the clock back."""
        self.admin.execute(
            "update dp.role_budget set window_anchor = window_anchor - %s::interval", (time,)
        )
        self.admin.execute(
            "update dp.role_total set window_start = window_start - %(time)s::interval,"
            " window_end = window_end - %(time)s::interval",
            {"time": time},
        )
        self.admin.execute("update dp.loss set recorded_at = recorded_at - %s::interval", (time,))

    def cap(
        self, root: int, epsilon: str | None, delta: str = "0.5", composition: str = "basic"
    ) -> Limits:
        self.admin.execute(
            "select dp.set_root_cap(relation, %s, %s, %s) from dp.policy where root = %s",
            (epsilon, delta, composition, root),
        )
        row = self.admin.execute(
            "select coalesce(rho_limit, epsilon_cap), delta_cap - delta_reserved, composition"
            " from dp.root where id = %s",
            (root,),
        ).fetchone()
        return _limits(row)

    def keep(self, root: int, lifetime: timedelta | None) -> None:
        self.admin.execute(
            "select dp.set_answer_lifetime(relation, %s) from dp.policy where root = %s",
            (lifetime, root),
        )

    def allow(self, root: int, failures: int, in_all: int | None = None) -> None:
        self.admin.execute(
            "select dp.set_failure_limit(relation, %s, %s) from dp.policy where root = %s",
            (failures, in_all, root),
        )

    def resume(self, role: int | None, root: int) -> None:
        self.admin.execute(
            "select dp.resume(%s::oid::regrole, relation) from dp.policy where root = %s",
            (role, root),
        )

    def session(self) -> Ledger:
        connection = LedgerConnection(self.database.conninfo("dp_ledger"), lambda: None)
        store = LedgerStore(connection, wait=120)
        self.sessions.append(store)
        return store

    def end(self, session: Ledger) -> None:
        assert isinstance(session, LedgerStore)
        session.connection.close()

    def _total(self, sql: str, number: int) -> Fraction:
        row = self.admin.execute(sql, (number,)).fetchone()
        return Fraction(row[0]) if row else Fraction(0)

    def spent(self, role: int) -> Fraction:
        return self._total(
            "select t.epsilon from dp.role_total t join dp.principal p on p.id = t.principal"
            " where p.role_oid = %s",
            role,
        )

    def lost(self, root: int) -> Fraction:
        return self._total("select epsilon from dp.root_total where root = %s", root)

    def misplace(self) -> None:
        self.admin.execute("update dp.ledger_incarnation set token = gen_random_uuid()")


def _limits(row: Any) -> Limits:
    return Limits(None if row[0] is None else Fraction(row[0]), Fraction(row[1]), row[2])


@pytest.fixture(scope="module")
def ledger_access(server: Any) -> None:
    """Let the tests' OS user be dp_ledger, as only the server's may in production."""
    ident = server.cluster.data / "pg_ident.conf"
    line = f"dp_ledger {getpass.getuser()} dp_ledger\n"
    if line not in ident.read_text():
        with ident.open("a") as stream:
            stream.write(line)
    with psycopg.connect(server.cluster.conninfo(), autocommit=True) as connection:
        connection.execute("select pg_reload_conf()")


@pytest.fixture
def harness(ledger_access: None, database: Any) -> Iterator[ServerHarness]:
    harness = ServerHarness(database)
    yield harness
    for session in harness.sessions:
        session.connection.close()


class TestLedgerStore(LedgerContract):
    pass


class TestFailuresOfTheStore(FailureContract):
    pass


class TestWindowsOfTheStore(WindowContract):
    pass


def test_connection_settings_make_charges_durable(harness: ServerHarness) -> None:
    store = harness.session()
    assert isinstance(store, LedgerStore)
    rows = store.connection.call(
        "settings",
        "select current_setting('synchronous_commit'), current_setting('lock_timeout'),"
        " current_setting('statement_timeout'), current_setting('search_path'),"
        " current_setting('application_name'), current_setting('transaction_isolation')",
    )
    assert rows == [("on", "5s", "15s", "pg_catalog,pg_temp", "dpsql_ledger", "read committed")]


def test_connection_of_another_role_is_refused(harness: ServerHarness) -> None:
    connection = LedgerConnection(harness.database.conninfo("alice"), lambda: None)
    with pytest.raises(LedgerUnavailable, match="not available") as caught:
        connection.connect()
    assert "another role" in (caught.value.detail or "")


def test_connection_to_another_database_is_refused(harness: ServerHarness) -> None:
    connection = LedgerConnection(
        harness.database.conninfo("dp_ledger"), lambda: None, database_oid=1
    )
    with pytest.raises(LedgerUnavailable):
        connection.connect()


def test_connection_that_was_terminated_while_idle_is_made_again(harness: ServerHarness) -> None:
    store = harness.session()
    assert isinstance(store, LedgerStore)
    store.finish(store.open(harness.charge()), "x")
    harness.admin.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        " where application_name = 'dpsql_ledger' and datname = current_database()"
    )
    assert store.peek(harness.roles[0], b"text of q") is not None


def test_waiting_for_the_ledger_can_be_cancelled(harness: ServerHarness) -> None:
    class Cancelled(Exception):
        pass

    calls = 0

    def tick() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise Cancelled

    blocker = harness.database.connect(autocommit=False)
    blocker.execute("lock table dp.role_total in exclusive mode")
    store = harness.session()
    assert isinstance(store, LedgerStore)
    store.connection.connect()
    store.connection.tick = tick
    with pytest.raises(Cancelled):
        store.open(harness.charge())
    blocker.rollback()
    assert harness.spent(harness.roles[0]) == 0


def test_a_cancel_just_after_the_charge_was_committed_is_no_failure(
    harness: ServerHarness,
) -> None:
    class Cancelled(Exception):
        pass

    class Late(LedgerConnection):
        """Is cancelled when the second charge was committed and its result was not read."""

        armed = False

        def _wait(self, socket: int, event: int) -> None:
            spends = "select count(*) from dp.spend"
            if self.armed:
                self.armed = False
                wait_until(lambda: harness.admin.execute(spends).fetchone() == (2,))
                raise Cancelled
            super()._wait(socket, event)

    late = Late(harness.database.conninfo("dp_ledger"), lambda: None)
    store = LedgerStore(late)
    store.finish(store.open(harness.charge()), "x")
    late.armed = True
    with pytest.raises(Cancelled):
        store.open(harness.charge(b"other"))
    store.connection.close()
    states = "select state from dp.spend order by id"
    assert harness.admin.execute(states).fetchall() == [("answered",), ("failed",)]
    assert harness.admin.execute("select count(*) from dp.failure").fetchone() == (0,)


def test_a_blocked_ledger_gives_up_and_nothing_is_spent(harness: ServerHarness) -> None:
    blocker = harness.database.connect(autocommit=False)
    blocker.execute("lock table dp.role_total in exclusive mode")
    store = harness.session()
    assert isinstance(store, LedgerStore)
    store.connection.call("hurry", "select set_config('lock_timeout', '50ms', false)")
    with pytest.raises(LedgerUnavailable) as caught:
        store.open(harness.charge())
    assert "55P03" in (caught.value.detail or "")
    blocker.rollback()
    assert harness.spent(harness.roles[0]) == 0


def test_an_unknown_outcome_is_looked_up_and_never_charged_twice(harness: ServerHarness) -> None:
    from dpsql.ledger.connection import ConnectionBroken

    class Breaking(LedgerConnection):
        """Loses the connection after the charge was committed, before the answer is seen."""

        def call(self, name: str, sql: str, *rest: Any) -> Any:
            rows = super().call(name, sql, *rest)
            if name == "open":
                self.close()
                raise ConnectionBroken("after commit")
            return rows

    store = LedgerStore(Breaking(harness.database.conninfo("dp_ledger"), lambda: None))
    opened = store.open(harness.charge())
    assert store.finish(opened, "x") is not None
    assert harness.spent(harness.roles[0]) == 1
    store.connection.close()


def test_an_outcome_that_stays_unknown_is_an_error(harness: ServerHarness) -> None:
    from dpsql.ledger.connection import ConnectionBroken

    class Breaking(LedgerConnection):
        """Loses the connection before the charge reaches the server."""

        def call(self, name: str, sql: str, *rest: Any) -> Any:
            if name == "open":
                self.close()
                raise ConnectionBroken("before")
            return super().call(name, sql, *rest)

    store = LedgerStore(Breaking(harness.database.conninfo("dp_ledger"), lambda: None))
    with pytest.raises(LedgerUnavailable) as caught:
        store.open(harness.charge())
    assert "may have been recorded" in (caught.value.detail or "")
    assert harness.spent(harness.roles[0]) == 0
    store.connection.close()
