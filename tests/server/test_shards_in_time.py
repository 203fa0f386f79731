"""A server that hangs holds up nobody who writes for longer than ``dp.shards_timeout``, and costs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.freezing import frozen, processes
from tests.server.in_service import in_service, value_in_service
from tests.server.refusals import books
from tests.server.shards import READER, Shards, sharded
from tests.server.waiting import wait_until

pytestmark = pytest.mark.server
QUESTION = "select dp_count(*) from visit"
#: What a busy machine may take for what takes no time; less than the 30 seconds that postgres_fdw
#: waits for a server that does not confirm a cancel.
SLACK = 20.0
LIMIT = 3.0
#: The limit of what is to be answered, and of what must not end before it is looked at.
LONG = 60.0
WRITE = "insert into visit values (0, 1000000, 1)"
LATE = (
    "PD052",
    'server "shard1", which holds parts of the relation, did not answer in time',
    f"The setting dp.shards_timeout allows {LIMIT:g}s.",
    "Nothing was charged. Ask again when it answers; this server's log names the cause for the"
    " administrator.",
)
BUSY = (
    "PD052",
    "relation visit, which has parts on other servers, is written to by transactions that take long",
    f"The setting dp.shards_timeout allows {LIMIT:g}s: others who write wait meanwhile.",
    "Nothing was charged. Ask again when they have ended.",
)


@pytest.fixture(scope="module")
def other(installation: None) -> Iterator[Any]:
    """A second server, which is frozen."""
    from tests.conftest import start_server

    server = start_server()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def clinic(server: Any, other: Any) -> Iterator[Shards]:
    """Visits: part 0 on this server, part 1 on the other, part 2 here."""
    with sharded(server, 2, other) as shards:
        shards.table(
            "visit",
            "v_part int not null, v_id int not null, v_who int not null",
            "v_part",
            method="list",
            bounds=[f"in ({i})" for i in range(3)],
            local=[2],
            declare="select dp.protect('visit'), dp.declare_shards('visit', written => 'coordinator');"
            " select dp.grant_budget('alice', 1e6, 1e-3), dp.set_failure_limit('visit', 1000)",
        )
        shards.near.sql(
            "insert into visit select i % 3, i, i % 50 from generate_series(1, 300) i",
            user="owner1",
        )
        shards.near.sql(f"alter database {shards.near.name} set dp.shards_timeout = '{LIMIT:g}s'")
        yield shards


@pytest.fixture
def alice(clinic: Shards) -> Iterator[Any]:
    with clinic.near.connect("alice") as session:
        session.execute("set dp.epsilon = 50; set dp.delta = 1e-6; set dp.fresh = on")
        yield session


class Asked:
    """A question that is asked in a thread, and how it ended."""

    def __init__(self, clinic: Shards, session: Any, sql: str = QUESTION) -> None:
        self.said: tuple[str | None, ...] | None = None
        self.charged: bool | None = None
        self.seconds = 0.0
        self.session = session
        self._clinic = clinic
        self._sql = sql
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._clinic.near.connect() as admin:
            before = books(admin)
            began = time.monotonic()
            try:
                self.session.execute(self._sql)
                self.said = ()
            except psycopg.Error as error:
                found = error.diag
                self.said = (
                    found.sqlstate,
                    found.message_primary,
                    found.message_detail,
                    found.message_hint,
                )
            self.seconds = time.monotonic() - began
            self.charged = books(admin) != before

    def end(self, seconds: float = LIMIT + SLACK) -> tuple[str | None, ...] | None:
        self._thread.join(seconds)
        return self.said


def limit(clinic: Shards, alice: Any, seconds: float) -> None:
    """Set the limit of her service session, which takes an administrator."""
    with clinic.near.connect() as admin:
        admin.execute("grant set on parameter dp.shards_timeout to dp_executor")
        admin.execute(in_service(""))  # which makes what she calls
        alice.execute(
            "select "
            + value_in_service(f"plpy.execute(\"set dp.shards_timeout = '{seconds:g}s'\")")
        )
        admin.execute("revoke set on parameter dp.shards_timeout from dp_executor")


def answered(clinic: Shards, alice: Any) -> bool:
    """Whether she is answered, within 30 of the truth: Laplace noise of scale 1/25 and writes.

    However long that takes; from then on her session has the limit again, and its connections.
    """
    limit(clinic, alice, LONG)
    found = alice.execute(QUESTION).fetchone()[0]
    limit(clinic, alice, LIMIT)
    return abs(found - 300) <= 30


def writing(clinic: Shards, sql: str = WRITE) -> float:
    """Write a row to the part on the server that answers; gives how long that took."""
    with clinic.near.connect("owner1") as writer:
        began = time.monotonic()
        writer.execute(sql)
        return time.monotonic() - began


def readers(clinic: Shards, number: int, waiting: bool = True) -> list[int]:
    """Return who is at work on a shard for questions, or waits for a lock there."""
    rows = clinic.far[number].sql(
        "select pid from pg_stat_activity where datname = current_database() and usename = %s"
        " and state = 'active' and (wait_event_type = 'Lock' or not %s)",
        READER,
        waiting,
    )
    return [pid for (pid,) in rows]


def locking(clinic: Shards) -> bool:
    """Whether a question waits for those who write."""
    waits = "select pid from pg_locks where not granted and mode = 'ShareLock'"
    return clinic.near.sql(waits) != []


def test_a_server_that_accepts_nothing_is_named_in_time(
    clinic: Shards, alice: Any, other: Any
) -> None:
    """Frozen before the first connection: libpq waits by itself, until its own, later limit."""
    with frozen(processes(other.cluster)):
        asked = Asked(clinic, alice)
        assert writing(clinic) < SLACK
        assert asked.end() == LATE
        assert asked.charged is False
    assert answered(clinic, alice)


def test_a_connection_that_went_silent_is_named_in_time(
    clinic: Shards, alice: Any, other: Any
) -> None:
    """Frozen between two questions of a session."""
    assert answered(clinic, alice)
    with frozen(processes(other.cluster)):
        asked = Asked(clinic, alice)
        assert writing(clinic) < SLACK
        assert asked.end() == LATE
        assert asked.charged is False
        # nothing of the limit is left for later statements of the session
        alice.execute(f"select pg_sleep({1.5 * LIMIT})")
    assert answered(clinic, alice)


def test_a_lock_on_the_shard_holds_up_writers_as_long_as_is_allowed(
    clinic: Shards, alice: Any
) -> None:
    assert answered(clinic, alice)
    with clinic.far[1].connect(autocommit=False) as holder:
        holder.execute("lock table visit")
        asked = Asked(clinic, alice)
        wait_until(lambda: readers(clinic, 1) != [] or asked.said is not None)
        assert writing(clinic) < LIMIT + SLACK
        assert asked.end() == LATE
        assert asked.charged is False
        assert asked.seconds >= LIMIT
        # the statement there was cancelled
        wait_until(lambda: readers(clinic, 1) == [])
    assert answered(clinic, alice)


def test_a_refusal_can_be_caught_and_the_transaction_goes_on(clinic: Shards, alice: Any) -> None:
    assert answered(clinic, alice)
    with clinic.far[1].connect(autocommit=False) as holder:
        holder.execute("lock table visit")
        alice.execute(
            "do $$ begin perform dp_count(*) from visit;"
            f" exception when sqlstate 'PD052' then perform pg_sleep({1.5 * LIMIT});"
            " create temp table caught as select count(*) as locks from pg_locks"
            " where pid = pg_backend_pid() and mode = 'ShareLock' and locktype = 'relation'; end $$"
        )
        assert alice.execute("select locks from caught").fetchone() == (0,)
    assert answered(clinic, alice)


@pytest.mark.parametrize("way", ["limit", "cancel", "statement_timeout", "terminate"])
def test_a_frozen_process_there_holds_up_nobody_however_the_question_ends(
    clinic: Shards, alice: Any, way: str
) -> None:
    """postgres_fdw waits 30 seconds for what it cancelled; the locks are gone before.

    The process is frozen while the question waits: that ends late enough for a busy machine.
    """
    assert answered(clinic, alice)
    later = 8.0
    limit(clinic, alice, later if way == "limit" else 0)
    if way == "statement_timeout":
        alice.execute(f"set statement_timeout = '{later:g}s'")
    holder = clinic.far[1].connect(autocommit=False)
    holder.execute("lock table visit")
    asked = Asked(clinic, alice)
    wait_until(lambda: readers(clinic, 1) != [])
    with frozen(readers(clinic, 1)):
        if way in ("cancel", "terminate"):
            clinic.near.sql(f"select pg_{way}_backend(%s)", alice.info.backend_pid)
        assert writing(clinic) < later + SLACK
        if way == "limit":
            # and the question is still waiting for the server to confirm its cancel
            assert asked.end(0) is None
        elif way != "terminate":
            # its service session alone is; a session that ends waits for it
            assert asked.end(SLACK) is not None
    holder.close()
    said = asked.end(120)
    assert asked.charged is False
    if way == "limit":
        assert said == tuple((text or "").replace(f"{LIMIT:g}s", f"{later:g}s") for text in LATE)
    elif way == "terminate":
        assert said is not None
        assert said[0] == "57P01"
        return
    else:
        reason = "user request" if way == "cancel" else "statement timeout"
        assert said == ("57014", f"canceling statement due to {reason}", None, None)
    alice.execute("set statement_timeout = 0")
    assert answered(clinic, alice)


def test_a_long_writer_holds_up_others_as_long_as_is_allowed(clinic: Shards, alice: Any) -> None:
    """The question waits for it, and others who write for the question."""
    assert answered(clinic, alice)
    with clinic.near.connect("owner1", autocommit=False) as loading:
        loading.execute(WRITE)
        asked = Asked(clinic, alice)
        wait_until(lambda: locking(clinic) or asked.said is not None)
        assert writing(clinic) < LIMIT + SLACK
        assert asked.end() == BUSY
        assert asked.charged is False
    assert answered(clinic, alice)


def test_a_limit_of_her_own_for_locks_is_kept(clinic: Shards, alice: Any) -> None:
    with clinic.near.connect("owner1", autocommit=False) as loading:
        loading.execute(WRITE)
        alice.execute("set lock_timeout = '200ms'")
        asked = Asked(clinic, alice)
        assert (asked.end() or ("",))[0] == "55P03"
        assert asked.charged is False
        alice.execute("reset lock_timeout")


def test_the_server_that_took_longest_is_named(clinic: Shards, alice: Any) -> None:
    """Time ran out at the second server, most of it at the first."""
    assert answered(clinic, alice)
    first = clinic.far[0].connect(autocommit=False)
    first.execute("lock table visit")
    with clinic.far[1].connect(autocommit=False) as second:
        second.execute("lock table visit")
        asked = Asked(clinic, alice)
        wait_until(lambda: readers(clinic, 0) != [] or asked.said is not None)
        time.sleep(0.7 * LIMIT)
        first.close()
        said = asked.end()
    # then it took less at the second; a machine that is slower names either
    if asked.seconds < 1.4 * LIMIT:
        assert said == (LATE[0], (LATE[1] or "").replace("shard1", "shard0"), *LATE[2:])
    assert said is not None
    assert said[0] == "PD052"
    assert answered(clinic, alice)


def test_no_limit_is_no_limit(clinic: Shards) -> None:
    with clinic.near.connect() as session, clinic.far[1].connect(autocommit=False) as holder:
        session.execute("set dp.epsilon = 50; set dp.fresh = on")
        limit(clinic, session, 0)
        session.execute("select dp.grant_budget('postgres', 1e6, 1e-3)")
        holder.execute("lock table visit")
        asked = Asked(clinic, session)
        wait_until(lambda: readers(clinic, 1) != [])
        time.sleep(1.5 * LIMIT)
        assert asked.end(0) is None
        holder.rollback()
        assert asked.end(LONG) == ()


def test_relations_without_a_common_moment_have_the_limit_too(clinic: Shards, alice: Any) -> None:
    """Of these nothing is locked here; the question alone would wait."""
    assert answered(clinic, alice)
    clinic.near.sql(
        "create table stay (s_who int not null) partition by list (s_who);"
        "create foreign table stay_1 partition of stay for values in (1) server shard1"
        " options (table_name 'stay');"
        "alter table stay owner to owner1; alter table stay_1 owner to owner1"
    )
    clinic.far[1].sql(f"create table stay (s_who int not null); grant select on stay to {READER}")
    clinic.near.sql("select dp.protect('stay', privacy_unit => 's_who')", user="owner1")
    with clinic.far[1].connect(autocommit=False) as holder:
        holder.execute("lock table stay")
        asked = Asked(clinic, alice, "select dp_count(*) from stay")
        assert asked.end() == LATE
        assert asked.charged is False


def test_the_limit_is_an_administrators(clinic: Shards, alice: Any) -> None:
    for sql in ("set dp.shards_timeout = 0", "select set_config('dp.shards_timeout', '0', false)"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            alice.execute(sql)
    assert alice.execute("show dp.shards_timeout").fetchone() == (f"{LIMIT:g}s",)


def test_a_writer_who_then_alters_what_he_wrote_to_hears_of_a_deadlock(
    clinic: Shards, alice: Any
) -> None:
    """The one circle there is: his ACCESS EXCLUSIVE waits for whoever has planned the question."""
    limit(clinic, alice, LONG)
    with clinic.near.connect("owner1", autocommit=False) as writer:
        writer.execute(WRITE)
        asked = Asked(clinic, alice)
        wait_until(lambda: locking(clinic))
        with pytest.raises(psycopg.errors.DeadlockDetected):
            writer.execute("lock table visit in access exclusive mode")
        writer.rollback()
        # and the question goes on
        assert asked.end(LONG) == ()
