"""An open transaction does not block others by the calls that it made before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.asking import refused, state
from tests.server.releasing import declare, release, rows, spent
from tests.server.test_releases_ledger import grant
from tests.server.waiting import wait_until, waits

pytestmark = pytest.mark.server

ONE = "select s_place, dp_count(*) from sale group by s_place"
JOIN = "select p_name, dp_count(*) from sale join place on s_place = p_id group by p_name"
ASKED = "select dp_count(*) from sale where s_place = 2"
SYNTHESIS = (
    "select dp.synthesize_query('copy', array['public.{0}'::regclass::oid], '1', '1e-6', 'pairs',"
    " null, null, '{{}}', 32, false, false)"
)
#: Calls that only read; the text of the question is an argument of each.
READING = [
    f"select dp.release('r', $${JOIN}$$, epsilon => 1)",
    f"select * from dp.plan_release($${JOIN}$$, epsilon => 1)",
    f"select * from dp.query($${JOIN}$$)",
    f"select * from dp.query($${ASKED}$$, 0.9)",
    f"select * from dp.explain($${JOIN}$$)",
    f"select * from dp.estimate($${JOIN}$$)",
    "select * from dp.suggest_bounds('sale', 's_pieces')",
    SYNTHESIS.format("sale"),
]
#: Part of the message of a refusal because of another open transaction.
OPEN = "has not ended"


@pytest.fixture
def sales(database: Any) -> Any:
    declare(database)
    database.sql(f"grant create on database {database.name} to alice")
    database.sql("grant select, references on place to alice")
    return database


@pytest.fixture
def alice(sales: Any) -> Iterator[Any]:
    with sales.connect("alice") as session:
        yield session


@pytest.fixture
def opened(sales: Any) -> Iterator[Any]:
    """A session of alice without autocommit."""
    with sales.connect("alice", autocommit=False) as session:
        yield session


@pytest.fixture
def owner(sales: Any) -> Iterator[Any]:
    """The owner, with a `lock_timeout`, so that a lock that somebody keeps raises an error."""
    with sales.connect("owner1") as session:
        session.execute("set lock_timeout = '5s'")
        yield session


@pytest.mark.parametrize("statement", READING)
def test_what_was_read_can_be_altered(opened: Any, owner: Any, statement: str) -> None:
    opened.execute(statement)
    for relation in ("sale", "place"):
        owner.execute(f"alter table {relation} add column later int")
        owner.execute(f"alter table {relation} drop column later")
    opened.commit()


def test_what_was_refused_can_be_altered(opened: Any, owner: Any) -> None:
    opened.execute("savepoint s")
    for statement in READING[:3]:
        assert state(opened, statement.replace("dp_count(*)", "dp_count(*), 1 / s_id")) is not None
        opened.execute("rollback to s")
        owner.execute("alter table sale add column later int; alter table sale drop column later")


def test_what_the_transaction_locked_itself_stays_locked(opened: Any, owner: Any) -> None:
    """Also if a question reads the same relation afterwards."""
    opened.execute("declare c cursor for select dp_count(*) from sale")
    opened.execute(f"select * from dp.query($${ONE}$$)")
    owner.execute("set lock_timeout = '200ms'")
    assert state(owner, "alter table sale add column later int") == "55P03"
    assert opened.execute("fetch c").fetchone()
    opened.commit()
    owner.execute("alter table sale add column later int")


@contextmanager
def waiting(sales: Any, statement: str) -> Iterator[list[psycopg.Error]]:
    """While ``statement`` waits for its charge; afterwards, the error that it ended with.

    The session has analysed its question before.
    """
    with sales.connect("alice") as session, sales.connect(autocommit=False) as blocking:
        session.execute("set dp.fresh = on")
        session.execute(READING[3])
        blocking.execute("lock table dp.spend in share mode")
        found: list[psycopg.Error] = []

        def ask() -> None:
            try:
                session.execute(statement)
            except psycopg.Error as error:
                found.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: waits(sales))
        yield found
        blocking.rollback()
        thread.join()


@pytest.mark.parametrize("statement", [READING[0], READING[2], READING[3]])
def test_what_is_read_cannot_be_altered(sales: Any, statement: str) -> None:
    """Relations stay locked from the analysis to the last row; here the call waits for its charge."""
    with sales.connect("owner1") as changing, waiting(sales, statement) as found:
        changing.execute("set lock_timeout = '200ms'")
        assert state(changing, "alter table sale add column later int") == "55P03"
    assert found == []


@pytest.mark.parametrize("statement", [READING[2], READING[3]])
def test_what_is_declared_while_a_question_waits_for_its_charge(sales: Any, statement: str) -> None:
    """It is charged, and not read as what it was not priced as."""
    with sales.connect("owner1") as changing, waiting(sales, statement) as found:
        changing.execute("set lock_timeout = '5s'")
        changing.execute("select dp.set_domain('sale', 's_place', 1, 3)")
    (error,) = found
    assert (error.sqlstate, error.diag.message_primary) == (
        "PD900",
        "a relation or a declaration changed while it was read",
    )
    assert spent(sales)[0] == 2


def test_a_name_that_another_transaction_keeps_is_refused_at_once(
    sales: Any, alice: Any, opened: Any
) -> None:
    alice.execute("set dp.fresh = on")
    release(opened, "r", ONE, epsilon=1)
    before = spent(sales)
    error = refused(alice, f"select dp.release('r', $${ONE}$$, epsilon => 1)")
    assert error.sqlstate == "PD040"
    assert OPEN in str(error)
    assert str(opened.info.backend_pid) in str(error.diag.message_detail)
    assert "other name" in str(error.diag.message_hint)
    assert spent(sales) == before
    release(alice, "s", ONE, epsilon=1)
    opened.rollback()
    release(alice, "r", ONE, epsilon=1)
    # replacing a release reserves its name, too
    opened.execute("select dp.refresh_release('r')")
    before = spent(sales)
    assert OPEN in str(refused(alice, "select dp.refresh_release('r')"))
    assert spent(sales) == before


def test_a_prepared_transaction_keeps_a_name_and_no_relation(make_server: Any) -> None:
    """A prepared transaction has no process, and no disconnect ends it."""
    sales = declare(make_server(max_prepared_transactions=1).create_database())
    with (
        sales.connect("alice", autocommit=False) as opened,
        sales.connect("alice") as alice,
        sales.connect("owner1") as owner,
    ):
        release(opened, "r", ONE, epsilon=1)
        opened.execute("prepare transaction 'kept'")
        error = refused(alice, f"select dp.release('r', $${ONE}$$, epsilon => 1)")
        assert OPEN in str(error)
        assert "pg_prepared_xacts" in str(error.diag.message_detail)
        owner.execute("set lock_timeout = '5s'")
        owner.execute("alter table sale add column later int")
        alice.execute("rollback prepared 'kept'")


def test_a_name_that_is_kept_does_not_hinder_who_protects(
    sales: Any, alice: Any, opened: Any
) -> None:
    sales.sql("create table public.later (a int); alter table public.later owner to owner1")
    release(opened, "later", ONE, epsilon=1)
    with sales.connect("owner1", autocommit=False) as owner:
        owner.execute("set statement_timeout = '60s'")
        owner.execute("select dp.protect('public.later')")
        shown = "select name::text from dp.shown_relation where relation = 'public.later'::regclass"
        with sales.connect("alice") as other:
            # the name that dp.protect chose instead is reserved, too
            assert OPEN in str(refused(other, f"select dp.release('public_later', $${ONE}$$)"))
        owner.commit()
    assert sales.sql(shown) == [("public_later",)]
    opened.commit()
    assert rows(alice, "later")


def test_a_reader_keeps_a_release_and_nobody_pays(sales: Any, alice: Any) -> None:
    release(alice, "r", ONE, epsilon=1)
    grant(sales, "bob", 5)
    sales.sql("select dp.share_release('r', 'bob')", user="owner1")
    with sales.connect("bob", autocommit=False) as bob:
        numbers = rows(bob, "r")
        before = spent(sales)
        for function in ("refresh_release", "drop_release"):
            error = refused(alice, f"select dp.{function}('r')")
            assert error.sqlstate == "PD040"
            assert OPEN in str(error)
            assert str(bob.info.backend_pid) in str(error.diag.message_detail)
        assert spent(sales) == before
        assert rows(bob, "r") == numbers
        assert rows(alice, "r") == numbers
    alice.execute("select dp.refresh_release('r')")
    assert spent(sales)[0] == before[0] + 1
    alice.execute("select dp.drop_release('r')")


def test_a_release_that_is_being_replaced_is_shared_afterwards(
    sales: Any, alice: Any, opened: Any
) -> None:
    release(alice, "r", ONE, epsilon=1)
    grant(sales, "bob", 5)
    opened.execute("select dp.refresh_release('r')")
    with sales.connect("owner1") as owner:
        for call in ("share_release('r', 'bob')", "unshare_release('r', 'alice')"):
            assert OPEN in str(refused(owner, f"select dp.{call}"))
        assert spent(sales, "bob") == (0, 0)
        opened.commit()
        owner.execute("select dp.share_release('r', 'bob')")
    assert spent(sales, "bob") == (1, 1)


@pytest.mark.parametrize("call", ["dp.refresh_release('r')", "dp.drop_release('r')"])
def test_no_question_waits_for_a_release(sales: Any, alice: Any, opened: Any, call: str) -> None:
    """A release that is being replaced or dropped answers no question, as if it did not exist."""
    release(alice, "r", ONE, epsilon=1)
    free = spent(sales)
    assert alice.execute(ASKED).fetchone()
    assert spent(sales) == free, "the release answered"
    opened.execute(f"select {call}")
    before = spent(sales)
    alice.execute("set statement_timeout = '60s'")
    assert alice.execute(ASKED).fetchone()
    assert spent(sales)[0] == before[0] + 1


PARTED = """
create table public.visit (v_id int primary key, v_kind boolean not null) partition by range (v_id);
create table public.visit_1 partition of public.visit for values from (0) to (1000);
create table public.visit_2 partition of public.visit for values from (1000) to (2000);
insert into public.visit select i, i % 2 = 0 from generate_series(0, 1999) i;
alter table public.visit owner to owner1;
alter table public.visit_1 owner to owner1;
alter table public.visit_2 owner to owner1;
"""


@pytest.mark.parametrize(
    "statement",
    [
        "select v_kind, dp_count(*) from visit group by v_kind",
        "select dp.release('r', 'select v_kind, dp_count(*) from visit group by v_kind')",
        SYNTHESIS.format("visit"),
    ],
)
@pytest.mark.parametrize("locked", ["visit_2", "visit_1_pkey"])
def test_locks_are_waited_for_before_the_charge(
    sales: Any, alice: Any, statement: str, locked: str
) -> None:
    """Also locks on partitions and indexes, which are not taken before rows are read."""
    sales.sql(PARTED)
    sales.sql("select dp.protect('public.visit')", user="owner1")
    alice.execute("set lock_timeout = '200ms'; set dp.epsilon = 1")
    with sales.connect(autocommit=False) as changing:
        changing.execute(
            "reindex index public.visit_1_pkey"
            if locked == "visit_1_pkey"
            else "lock table public.visit_2 in access exclusive mode"
        )
        for _ in range(4):  # one more than dp.failure_limit
            error = refused(alice, statement)
            assert error.sqlstate == "55P03"
            assert error.diag.context is None or "PL/Python" not in error.diag.context
        assert spent(sales) == (0, 0)
    alice.execute("reset lock_timeout")
    alice.execute(statement)
    assert spent(sales)[0] == 1
    assert sales.sql("select count(*) from dp.failures where failures > 0") == [(0,)]
