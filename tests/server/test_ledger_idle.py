"""Idle service sessions end, so that many analysts do not hold twice as many connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from tests.server.in_service import in_service, value_in_service
from tests.server.waiting import wait_until

END_NOW = "plpy.execute('select dp.end_service() is null as done')"
END = value_in_service(END_NOW)


def services(shop: Any) -> int:
    rows = shop.sql(
        "select count(*) from pg_stat_activity"
        " where application_name = 'dpsql_service' and datname = current_database()"
    )
    return int(rows[0][0])


def test_a_service_session_ends_after_a_minute_and_is_started_again(shop: Any) -> None:
    """A minute is too long to wait for: `dp.end_service` makes it a millisecond."""
    setting = value_in_service("return plpy.execute('show idle_session_timeout')[0].popitem()[1]")
    with shop.connect() as session:
        session.execute(in_service(END_NOW))
        wait_until(lambda: services(shop) == 0)
        session.execute("set session authorization alice")
        for i in range(3):
            session.execute(f"select dp_count(*) from client where c_id > {i}")
            assert session.execute(f"select {setting}").fetchone() == ("1min",)
            assert services(shop) == 1
            session.execute(f"select {END}")
            wait_until(lambda: services(shop) == 0)
        assert shop.sql("select count(*) from dp.spend") == [(3,)]


def test_a_service_session_that_ends_just_when_it_is_asked_is_no_error(shop: Any) -> None:
    with shop.connect() as session:
        session.execute(in_service("pass"))
        session.execute("set session authorization alice")
        for i in range(20):
            session.execute(f"select {END}")
            session.execute(f"select dp_count(*) from client where c_id > {i}")
        assert shop.sql("select count(*) from dp.spend") == [(20,)]


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


def test_a_patched_service_session_is_not_ended(shop: Any) -> None:
    """Otherwise a test would go on with one that is not patched."""
    with shop.connect() as session:
        session.execute(in_service("pass"))
        session.execute("set session authorization alice")
        session.execute("select dp_count(*) from client")
        setting = value_in_service(
            "return plpy.execute('show idle_session_timeout')[0].popitem()[1]"
        )
        assert session.execute(f"select {setting}").fetchone() == ("0",)
