"""Charged questions without an answer are counted, and too many block their role (docs/ledger.md)."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.server.asking import refused, unreadable
from tests.server.commanding import commander
from tests.server.conftest import declare
from tests.server.in_service import everywhere
from tests.server.waiting import wait_until

CLIENTS = "select dp_count(*) from client where c_id > {}"
JOIN = "select dp_count(*) from client join purchase on p_client = c_id where c_id > {}"
LIMIT = 3
#: Replaces the reading of rows: raises an error of a given SQLSTATE, or runs until it is cancelled.
READING = """
import time
import dpsql.engine.answer as it, dpsql.engine.release_measure as of_releases
kinds = {{kind.sqlstate: kind for kind in vars(plpy.spiexceptions).values() if hasattr(kind, "sqlstate")}}
def compute(*arguments):
    services = next(a for a in arguments if hasattr(a, "database"))
    if {state!r} == "":
        raise MemoryError
    if {state!r} in kinds:
        raise kinds[{state!r}]("secret")
    services.database.execute("select pg_catalog.set_config('application_name', 'computing', false)")
    while True:
        time.sleep(0.01)
        services.database.tick()
it.compute = of_releases.measure = compute
"""


@pytest.fixture
def shop(shop: Any) -> Any:
    """The shop with a second analyst."""
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', epsilon => 100, delta => 1e-5)")
    return shop


@contextmanager
def failing(shop: Any, state: str = "53100", role: str = "alice") -> Iterator[Any]:
    """Open a session in which every charged question ends in this way."""
    with shop.connect() as session:
        patch(session, state, role)
        yield session


def patch(session: Any, state: str, role: str = "alice") -> None:
    """Replace the reading, also in the service session that follows one that ended."""
    session.execute("reset session authorization")
    session.execute(everywhere(READING.format(state=state)))
    session.execute(f"set session authorization {role}")


def fail(shop: Any, number: int = LIMIT, question: str = CLIENTS, role: str = "alice") -> None:
    with failing(shop, role=role) as session:
        for i in range(number):
            assert refused(session, question.format(i)).sqlstate == "PD900"


def counted(shop: Any) -> dict[tuple[str | None, str], tuple[int, bool]]:
    rows = shop.sql(
        "select role::text, relation, failures, stopped from dp.failures where failures > 0",
        user="owner1",
    )
    return {(role, relation): (failures, stopped) for role, relation, failures, stopped in rows}


def spends(shop: Any) -> int:
    return int(shop.sql("select count(*) from dp.spend")[0][0])


def test_after_three_failures_a_role_is_refused_until_the_owner_resumes(shop: Any) -> None:
    with shop.connect(user="alice") as alice, shop.connect(user="owner1") as owner:
        paid = alice.execute(CLIENTS.format(100)).fetchone()
        fail(shop)
        before = spends(shop)
        error = refused(alice, CLIENTS.format(50))
        assert error.sqlstate == "PD003"
        assert (
            error.diag.message_primary
            == 'too many questions of role "alice" about relation public.client failed'
        )
        assert spends(shop) == before
        # stored answers, of this role or another, read no rows
        assert alice.execute(CLIENTS.format(100)).fetchone() == paid
        with shop.connect(user="bob") as bob:
            there = bob.execute(CLIENTS.format(70)).fetchone()
        assert alice.execute(CLIENTS.format(70)).fetchone() == there
        note = alice.execute(
            "select refused_by, note from dp.estimate($$ " + CLIENTS.format(50) + " $$)"
            " where refused_by is not null"
        ).fetchone()
        assert note is not None
        assert note[0] == "role"
        assert "failed" in note[1]
        # the hint, word for word
        statement = re.search(r"SELECT dp\.resume\(.*?\)", str(error.diag.message_hint))
        assert statement is not None
        assert owner.execute(statement[0]).fetchone() == (LIMIT,)
        assert alice.execute(CLIENTS.format(50)).fetchone()
        assert owner.execute(statement[0]).fetchone() == (0,)
    # counting starts again at one
    fail(shop, 1)
    assert counted(shop)["alice", "public.client"] == (1, False)


def test_explain_tells_that_failures_refuse(shop: Any) -> None:
    explain = f"select value from dp.explain($${CLIENTS.format(50)}$$) where item = 'refused'"
    fail(shop, 2)
    with shop.connect(user="alice") as alice:
        paid = CLIENTS.format(100)
        alice.execute(paid)
        assert alice.execute(explain).fetchall() == []
        fail(shop, 1)
        ((told,),) = alice.execute(explain).fetchall()
        error = refused(alice, CLIENTS.format(50))
        assert told.startswith(f"{error.diag.message_primary}. {error.diag.message_detail}")
        assert told.endswith(f"{error.diag.message_hint} (PD003)")
        # stored answers are shown
        assert alice.execute(explain.replace("c_id > 50", "c_id > 100")).fetchall() == []
    with shop.connect(user="bob") as bob:
        assert bob.execute(explain).fetchall() == []


def test_failures_are_shown(shop: Any) -> None:
    fail(shop, 2, JOIN)
    fail(shop, 1)
    with shop.connect(user="alice") as alice:
        assert refused(alice, CLIENTS.format(9)).sqlstate == "PD003"
        # the relation with fewer failures may have one more
        assert alice.execute("select dp_count(*) from purchase").fetchone()
        own = alice.execute(
            "select role::text, relation, failures, failure_limit, stopped from dp.failures order by 2"
        ).fetchall()
        assert own == [
            ("alice", "public.client", 3, 3, True),
            ("alice", "public.purchase", 2, 3, False),
        ]
        ledger = "select failure, count(*) from dp.ledger group by 1 order by 1"
        assert alice.execute(ledger).fetchall() == [("counted", 3), (None, 1)]
        told = alice.execute(
            "select sqlstate, reason from dp.refusals where sqlstate = 'PD003'"
        ).fetchall()
        assert told == [("PD003", "too many questions of the role failed")]
    with shop.connect(user="bob") as bob:
        assert bob.execute("select * from dp.failures").fetchall() == []
    assert counted(shop) == {
        ("alice", "public.client"): (3, True),
        ("alice", "public.purchase"): (2, False),
        (None, "public.client"): (3, False),
        (None, "public.purchase"): (2, False),
    }
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.resume('alice', 'client')")
        assert owner.execute(ledger).fetchall() == [("counted", 2), ("resumed", 1), (None, 1)]
        owner.execute("select dp.resume()")
        assert owner.execute(ledger).fetchall() == [("resumed", 3), (None, 1)]
    assert counted(shop) == {}


# no lock_timeout of the asker's ends a wait after the charge: 55P03 comes from another server then
@pytest.mark.parametrize(
    "state", ["53100", "53200", "54001", "XX000", "40001", "40P01", "55P03", ""]
)
def test_what_rows_may_have_decided_counts(shop: Any, state: str) -> None:
    with failing(shop, state) as session:
        assert refused(session, CLIENTS.format(1))
    assert counted(shop)["alice", "public.client"] == (1, False)


@pytest.mark.parametrize("state", ["57014"])
def test_what_time_or_the_asker_ended_does_not_count(shop: Any, state: str) -> None:
    with failing(shop, state) as session:
        for i in range(2 * LIMIT):
            assert refused(session, CLIENTS.format(i)).sqlstate == state
            # which reads in a function of its own
            release = f"select dp.release('r', 'select c_kind, dp_count(*) from client group by 1', {1 + i})"
            assert refused(session, release).sqlstate == state
    assert counted(shop) == {}
    assert shop.sql("select state, count(*) from dp.spend group by 1") == [("failed", 4 * LIMIT)]


def test_cancels_and_statement_timeouts_do_not_count(shop: Any) -> None:
    with failing(shop, "waits") as session:
        session.execute("set statement_timeout = '2s'")
        for i in range(LIMIT):
            assert refused(session, CLIENTS.format(i)).sqlstate == "57014"
            session.execute("set statement_timeout = 0")
            patch(session, "waits")  # who waits no longer ends the service
            session.execute("set statement_timeout = '2s'")
        session.execute("set statement_timeout = 0")
        for i in range(LIMIT):
            patch(session, "waits")
            canceller = threading.Thread(target=_cancel, args=(shop, session.info.backend_pid))
            canceller.start()
            assert refused(session, CLIENTS.format(10 + i)).sqlstate == "57014"
            canceller.join()
    assert counted(shop) == {}
    assert spends(shop) == 2 * LIMIT
    with shop.connect(user="alice") as alice:
        assert alice.execute(CLIENTS.format(50)).fetchone()


#: The asker's cancel arrives while the answer is stored.
STORING = """
from dpsql.server.own_transactions import OwnTransactions
def cancelled(run):
    def call(self, name, *rest):
        if name == "finish":
            raise plpy.spiexceptions.QueryCanceled("canceling statement due to user request")
        return run(self, name, *rest)
    return call
OwnTransactions.call = cancelled(OwnTransactions.call)
"""


@pytest.mark.parametrize(
    "statement",
    [
        CLIENTS.format(1),
        "select dp.release('r', 'select c_kind, dp_count(*) from client group by 1')",
    ],
)
def test_a_cancel_while_the_answer_is_stored_does_not_count(shop: Any, statement: str) -> None:
    with shop.connect() as session:
        session.execute(everywhere(STORING))
        session.execute("set session authorization alice")
        assert refused(session, statement).sqlstate in ("57014", "PD900")
        assert shop.sql("select state from dp.spend") == [("failed",)]
        assert shop.sql("select count(*) from dp.failure") == [(0,)]


#: The process that asks, and the one that computes.
ASKER, SERVICE = "coalesce(leader_pid, pid)", "pid"


def _computing(shop: Any, which: str = ASKER) -> list[int]:
    """Wait until a question is computed; return the processes."""
    asked = (
        f"select {which} from pg_stat_activity where application_name = 'computing'"
        " and state = 'active' and datname = current_database()"
    )
    wait_until(lambda: bool(shop.sql(asked)))
    return [pid for (pid,) in shop.sql(asked)]


def _cancel(shop: Any, pid: int) -> None:
    _computing(shop)
    shop.sql("select pg_cancel_backend(%s)", pid)


def _left_behind(shop: Any, end: Callable[[int], object], which: str = ASKER) -> None:
    """Start a question and end a process of it."""

    def ask() -> None:
        # if the service ends first, that may be heard before the server goes down
        ended = psycopg.OperationalError if which == ASKER else psycopg.Error
        with pytest.raises(ended), failing(shop, "waits") as session:
            session.execute(CLIENTS.format(1))

    asker = threading.Thread(target=ask)
    asker.start()
    (pid,) = _computing(shop, which)
    end(pid)
    asker.join(60)


def test_a_terminated_backend_has_failed(shop: Any) -> None:
    with shop.connect() as admin:
        _left_behind(
            shop, lambda pid: admin.execute("select pg_terminate_backend(%s, 60000)", (pid,))
        )
    wait_until(lambda: counted(shop).get(("alice", "public.client")) == (1, False))


def test_a_terminated_service_session_has_failed(shop: Any) -> None:
    heard: list[str] = []

    def ask() -> None:
        with failing(shop, "waits") as session:
            heard.append(str(refused(session, CLIENTS.format(1)).sqlstate))

    asker = threading.Thread(target=ask)
    asker.start()
    (pid,) = _computing(shop, SERVICE)
    shop.sql("select pg_terminate_backend(%s, 60000)", pid)
    asker.join(60)
    assert heard == ["PD050"]
    assert counted(shop)["alice", "public.client"] == (1, False)


def test_an_error_that_ends_the_session_has_failed(shop: Any) -> None:
    """An asker may choose this for any error."""
    alice = unreadable(shop, "alice")
    alice.execute("set exit_on_error = on")
    with pytest.raises(psycopg.Error):
        alice.execute(CLIENTS.format(1))
    assert alice.closed
    wait_until(lambda: counted(shop).get(("alice", "public.client")) == (1, False))


def test_a_killed_backend_has_failed(make_server: Callable[..., Any]) -> None:
    """The server restarts and loses all uncommitted changes."""
    server = make_server()
    shop = declare(server.create_database())

    def lives() -> bool:
        try:
            return bool(shop.sql("select 1"))
        except psycopg.Error:
            return False

    def kill(pid: int) -> None:
        """End the process and every session with it: until then the server may seem to live."""
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError), psycopg.connect(shop.conninfo()) as session:
            session.execute("select pg_sleep(120)")
        shop.close()

    for which in (ASKER, SERVICE, ASKER):
        _left_behind(shop, kill, which)
        wait_until(lives)
    assert counted(shop)["alice", "public.client"] == (LIMIT, True)
    with shop.connect(user="alice") as alice:
        assert refused(alice, CLIENTS.format(50)).sqlstate == "PD003"


def test_releases_fail_and_are_refused_alike(shop: Any) -> None:
    release = "select dp.release('r{0}', 'select c_kind, dp_count(*) from client group by 1', {1})"
    with failing(shop) as session:
        for i in range(LIMIT):
            assert refused(session, release.format(i, 1 + i)).sqlstate == "PD900"
    assert counted(shop)["alice", "public.client"] == (LIMIT, True)
    with shop.connect(user="alice") as alice:
        error = refused(alice, release.format("", 9))
        assert error.sqlstate == "PD003"
        assert "what was released before stays free" in str(error.diag.message_hint)


def test_after_a_failure_questions_wait_for_each_other(shop: Any) -> None:
    """Through backends: the contract of the ledger has the rest (tests/contract/failures.py)."""
    fail(shop, LIMIT - 1)
    heard: list[str] = []

    def ask(i: int) -> None:
        with failing(shop, "waits") as session:
            heard.append(str(refused(session, CLIENTS.format(100 + i)).sqlstate))

    askers = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for asker in askers:
        asker.start()
    for _ in askers:
        (pid,) = _computing(shop)
        assert shop.sql("select count(*) from dp.failure where failed_at is null") == [(1,)]
        shop.sql("select pg_cancel_backend(%s)", pid)
        wait_until(
            lambda done=pid: (
                shop.sql(
                    f"select 1 from pg_stat_activity where {ASKER} = %s and application_name = 'computing'"
                    " and state = 'active'",
                    done,
                )
                == []
            )
        )
    for asker in askers:
        asker.join(60)
    assert heard == ["57014"] * 3


def test_report_and_status_show_who_is_stopped(
    shop: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fail(shop)
    monkeypatch.setenv("DPSQL_DSN", shop.conninfo("owner1"))
    command = commander(capfd, monkeypatch)
    assert command("status", "--json").document["stopped"] == [
        {"role": "alice", "relation": "public.client", "failures": 3, "failure_limit": 3}
    ]
    assert "Refused after failures" in command("status").out
    assert command("report", "--html", str(tmp_path / "page.html")).code == 0
    page = (tmp_path / "page.html").read_text()
    assert '<td>alice</td><td>public.client</td><td class="n">3</td><td class="n">3</td>' in page
    shop.sql("select dp.resume()", user="owner1")
    assert command("status", "--json").document["stopped"] == []


def test_the_limit_is_the_owners(shop: Any) -> None:
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        owner.execute("select dp.set_failure_limit('client', 1)")
        fail(shop, 1)
        assert refused(alice, CLIENTS.format(50)).sqlstate == "PD003"
        owner.execute("select dp.set_failure_limit('client', 9, in_all => 1)")
        for role in ("alice", "bob"):
            with shop.connect(user=role) as session:
                error = refused(session, CLIENTS.format(50))
                assert error.sqlstate == "PD003"
                assert "of all roles about relation public.client" in str(error)
        statement = re.search(r"SELECT dp\.resume\(.*?\)", str(error.diag.message_hint))
        assert statement is not None
        owner.execute(statement[0])
        assert alice.execute(CLIENTS.format(50)).fetchone()
        for bad in ("0", "1001", "null", "3, 0", "3, in_all => 1001"):
            error = refused(owner, f"select dp.set_failure_limit('client', {bad})")
            assert error.sqlstate == "PD040"


def test_analysts_change_no_limit(shop: Any) -> None:
    fail(shop)
    with shop.connect(user="alice") as alice:
        for statement in (
            "select dp.resume('alice', 'client')",
            "select dp.set_failure_limit('client', 1000)",
            "delete from dp.failure",
            "insert into dp.resumption select spend, 1, 'alice' from dp.failure",
            "update dp.root set failure_limit = 1000",
        ):
            assert refused(alice, statement).sqlstate == "42501", statement
        assert refused(alice, "set dp.failure_limit = 1000").sqlstate == "42602"
        assert refused(alice, CLIENTS.format(50)).sqlstate == "PD003"
    # nor does an owner of other relations
    shop.sql("create role other_owner login in role dp_owner")
    try:
        with shop.connect(user="other_owner") as other:
            assert refused(other, "select dp.resume('alice', 'client')").sqlstate == "PD070"
            assert other.execute("select dp.resume('alice')").fetchone() == (0,)
    finally:
        shop.sql("drop role other_owner")
    with shop.connect(user="alice") as alice:
        assert refused(alice, CLIENTS.format(50)).sqlstate == "PD003"


def test_a_rolled_back_transaction_takes_no_failure_back(shop: Any) -> None:
    with failing(shop) as session:
        for i in range(LIMIT):
            session.execute("begin")
            assert refused(session, CLIENTS.format(i)).sqlstate == "PD900"
            session.execute("rollback")
        session.execute("begin")
        assert refused(session, CLIENTS.format(9)).sqlstate == "PD003"
        session.execute("rollback")


def test_a_resume_counts_once_it_is_committed(shop: Any) -> None:
    fail(shop)
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        with owner.transaction(force_rollback=True):
            owner.execute("select dp.resume('alice', 'client')")
            assert refused(alice, CLIENTS.format(50)).sqlstate == "PD003"
        assert refused(alice, CLIENTS.format(50)).sqlstate == "PD003"
