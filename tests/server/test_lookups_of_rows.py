"""The catalogs that a question reads do not depend on rows.

Otherwise a session that locks a catalog could see whether the question waits for the lock.  Each kind
of question is asked about a row that does not exist, while one catalog after the other is locked.  So
the test finds the catalogs that the question does not read.  Then all of these are locked at once, and
a session that has read no row before asks about a row that exists.  It must not wait.  The question is
repeated if it waited.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from threading import Thread
from typing import Any

import psycopg
import pytest

from tests.server.in_service import in_service
from tests.server.single_rows import make, statements
from tests.server.waiting import wait_until

DOMAINS = """
select dp.set_domain('obs', 'felt', array['sad', 'low', 'well', 'high', 'glad']),
       dp.set_domain('doc', 'felt', array['sad', 'low', 'well', 'high', 'glad'])
"""
KINDS = {
    "count": "select dp_count(*) from {one}",
    "sum": "select dp_sum(x, 0, 50) from {one}",
    "sum of floats": "select dp_sum(f) from {one}",
    "average": "select dp_avg(x, 0, 50) from {one}",
    "distinct": "select dp_count(distinct note) from {one}",
    "median": "select dp_median(f) from {one}",
    "groups": "select felt, dp_count(*) from {one} group by felt",
    "undeclared groups": "select note, dp_count(*) from {one} group by note",
    "enum": "select dp_count(*) from {one} and felt > 'sad'",
    "collation": "select dp_count(*) from {one} and note > 'a' collate \"C\" and lower(note) like 'n%'",
    "list": "select dp_count(*) from {one} and note = any (array['note7', 'note8', 'note9', 'a', 'b', 'c', 'd', 'e', 'f', 'g'])",
    "time": "select extract(hour from at), dp_count(*) from {one} and date_trunc('month', at) > '2020-01-01' group by 1",
    "cast": "select dp_count(*) from {one} and x::text < '9'",
}
JOINED = {
    "two units": "select dp_count(*) from pair where id = {id} and id < {n}",
    "sum of two units": "select dp_sum(b, 0, 50) from pair where id = {id} and id < {n}",
    "rows joined": "select dp_count(*) from doc as a join doc as b on a.x = b.x where a.id = {id} and a.id < {n}",
}
STATEMENTS = statements(KINDS, JOINED)
CATALOGS = """
select c.oid::regclass::text from pg_class as c
 where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind = 'r' and not c.relisshared order by 1
"""
NUMBERS = count(1000)
#: The service session waits no longer than its asker does.
HURRIED = """
import dpsql.server.handlers as handlers
from dpsql.server.own_transactions import OwnTransactions
hurry = "select pg_catalog.set_config('lock_timeout', '20ms', false)"
serve, following = handlers.serve, OwnTransactions._next
def hurried(plpy, session, **arguments):
    plpy.execute(hurry)
    return serve(plpy, session, **arguments)
def followed(self, **named):
    following(self, **named)
    self._plpy.execute(hurry)
handlers.serve, OwnTransactions._next = hurried, followed
"""


@pytest.fixture(scope="module")
def world(server: Any) -> Iterator[Any]:
    for database in make(server):
        database.sql(DOMAINS)
        yield database


def asker(world: Any, statement: str, patch: str = "") -> Any:
    """Open a session that has asked the question before, about rows that do not exist."""
    session = world.connect()
    if patch:
        session.execute(in_service(patch))
    session.execute("set session authorization alice")
    session.execute("set dp.epsilon = 0.01; set dp.delta = 1e-9; set client_min_messages = error")
    for _ in range(2):
        session.execute(statement.format(id=-1, n=next(NUMBERS)))
    return session


def service_of(watcher: Any, session: Any) -> list[Any]:
    """Return the process of the session's service session, if it has one."""
    of = "select pid from pg_stat_activity where leader_pid = %s"
    return list(watcher.execute(of, [session.info.backend_pid]).fetchall())


def hurried(world: Any, watcher: Any, statement: str) -> tuple[Any, list[Any]]:
    """Open a session that waits for no lock, with its service session."""
    session = asker(world, statement, HURRIED)
    session.execute("set lock_timeout = '20ms'; set statement_timeout = '20s'")
    return session, service_of(watcher, session)


def goes_without(locker: Any, session: Any, catalog: str, statement: str) -> bool:
    locker.execute(f"begin; lock table {catalog} in access exclusive mode")
    try:
        session.execute(statement.format(id=-1, n=next(NUMBERS)))
    except psycopg.Error as error:
        # an answer that cannot be stored ends the service session, and its successor may wait, too
        if error.sqlstate not in ("55P03", "57014", "PD050"):
            raise
        return False
    finally:
        locker.execute("rollback")
    return True


def waited_for(world: Any, statement: str, free: list[str]) -> list[str]:
    """Ask about a row that exists while catalogs are locked; return which of them it waits for."""
    waiting = (
        "select c.relname::text from pg_locks as l left join pg_class as c on c.oid = l.relation"
        " where l.pid = any (%s) and not l.granted"
    )
    with world.connect() as locker, world.connect() as watcher, asker(world, statement) as session:
        asking = session.info.backend_pid
        pids = [
            row[0]
            for row in watcher.execute(
                "select pid from pg_stat_activity where %s in (pid, leader_pid)", [asking]
            )
        ]
        assert len(pids) == 2  # the session and its service
        watcher.execute(waiting, [pids])
        ended: list[str] = []

        def ask() -> None:
            try:
                session.execute(statement.format(id=7, n=next(NUMBERS)))
                ended.append("answered")
            except psycopg.Error as error:
                ended.append(str(error.sqlstate))

        locker.execute(f"begin; lock table {', '.join(free)} in access exclusive mode")
        thread = Thread(target=ask)
        thread.start()
        found: list[str] = []
        try:
            wait_until(lambda: bool(ended or found.extend(_names(watcher, waiting, pids)) or found))
        finally:
            locker.execute("rollback")
            thread.join()
    assert ended == ["answered"]
    return found


def _names(watcher: Any, waiting: str, pids: list[int]) -> list[str]:
    return [str(row[0]) for row in watcher.execute(waiting, [pids]).fetchall()]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_row_that_exists_needs_no_further_catalog(world: Any, statement: str) -> None:
    world.sql("select dp.resume()")  # what was tried before has failed after the charge
    free = []
    with world.connect() as locker:
        catalogs = [row[0] for row in locker.execute(CATALOGS).fetchall()]
        session, service = hurried(world, locker, statement)
        for catalog in catalogs:
            if goes_without(locker, session, catalog, statement):
                free.append(catalog)
            elif service_of(locker, session) != service:
                session.close()
                session, service = hurried(world, locker, statement)
        session.close()
    assert len(free) >= 10
    # a change of the catalog by another session can cause a wait once; a row would cause it each time
    tried = [waited_for(world, statement, free)]
    while tried[-1] and len(tried) < 4:
        tried.append(waited_for(world, statement, free))
    assert tried[-1] == []
