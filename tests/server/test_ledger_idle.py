"""Idle sessions of the ledger and idle service sessions end, so that many analysts do not hold twice as many connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from dpsql.ledger.connection import SETTINGS, LedgerConnection
from dpsql.ledger.model import Charged, Hit
from dpsql.ledger.store import LedgerStore
from tests.server.in_service import in_service, value_in_service
from tests.server.test_ledger_contract import ServerHarness, ledger_access  # noqa: F401
from tests.server.waiting import wait_until

#: Longer than a busy machine lets a session wait between two statements.
QUICK = {**SETTINGS, "idle_session_timeout": "2s"}


RELEASE = "select dp.release('r{0}', 'select c_kind, dp_count(*) from client group by 1', {1})"


def ledger_backends(shop: Any, name: str = "dpsql_ledger") -> int:
    rows = shop.sql(
        "select count(*) from pg_stat_activity"
        f" where application_name = '{name}' and datname = current_database()"
    )
    return int(rows[0][0])


@pytest.fixture
def harness(ledger_access: None, database: Any) -> Iterator[ServerHarness]:  # noqa: F811
    harness = ServerHarness(database)
    yield harness
    for session in harness.sessions:
        session.connection.close()


def quick(harness: ServerHarness) -> LedgerStore:
    connection = LedgerConnection(
        harness.database.conninfo("dp_ledger"), lambda: None, settings=QUICK
    )
    store = LedgerStore(connection, wait=120)
    harness.sessions.append(store)
    return store


def test_the_servers_own_connections_end_after_a_minute(shop: Any) -> None:
    """A minute is too long to wait for: the session's own copy of the settings is changed."""
    assert SETTINGS["idle_session_timeout"] == "60s"
    shop.sql(
        "create function public.hurry() returns text language plpython3u as"
        " $$ from dpsql.ledger.connection import SETTINGS;"
        " before = SETTINGS['idle_session_timeout'];"
        " SETTINGS['idle_session_timeout'] = '2s';"
        " return before $$"
    )
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.purge_answers()")
        assert owner.execute("select public.hurry()").fetchone() == ("60s",)
        assert ledger_backends(shop) == 1
        shop.sql(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name = 'dpsql_ledger' and datname = current_database()"
        )
        owner.execute("select dp.purge_answers()")
        wait_until(lambda: ledger_backends(shop) == 0)
        owner.execute("select dp.purge_answers()")


def test_a_service_session_ends_after_a_minute_and_is_started_again(shop: Any) -> None:
    """A minute is too long to wait for: `dp.end_service` makes it a millisecond."""
    setting = value_in_service("return plpy.execute('show idle_session_timeout')[0].popitem()[1]")
    end = value_in_service("plpy.execute('select dp.end_service() is null as done')")
    with shop.connect() as session:
        session.execute(in_service("pass"))
        session.execute("set session authorization alice")
        for i in range(3):
            session.execute(f"select dp_count(*) from client where c_id > {i}")
            assert session.execute(f"select {setting}").fetchone() == ("1min",)
            assert ledger_backends(shop, "dpsql_service") == 1
            session.execute(f"select {end}")
            wait_until(lambda: ledger_backends(shop, "dpsql_service") == 0)
        assert shop.sql("select count(*) from dp.spend") == [(3,)]


def test_a_service_session_that_ends_just_when_it_is_asked_is_no_error(shop: Any) -> None:
    end = value_in_service("plpy.execute('select dp.end_service() is null as done')")
    with shop.connect() as session:
        session.execute(in_service("pass"))
        session.execute("set session authorization alice")
        for i in range(20):
            session.execute(f"select {end}")
            session.execute(f"select dp_count(*) from client where c_id > {i}")
        assert shop.sql("select count(*) from dp.spend") == [(20,)]


def test_an_idle_connection_ends_and_is_made_again(harness: ServerHarness) -> None:
    store = quick(harness)
    opened = store.open(harness.charge())
    store.finish(opened, "x")
    wait_until(lambda: ledger_backends(harness.database) == 0)
    hit = store.peek(harness.roles[0], b"text of q")
    assert hit is not None
    assert hit.payload == "x"
    assert harness.spent(harness.roles[0]) == 1


@pytest.mark.parametrize("end", ["finish", "fail"])
def test_a_connection_never_ends_while_its_question_is_computed(
    harness: ServerHarness, end: str
) -> None:
    """Otherwise a waiter would take over, be charged, and compute a second time."""
    store = quick(harness)
    opened = store.open(harness.charge())
    assert isinstance(opened, Charged)
    found: list[Hit | Charged] = []
    other = harness.session()
    waiting = threading.Thread(target=lambda: found.append(other.open(harness.charge())))
    waiting.start()
    time.sleep(5)
    assert waiting.is_alive()
    assert harness.spent(harness.roles[0]) == 1
    if end == "finish":
        store.finish(opened, "x")
    else:
        store.fail(opened)
    waiting.join(120)
    assert isinstance(found[0], Hit if end == "finish" else Charged)
    other.connection.close()
    wait_until(lambda: ledger_backends(harness.database) == 0)


def test_a_connection_that_ends_just_when_it_is_needed_is_no_error(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server said goodbye after the connection was looked at: nothing ran, so ask again."""
    store = quick(harness)
    store.connection.connect()
    wait_until(lambda: ledger_backends(harness.database) == 0)
    looked: list[bool] = []

    def unseen(connection: Any) -> bool:
        looked.append(True)
        return True

    monkeypatch.setattr("dpsql.ledger.connection._usable", unseen)
    opened = store.open(harness.charge())
    assert looked
    assert store.finish(opened, "x") is not None
    assert harness.spent(harness.roles[0]) == 1


def test_more_analysts_than_spare_connections_take_turns(make_server: Callable[..., Any]) -> None:
    """Twelve analysts stay connected where only three service sessions fit beside them."""
    server = make_server(max_connections="18", superuser_reserved_connections="3")
    database = server.create_database()
    database.sql(
        "create table t as select 1 as a; select dp.protect('t'), dp.grant_budget('alice', 100)"
    )
    analysts = [psycopg.connect(database.conninfo("alice"), autocommit=True) for _ in range(12)]
    try:
        for i, analyst in enumerate(analysts):
            if i % 2 == 0:  # the minute after which idle ones end
                database.sql(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                    " where application_name = 'dpsql_service' and state = 'idle'"
                )
            analyst.execute(f"select dp_count(*) from t where a > {i}")
        assert database.sql("select count(*) from dp.spend") == [(12,)]
    finally:
        for analyst in analysts:
            analyst.close()
        database.close()
