"""Parts on several servers are read as of one moment; movers are never caught between."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import silent
from tests.server.in_service import in_service
from tests.server.shards import Shards, sharded
from tests.server.waiting import wait_until

ROWS = 300
QUESTION = "select dp_count(*) from account"
DECLARE = """
select dp.protect('account'), dp.declare_shards('account', written => 'coordinator');
select dp.grant_budget('postgres', 1e7, 1), dp.grant_budget('alice', 1e7, 1);
select dp.grant_budget('owner1', 1e7, 1);
"""
# each breaks one thing that keeps moved rows from being seen twice or not at all
MUTANT = in_service("""
from dpsql.server.shards import Shards
together = Shards._together
{0}
""")
NO_LOCKS = MUTANT.format("Shards._together = lambda *a: None if together(*a) is None else []")
# the other servers are met after the charge only, where rows are read: nothing waits before
LATER = in_service("""
from dpsql.server.spi import SpiDatabase
meet = SpiDatabase.meet
SpiDatabase.meet = lambda *a, charged=False, **k: meet(*a, charged=True, **k) if charged else None
""")
# a question waits there for the advisory lock 9
PAUSE = """
import dpsql.engine.answer
plain_{0} = dpsql.engine.answer.{0}
def {0}(*given):
    plpy.execute("select pg_advisory_xact_lock_shared(9)")
    return plain_{0}(*given)
dpsql.engine.answer.{0} = {0}
"""
CHARGED = in_service(PAUSE.format("_meet_again"))
MET = in_service(PAUSE.format("compute"))
NO_SNAPSHOT = MUTANT.format("Shards._in_snapshots = lambda self, work: work()")


@pytest.fixture(scope="module")
def bank(server: Any) -> Iterator[Shards]:
    """Accounts by branch: two branches on each of three servers, and branch 6 here."""
    with sharded(server) as shards:
        shards.table(
            "account",
            "a_branch int not null, a_id int not null, a_holder int",
            "a_branch",
            method="list",
            bounds=[f"in ({i})" for i in range(7)],
            local=[6],
            declare=DECLARE,
        )
        shards.near.sql(
            f"insert into account select i % 7, i, i % 50 from generate_series(1, {ROWS}) i",
            user="owner1",
        )
        yield shards


def move(row: int, branch: int, origin: int | None = None) -> str:
    """Write the statements that move an account to another branch."""
    known = "" if origin is None else f" and a_branch = {origin}"
    return (
        f"delete from account where a_id = {row}{known};"
        f" insert into account values ({branch}, {row}, {row % 50})"
    )


def counting(
    bank: Shards, *mutants: str, question: str = QUESTION, relation: str = "account"
) -> tuple[Any, list[Any], threading.Thread]:
    """Begin to ask in a thread, exactly; gives who asks, and where the answer will be.

    All that is waited for is waited for after the charge.
    """
    found: list[Any] = []
    opened: list[Any] = []
    ready = threading.Event()

    def ask() -> None:
        with silent(bank.near, relation, LATER, *mutants) as session:
            opened.append(session)
            ready.set()
            try:
                found.append(session.execute(question).fetchone()[0])
            except psycopg.Error as error:
                found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert ready.wait(120)
    return opened[0], found, thread


def waits(database: Any, pid: int | None = None) -> bool:
    """Whether somebody waits for a lock in a database: the service session of ``pid``."""
    asked = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
        " where not granted and datname = %s"
    )
    served = f" and pid in (select a.pid from pg_stat_activity a where leader_pid = {pid})"
    return bool(database.sql(asked + (served if pid else ""), database.name)[0][0])


@pytest.mark.parametrize(("mutants", "expected"), [((), ROWS), ((NO_LOCKS,), ROWS - 1)])
def test_a_row_that_is_moved_between_servers_while_they_are_read_is_seen_once(
    bank: Shards, mutants: tuple[str, ...], expected: int
) -> None:
    """While the second server cannot be read, a row goes from the third to the first."""
    bank.near.sql(move(9, 2), user="owner1")
    with bank.far[1].connect(autocommit=False) as keeper:
        keeper.execute("lock account, account_4")
        _, found, thread = counting(bank, *mutants)
        wait_until(lambda: waits(bank.far[1]))
        mover = threading.Thread(target=lambda: bank.near.sql(move(9, 0, 2), user="owner1"))
        mover.start()
        if mutants:
            mover.join(120)
        else:  # who reads holds SHARE until all servers have their snapshots
            wait_until(lambda: waits(bank.near))
        keeper.rollback()
        thread.join(120)
        mover.join(120)
    assert found == [expected]
    assert bank.near.sql("select a_branch from account where a_id = 9") == [(0,)]


@pytest.mark.parametrize(("mutants", "expected"), [((), ROWS), ((NO_SNAPSHOT,), ROWS + 1)])
def test_parts_here_are_read_as_of_the_same_moment(
    bank: Shards, mutants: tuple[str, ...], expected: int
) -> None:
    """A row leaves this server for another one after the statement's snapshot was taken."""
    bank.near.sql(move(13, 6), user="owner1")
    with bank.near.connect("owner1", autocommit=False) as mover:
        mover.execute(move(13, 0))
        session, found, thread = counting(bank, *mutants)
        wait_until(lambda: waits(bank.near, session.info.backend_pid))
        mover.commit()
        thread.join(120)
    assert found == [expected]


def test_many_movers_are_never_caught_between(bank: Shards) -> None:
    """As many accounts whenever they are counted, while two move them about at random."""
    seed = 20261123
    print(f"seed {seed}")  # noqa: T201
    stop = threading.Event()
    moved: list[int] = []

    def run(number: int) -> None:
        chosen = random.Random(seed + number)
        with bank.near.connect("owner1", autocommit=False) as mover:
            while not stop.is_set():
                # each has rows of its own; in either order of the parts
                row = 2 * chosen.randrange(1, ROWS // 2) + number
                mover.execute(move(row, chosen.randrange(7)))
                mover.commit()
                moved.append(row)

    movers = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for mover in movers:
        mover.start()
    try:
        with silent(bank.near, "account") as session:
            found = []
            end = time.monotonic() + 120
            while (len(found) < 25 or len(moved) <= 25) and time.monotonic() < end:
                found.append(session.execute(QUESTION).fetchone()[0])
    finally:
        stop.set()
        for mover in movers:
            mover.join(120)
    assert len(moved) > 25
    assert set(found) == {ROWS}


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_each_question_of_a_transaction_has_a_moment_of_its_own(bank: Shards, level: str) -> None:
    """What the other servers showed to the question before does not last."""
    bank.near.sql(move(20, 6), user="owner1")
    with silent(bank.near, "account") as session:
        session.execute(f"begin isolation level {level}")
        counted = "select dp_count(*) from account where a_id = 20 and a_branch = {}"
        assert session.execute(counted.format(6)).fetchone() == (1,)
        bank.near.sql(move(20, 1), user="owner1")
        assert session.execute(counted.format(6)).fetchone() == (0,)
        assert session.execute(counted.format(1)).fetchone() == (1,)
        session.execute("savepoint a")
        assert session.execute(QUESTION).fetchone() == (ROWS,)
        session.execute("rollback to a")
        bank.near.sql(move(20, 6), user="owner1")
        assert session.execute(counted.format(1)).fetchone() == (0,)
        session.execute("rollback")


def refused(session: Any, sql: str) -> tuple[str | None, str | None]:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(sql)
    diagnosis = caught.value.diag
    return diagnosis.sqlstate, diagnosis.message_primary


def test_questions_on_other_relations_of_a_server_come_before(bank: Shards) -> None:
    other = "create table far_only (f_id int)"
    bank.far[0].sql(f"{other}; grant select on far_only to public; insert into far_only values (1)")
    bank.near.sql(
        "create foreign table far_only (f_id int) server shard0;"
        " alter foreign table far_only owner to owner1"
    )
    bank.near.sql("select dp.protect('far_only')", user="owner1")
    with silent(bank.near, "account") as session:
        session.execute("begin")
        assert session.execute("select dp_count(*) from far_only").fetchone() == (1,)
        assert session.execute(QUESTION).fetchone() == (ROWS,)
        session.execute("rollback")


@pytest.mark.parametrize(
    "change",
    [
        "update account set a_holder = 1 where a_id = 1",
        # a foreign table alone: the transaction has no ID here
        "update account_0 set a_holder = 1 where a_id = 7",
        "lock account in share mode",
    ],
)
def test_what_the_transaction_changed_itself_is_refused_and_free(bank: Shards, change: str) -> None:
    spent = "select count(*) from dp.spend"
    before = bank.near.sql(spent)
    with bank.near.connect("owner1") as owner:
        owner.execute(f"begin; {change}")
        assert refused(owner, QUESTION) == (
            "PD011",
            "this transaction has changed a relation of the question",
        )
        owner.execute("rollback")
    assert bank.near.sql(spent) == before


def test_writers_are_not_stopped_while_rows_are_read(bank: Shards) -> None:
    """The locks end before anything is counted, and what is written then is not seen."""
    with bank.near.connect() as keeper:
        keeper.execute("select pg_advisory_lock(9)")
        session, found, thread = counting(bank, MET)
        wait_until(lambda: waits(bank.near, session.info.backend_pid))
        held = (
            "select count(*) from pg_locks join pg_stat_activity a using (pid)"
            " where %s in (pid, leader_pid) and granted and mode = 'ShareLock'"
            " and locktype = 'relation'"
        )
        assert bank.near.sql(held, session.info.backend_pid) == [(0,)]
        added = "insert into account values (3, 1000, 1)"
        bank.near.sql(f"{move(30, 3)}; {added}", user="owner1")
        keeper.execute("select pg_advisory_unlock(9)")
        thread.join(120)
    bank.near.sql("delete from account where a_id = 1000", user="owner1")
    assert found == [ROWS]


def test_waiting_for_writers_ends_with_the_timeouts_and_costs_nothing(bank: Shards) -> None:
    """Alice waits for a writer; lock_timeout and statement_timeout both end that."""
    spent = "select count(*) from dp.spend"
    before = bank.near.sql(spent)
    with bank.near.connect("owner1", autocommit=False) as writer:
        writer.execute(move(40, 3))
        for setting, state in (("lock_timeout", "55P03"), ("statement_timeout", "57014")):
            with bank.near.connect("alice") as alice:
                alice.execute(f"set dp.fresh = on; set {setting} = '300ms'")
                assert refused(alice, QUESTION)[0] == state
        writer.rollback()
    assert bank.near.sql(spent) == before


def test_public_relations_on_the_same_servers_give_groups(bank: Shards) -> None:
    """They are read before the charge, and only after the common moment."""
    bank.table(
        "branch",
        "b_id int not null, b_name text",
        "b_id",
        method="list",
        bounds=[f"in ({i})" for i in range(3)],
        declare="select dp.declare_public('branch')",
    )
    bank.near.sql("insert into branch values (0, 'a'), (1, 'b'), (2, 'b')", user="owner1")
    with silent(bank.near, "account") as session:
        rows = session.execute(
            "select b_name, dp_count(*) from account join branch on a_branch = b_id"
            " group by b_name order by 1"
        ).fetchall()
    stored = "select case a_branch when 0 then 'a' else 'b' end, count(*) from account"
    assert rows == bank.near.sql(f"{stored} where a_branch < 3 group by 1 order by 1")
