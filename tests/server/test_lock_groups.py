"""Sessions that asked give their place among the server's connections back, however they end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from tests.server.in_service import MARK, in_service
from tests.server.waiting import connected, wait_until

#: Fewer than the sessions of the test.
CONNECTIONS = 9
SERVICE = "select pid from pg_stat_activity where leader_pid = %s"
WAIT = f"select * from dp.run($python${MARK}\nimport time\nwhile True:\n    time.sleep(0.01)\n    plpy.execute('select 1')$python$, null) as (x text)"


def _close(database: Any, session: Any) -> None:
    session.close()


def _terminate(database: Any, session: Any) -> None:
    database.sql("select pg_terminate_backend(%s, 60000)", session.info.backend_pid)


def _give_up_and_close(database: Any, session: Any) -> None:
    with suppress(psycopg.errors.QueryCanceled):
        session.execute("set statement_timeout = '20ms'")
        session.execute(WAIT)
    session.close()


def _terminate_while_it_asks(database: Any, session: Any) -> None:
    session.pgconn.send_query(WAIT.encode())
    asking = f"{SERVICE} and state = 'active'"
    wait_until(lambda: bool(database.sql(asking, session.info.backend_pid)))
    _terminate(database, session)


def _end_its_service_first(database: Any, session: Any) -> None:
    ((pid,),) = database.sql(SERVICE, session.info.backend_pid)
    database.sql("select pg_terminate_backend(%s, 60000)", pid)
    session.close()


def _have_workers_and_terminate(database: Any, session: Any) -> None:
    session.execute("set parallel_setup_cost = 0; set parallel_tuple_cost = 0")
    session.pgconn.send_query(b"select count(*) from many as x, many as y")
    workers = f"{SERVICE} and backend_type = 'parallel worker'"
    wait_until(lambda: bool(database.sql(workers, session.info.backend_pid)))
    _terminate(database, session)


WAYS = (
    _close,
    _terminate,
    _give_up_and_close,
    _terminate_while_it_asks,
    _end_its_service_first,
    _have_workers_and_terminate,
)


def test_no_session_that_asked_keeps_a_connection(make_server: Callable[..., Any]) -> None:
    server = make_server(max_connections=str(CONNECTIONS), superuser_reserved_connections="3")
    database = server.create_database()
    database.sql(
        "create table t as select 1 as a; create table many as select generate_series(1, 100000);"
        "alter table many set (parallel_workers = 2); grant select on many to alice;"
        "select dp.protect('t'), dp.grant_budget('alice', 100)"
    )
    with database.connect() as admin:
        admin.execute(in_service("pass"))
    for i in range(CONNECTIONS):
        for end in WAYS:
            session = connected(database, "alice")
            session.execute(f"select dp_count(*) from t where a > {i}")
            end(database, session)
            session.close()
    database.close()
