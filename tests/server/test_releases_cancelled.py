"""Selecting a strategy over thousands of levels ends soon when it is cancelled or abandoned.

Limits are of processor time, which a machine with much else to do does not lengthen much: what is
told apart is a second or two between two looks at a cancel from the minute or more that selecting
takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.releasing import declare, spent
from tests.server.waiting import wait_until, worked

LEVELS = 4096
#: Seconds that a backend works from a cancel to its error, at most.
SOON = 30
#: How long they may take, with all else that the machine does.
PATIENCE = 600
PREFIXES = "select dp.prefix(w_day), dp_count(*) from wide group by 1"


@pytest.fixture(scope="module")
def wide(server: Any) -> Iterator[Any]:
    """A relation with a key of many levels."""
    database = declare(server.create_database())
    database.sql("create table public.wide (w_id int primary key, w_day int)")
    database.sql("insert into public.wide select i, i * i % 4096 from generate_series(1, 500) i")
    database.sql("alter table public.wide owner to owner1")
    with database.connect(user="owner1") as owner:
        owner.execute("select dp.protect('public.wide')")
        owner.execute(f"select dp.set_domain('public.wide', 'w_day', 0, {LEVELS - 1})")
    yield database
    server.drop_database(database)


class Selecting:
    """A release of another thread, which selects its strategy."""

    def __init__(self, database: Any, query: str, mechanism: str, delta: float) -> None:
        self.error: psycopg.Error | None = None
        self.session = database.connect("alice")
        self.pid = self.session.info.backend_pid
        self._call = (
            f"select dp.release('days', $${query}$$, 1, {delta}, mechanism => '{mechanism}')"
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.session.execute(self._call)
        except psycopg.Error as error:
            self.error = error

    def end(self) -> None:
        self._thread.join()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()


def phase(database: Any, pid: int) -> None:
    """Wait until a session selects a strategy."""
    shown = "select count(*) from dp.progress where pid = %s and phase = 'selecting a strategy'"
    with database.connect() as admin:
        wait_until(lambda: admin.execute(shown, (pid,)).fetchone() == (1,), seconds=PATIENCE)


def began(database: Any, victim: Selecting) -> None:
    """Wait until it selects, and a while longer, so that it is in the middle of it."""
    phase(database, victim.pid)
    time.sleep(3)
    assert victim.running, f"it ended by itself: {victim.error}"


def ends_soon(database: Any, pid: int, start: float | None) -> None:
    """Wait until a backend is gone, which had worked so long when it was told to end."""
    assert start is not None
    gone = "select count(*) from pg_stat_activity where pid = %s"
    with database.connect() as admin:

        def ended() -> bool:
            assert (worked(pid) or start) - start < SOON
            return bool(admin.execute(gone, (pid,)).fetchone() == (0,))

        wait_until(ended, seconds=PATIENCE)


@pytest.mark.parametrize(
    ("mechanism", "delta"), [("opt_kron", 1e-9), ("opt_kron", 0), ("eigen_design", 1e-9)]
)
def test_a_cancel_ends_selecting_soon(wide: Any, mechanism: str, delta: float) -> None:
    before = spent(wide)
    victim = Selecting(wide, PREFIXES, mechanism, delta)
    began(wide, victim)
    start = worked(victim.pid)
    assert wide.sql(f"select pg_cancel_backend({victim.pid})") == [(True,)]
    victim.end()
    end = worked(victim.pid)
    assert start is not None
    assert end is not None
    assert end - start < SOON
    assert victim.error is not None
    assert victim.error.sqlstate == "57014"
    assert spent(wide) == before
    assert wide.sql("select 1 from dp.progress where pid = %s", victim.pid) == []
    # the session works, and releases
    session = victim.session
    name = f"after_{mechanism}_{'laplace' if delta == 0 else 'gaussian'}"
    query = "select s_big, dp_count(*) from sale group by 1"
    session.execute(f"select dp.release('{name}', $${query}$$, 1, {delta})")
    assert session.execute(f"select count(*) > 1 from dpv.{name}").fetchone() == (True,)
    session.close()
    with wide.connect("alice") as alice:
        alice.execute(f"select dp.drop_release('{name}')")


def test_a_client_that_goes_away_ends_selecting_soon(wide: Any) -> None:
    """Where the server is told to look for that."""
    before = spent(wide)
    session = wide.connect("alice")
    pid = session.info.backend_pid
    session.execute("set client_connection_check_interval = '200ms'")
    session.pgconn.send_query(
        f"select dp.release('r', $${PREFIXES}$$, 1, 0, mechanism => 'opt_kron')".encode()
    )
    phase(wide, pid)
    time.sleep(3)
    assert wide.sql("select count(*) from pg_stat_activity where pid = %s", pid) == [(1,)]
    start = worked(pid)
    session.close()
    ends_soon(wide, pid, start)
    assert spent(wide) == before


def test_a_session_that_is_terminated_ends_selecting_soon(wide: Any) -> None:
    before = spent(wide)
    victim = Selecting(wide, PREFIXES, "eigen_design", 1e-9)
    began(wide, victim)
    start = worked(victim.pid)
    wide.sql(f"select pg_terminate_backend({victim.pid})")
    ends_soon(wide, victim.pid, start)
    victim.end()
    assert victim.error is not None
    assert victim.error.sqlstate == "57P01"
    assert spent(wide) == before


#: Counts what is selected, in the session itself.
COUNTING = """
do language plpython3u $body$
import dpsql.workload.candidates as c
make = c.make
def counted(name, *given, **more):
    found = make(name, *given, **more)
    c.counted += 1
    return found
c.make, c.counted = counted, 0
$body$"""
TOLD = """
do language plpython3u $body$
import dpsql.workload.candidates as c
plpy.notice(f"selected {c.counted}")
$body$"""


def test_a_release_after_its_plan_selects_nothing_anew(wide: Any) -> None:
    query = "select s_place, dp.prefix(s_day), dp_count(*) from sale group by 1, 2"
    told: list[str] = []

    def selected(session: Any) -> int:
        told.clear()
        session.execute(TOLD)
        return int(str(told[-1]).removeprefix("selected "))

    with wide.connect() as session:
        session.execute("select * from dp.explain('select dp_count(*) from sale')")  # imports
        session.execute(COUNTING)
        session.add_notice_handler(lambda n: told.append(str(n.message_primary)))
        plan = f"select mechanism, rmse from dp.plan_release($${query}$$, 1, 1e-9) where chosen"
        planned = session.execute(plan).fetchone()
        first = selected(session)
        assert first > 1
        assert session.execute(plan).fetchone() == planned
        session.execute(f"select dp.release('planned', $${query}$$, 1, 1e-9)")
        assert selected(session) == first
        released = "select mechanism from dp.releases where name = 'planned'"
        assert session.execute(released).fetchone() == planned[:1]
        # a budget that is another one needs another strategy
        session.execute(f"select dp.release('more', $${query}$$, 2, 1e-9)")
        assert selected(session) > first
        session.execute("select dp.drop_release('planned'), dp.drop_release('more')")
    # a session that planned nothing finds the same strategy, and what it measured
    with wide.connect() as session:
        before = spent(wide, "postgres")
        session.execute(f"select dp.release('again', $${query}$$, 1, 1e-9)")
        assert spent(wide, "postgres") == before
        session.execute("select dp.drop_release('again')")
