"""What dp.progress shows of releases and other long commands, to whom, and what a cancel leaves.

Commands are stopped at chosen places: their session's copy of the package waits there for a lock
that the test holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.asking import refused, state
from tests.server.in_service import everywhere
from tests.server.releasing import declare, spent
from tests.server.waiting import wait_until

pytestmark = pytest.mark.server

CUBE = "select s_state, s_big, s_day, dp_count(*) from sale group by cube (s_state, s_big, s_day)"
SHOWN = """select command, relation::text, phase, rounds_done, rounds_total, budget_used, budget, budget_unit
  from dp.progress"""
#: Makes a session wait wherever it enters a phase, or has done a round, of that name.
STOP = everywhere("""
from dpsql.engine.progress import Phase, Progress

def stop(self, place):
    if place == '{place}':
        self._database.execute("select pg_advisory_xact_lock_shared(4711) is null as held")

def phase(self, phase, total=None):
    self.now = phase.name
    enter(self, phase, total)
    stop(self, phase.name if total is None else phase.name + ' 0')

def rounds(self, done, *rest):
    tell(self, done, *rest)
    stop(self, self.now + ' ' + str(done))

def end(self):
    stop(self, 'END')
    finish(self)

enter, tell, finish = Progress.phase, Progress._rounds, Progress.end
Progress.phase, Progress._rounds, Progress.end = phase, rounds, end
""")


@pytest.fixture
def sales(database: Any) -> Any:
    return declare(database)


class Stopped:
    """A statement that waits at a place until the test lets it go on; ``begun`` is before it."""

    def __init__(self, database: Any, role: str, place: str, statement: str) -> None:
        self.error: psycopg.Error | None = None
        self._holder = database.connect()
        self._holder.execute("select pg_advisory_lock(4711)")
        self.session = database.connect()
        self.session.execute("select * from dp.explain('select dp_count(*) from sale')")  # imports
        self.session.execute(STOP.format(place=place))
        self.session.execute(f"set session authorization {role}")
        self.pid = self.session.info.backend_pid
        ((self.begun,),) = self._holder.execute("select clock_timestamp()").fetchall()
        self._thread = threading.Thread(target=self._run, args=(statement,))
        self._thread.start()
        waits = (
            "select count(*) from pg_locks as l join pg_stat_activity as a on a.pid = l.pid"
            " where %s in (a.pid, a.leader_pid) and locktype = 'advisory' and objid = 4711"
            " and not granted"
        )
        wait_until(
            lambda: (
                self._holder.execute(waits, (self.pid,)).fetchone() == (1,)
                or not self._thread.is_alive()
            )
        )
        assert self._thread.is_alive(), self.error

    def _run(self, statement: str) -> None:
        try:
            self.session.execute(statement)
        except psycopg.Error as error:
            self.error = error

    def cancel(self) -> float:
        """Cancel it; return how long it took.

        By one signal: of a cancel request a backend gets two, of which the other may come later
        and end what the session does then.
        """
        begun = time.monotonic()
        self._holder.execute("select pg_cancel_backend(%s)", (self.pid,))
        self._thread.join()
        assert self.error is not None
        assert self.error.sqlstate == "57014"
        return time.monotonic() - begun

    def go_on(self) -> None:
        self._holder.execute("select pg_advisory_unlock(4711)")
        self._thread.join()

    def close(self) -> None:
        self._holder.close()
        self._thread.join()
        self.session.close()


@contextmanager
def stopped(database: Any, place: str, statement: str, role: str = "alice") -> Iterator[Stopped]:
    found = Stopped(database, role, place, statement)
    try:
        yield found
    finally:
        found.close()


def call(mechanism: str = "auto", *, name: str = "r", query: str = CUBE, more: str = "") -> str:
    return f"select dp.release('{name}', $${query}$$, 1, 1e-9, mechanism => '{mechanism}' {more})"


def shown(database: Any, role: str = "alice") -> list[Any]:
    found: list[Any] = database.sql(SHOWN, user=role)
    return found


# -- what is shown, and what a cancel leaves -------------------------------------------------


@pytest.mark.parametrize(
    ("place", "mechanism", "phase", "charges", "kept"),
    [
        ("SELECTING 1", "auto", "selecting a strategy", 0, False),
        ("MEASURING", "residual_planner", "measuring", 1, False),
        ("MEASURING 3", "residual_planner", "measuring", 1, False),
        ("MEASURING 2", "aim", "measuring", 1, False),
        ("PUBLISHING", "residual_planner", "publishing", 1, False),
        ("PUBLISHING 0", "residual_planner", "publishing", 1, True),
        ("PUBLISHING 0", "aim", "publishing", 1, True),
        ("POSTPROCESSING 0", "aim", "post-processing", 1, True),
    ],
)
def test_a_release_that_is_cancelled(
    sales: Any, place: str, mechanism: str, phase: str, charges: int, kept: bool
) -> None:
    """Paid and lost before all is measured and stored; paid and found again after that."""
    more = ", postprocess => 'non_negative'" if place == "POSTPROCESSING 0" else ""
    statement = call(mechanism, more=more)
    with stopped(sales, place, statement) as victim:
        ((*what, done, total, used, budget, unit),) = shown(sales)
        assert what == ["release", "sale", phase]
        assert sales.sql("select pid from dp.progress", user="alice") == [(victim.pid,)]
        match place:
            case "SELECTING 1":
                assert (done, budget) == (1, None)
                assert total > 1
            case "MEASURING":  # before rows are read: of reading itself nothing is counted
                assert (done, total, used, budget, unit) == (None, None, None, None, None)
            case "MEASURING 3":
                assert (done, total, unit) == (3, 8, "rho")
                assert 0 < used < budget
            case "MEASURING 2":
                assert (done, total, unit) == (2, None, "rho")
                assert 0 < used < budget
            case "PUBLISHING":
                assert (done, total) == (None, None)
                assert used == pytest.approx(budget)
            case _:
                # 3 states and NULL, 2 values and NULL, 4 days, each with a total
                assert (done, total) == (0, 5 * 4 * 5)
                assert 0 < used <= budget * (1 + 1e-12)
        # milliseconds, on a machine that does nothing else; without a cancel it would never end
        assert victim.cancel() < 60
        assert shown(sales) == []
        assert spent(sales) == (charges, charges)
        assert sales.sql("select count(*) from dp.releases", user="alice") == [(0,)]
        assert state(victim.session, "select * from dpv.r") == "42P01"
    with sales.connect("alice") as alice:
        began = time.monotonic()
        alice.execute(statement)
        assert time.monotonic() - began < 300, "nobody is waited for"
    again = charges if kept else charges + 1
    assert spent(sales) == (again, again)
    assert shown(sales) == []


# -- how far it is ---------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "left"), [("MEASURING 0", 0), ("MEASURING 1", 7), ("END", 0)])
def test_time_left_follows_from_rounds(sales: Any, place: str, left: int) -> None:
    with stopped(sales, place, call("residual_planner")) as running:
        ((began, estimate),) = sales.sql(
            "select started_at between %s and now(), time_left from dp.progress",
            running.begun,
            user="alice",
        )
        assert began
        if place == "MEASURING 0":
            assert estimate is None
        elif place == "END":
            assert estimate.total_seconds() == 0
        else:
            assert estimate is None or 0 <= estimate.total_seconds() < 60 * left
            # a round that lasts: once its expected end has passed nothing is said
            told = "select time_left from dp.progress"
            wait_until(lambda: sales.sql(told, user="alice") == [(None,)], seconds=60 * left)


def test_rows_are_counted_while_they_are_written(sales: Any) -> None:
    with stopped(sales, "END", call("identity")) as running:
        assert shown(sales)[0][2:5] == ("publishing", 100, 100)
        running.go_on()
        assert running.error is None
        assert sales.sql("select count(*) from dpv.r", user="alice") == [(100,)]
        assert shown(sales) == []


def test_an_answer_that_is_found_again_uses_no_budget(sales: Any) -> None:
    with sales.connect("alice") as alice:
        alice.execute(call(name="first"))
    with stopped(sales, "PUBLISHING 0", call()):
        assert shown(sales) == [("release", "sale", "publishing", 0, 100, None, None, None)]


def test_laplace_noise_uses_epsilon(sales: Any) -> None:
    statement = f"select dp.release('r', $${CUBE}$$, 1, 0, mechanism => 'opt_m')"
    with stopped(sales, "MEASURING 1", statement):
        ((*_, done, total, used, budget, unit),) = shown(sales)
        assert 1 <= done <= total
        assert 0 < used <= budget
        assert (budget, unit) == (pytest.approx(1, rel=1e-3), "epsilon")


def test_plans_are_shown_too(sales: Any) -> None:
    with stopped(sales, "SELECTING 2", f"select * from dp.plan_release($${CUBE}$$, 1, 1e-9)"):
        ((command, _, phase, done, total, *budget),) = shown(sales)
        assert (command, phase, done) == ("plan", "selecting a strategy", 2)
        assert total > 2
        assert budget == [None, None, None]
        assert shown(sales, "owner1") == shown(sales, "alice")


def test_refreshes_count_sets_of_columns_and_questions(sales: Any) -> None:
    question = "select dp_count(*) from sale a join sale b on a.s_place = b.s_place"
    with sales.connect("owner1") as owner:
        owner.execute("select dp.collect_statistics('sale')")
        owner.execute("select dp.keep_statistics(%s)", (question,))
    refresh = "select dp.refresh_statistics('sale')"
    for place, phase in (("FREQUENCIES 2", "counting frequencies"), ("BOUNDARIES 1", None)):
        with stopped(sales, place, refresh, role="owner1") as running:
            ((*what, done, total, used, budget, unit),) = shown(sales, "owner1")
            assert what == ["refresh", "sale", phase or "counting boundaries"]
            assert (used, budget, unit) == (None, None, None)
            assert done < total if phase else (done, total) == (1, 1)
            assert shown(sales) == []
            running.go_on()
            assert running.error is None
            assert shown(sales, "owner1") == []
    sketch = f"select dp.create_sketch($${question}$$, 64)"
    with stopped(sales, "SKETCHING 1", sketch, role="owner1"):
        assert shown(sales, "owner1")[0][:5] == ("sketch", "sale", "building sketches", 1, 2)


# -- to whom ---------------------------------------------------------------------------------


def test_numbers_are_for_who_pays_and_for_owners_of_all_that_is_protected(sales: Any) -> None:
    sales.sql(
        "alter table place owner to mallory; grant dp_owner to mallory;"
        "select dp.grant_budget('bob', 10)"
    )
    joined = (
        "select p_name, s_state, dp_count(*) from sale join place on s_place = p_id group by 1, 2"
    )
    with stopped(sales, "MEASURING 1", call("aim", query=joined)):
        ((*what, done, total, used, budget, unit),) = shown(sales)
        assert what == ["release", "sale", "measuring"]
        assert (done, total, unit) == (1, None, "rho")
        assert 0 < used < budget
        assert shown(sales, "owner1") == shown(sales)
        # owns what is joined and public: the phase, and neither rounds nor budget nor time
        assert shown(sales, "mallory") == [("release", "place", "measuring", *[None] * 5)]
        assert sales.sql("select time_left from dp.progress", user="mallory") == [(None,)]
        # others, though they ask questions, and owners who administer nothing: no row
        assert shown(sales, "bob") == []
        sales.sql("revoke dp_owner from owner1; grant dp_analyst to owner1")
        assert shown(sales, "owner1") == []
    sales.sql("revoke dp_owner from mallory; revoke dp_analyst from owner1")


def test_one_of_two_owners_sees_no_numbers(sales: Any) -> None:
    """Of a release over two protected relations numbers are for who owns both."""
    sales.sql(
        """create table public.shop (o_id int primary key, o_open boolean not null);
        insert into public.shop select i, i % 2 = 0 from generate_series(1, 9) i;
        create table public.visit (v_id int primary key, v_shop int not null references public.shop,
          v_state public.state);
        insert into public.visit select i, 1 + i % 9, 'open' from generate_series(1, 99) i;
        grant references on public.shop to owner1;
        alter table public.visit owner to owner1; alter table public.shop owner to owner1;"""
    )
    with sales.connect("owner1") as owner:
        owner.execute("select dp.protect('shop', privacy_unit => 'o_id')")
    sales.sql("alter table public.shop owner to mallory; grant dp_owner to mallory")
    joined = (
        "select o_open, v_state, dp_count(*) from visit join shop on v_shop = o_id group by 1, 2"
    )
    statement = call("aim", query=joined)
    before = "do $$ begin perform set_config('dp.max_rows_contributed', '5', false); end $$;"
    with stopped(sales, "MEASURING 1", before + statement):
        assert shown(sales)[0][3] == 1
        for owner in ("owner1", "mallory"):
            ((_, relation, phase, *numbers),) = shown(sales, owner)
            assert relation == {"owner1": "visit", "mallory": "shop"}[owner]
            assert phase == "measuring"
            assert numbers == [None] * 5
    sales.sql("revoke dp_owner from mallory")


def test_nobody_reads_or_writes_progress_itself(sales: Any) -> None:
    for role in ("alice", "owner1"):
        with sales.connect(role) as session:
            for function in (
                "progress_slots()",
                "keeps_progress()",
                "show_phase(3, 7, array[1::oid], 1)",
                "show_rounds(1, 2, null, 0, 1, 2)",
                "end_progress()",
            ):
                assert "permission denied" in str(refused(session, f"select dp.{function}"))


def test_another_database_shows_nothing(server: Any, sales: Any) -> None:
    other = declare(server.create_database())
    try:
        with stopped(sales, "MEASURING", call("identity")):
            assert len(shown(sales)) == 1
            assert shown(other) == shown(other, "owner1") == shown(other, "postgres") == []
    finally:
        server.drop_database(other)


# -- when it ends ----------------------------------------------------------------------------


def test_the_row_ends_with_the_command_however_that_ends(sales: Any) -> None:
    """In the middle of a transaction too: after success, and after errors that are caught."""
    failing = f"""do $do$ begin
      perform dp.release('r', $${CUBE}$$, 1, 1e-9, postprocess => 'integral', mechanism => 'identity');
      raise exception 'after it';
    exception when others then
      perform dp.release('s', $${CUBE}$$, 1, 1e-9, mechanism => 'opt_kron');
      perform pg_advisory_xact_lock(4712);
    end $do$"""
    with sales.connect("alice", autocommit=False) as alice:
        alice.execute(call(name="one"))
        assert shown(sales) == []
        alice.execute("savepoint s")
        assert state(alice, call(name="one")) == "PD040"
        assert shown(sales) == []
        alice.execute("rollback to s")
        alice.execute(failing)
        assert shown(sales) == []
        alice.commit()
    assert sales.sql("select name::text from dp.releases order by 1", user="alice") == [
        ("one",),
        ("s",),
    ]


def test_a_savepoint_that_is_rolled_back_takes_the_row_along(sales: Any) -> None:
    """A cancel that PL/pgSQL catches leaves no row, and the command that follows has its own."""
    caught = f"""do $do$ begin
      perform dp.release('r', $${CUBE}$$, 1, 1e-9, mechanism => 'identity');
    exception when query_canceled then
      perform pg_sleep(600);
    end $do$"""
    with stopped(sales, "MEASURING", caught) as victim:
        assert len(shown(sales)) == 1
        # one signal: of a cancel request a backend gets two, of which the other may come later
        sales.sql(f"select pg_cancel_backend({victim.pid})")
        sleeps = "select wait_event from pg_stat_activity where pid = %s"
        with sales.connect() as admin:
            wait_until(
                lambda: (
                    admin.execute(sleeps, (victim.pid,)).fetchone() == ("PgSleep",)
                    or victim.error is not None
                ),
                seconds=180,
            )
            assert victim.error is None
        assert shown(sales) == []
        victim.cancel()


def test_a_session_that_is_terminated_leaves_no_row(sales: Any) -> None:
    with stopped(sales, "MEASURING 2", call("aim")) as victim:
        assert len(shown(sales)) == 1
        sales.sql(f"select pg_terminate_backend({victim.pid})")
        wait_until(lambda: shown(sales) == [], seconds=180)
    assert spent(sales) == (1, 1)


# -- without shared memory -------------------------------------------------------------------


def test_without_the_library_at_server_start_locks_show_the_phase(make_server: Any) -> None:
    server = make_server(shared_preload_libraries="''")
    sales = declare(server.create_database())
    with stopped(sales, "MEASURING 1", call("identity")):
        assert shown(sales, "owner1") == [("release", "sale", "measuring", *[None] * 5)]
    sales.sql("select dp.grant_budget('bob', 10)")
    with sales.connect("alice", autocommit=False) as alice:
        alice.execute(call(name="another"))
        published = [("release", "sale", "publishing", *[None] * 5)]
        assert shown(sales) == shown(sales, "owner1") == published  # until the transaction ends
        assert shown(sales, "bob") == []
    assert shown(sales) == []
    with sales.connect("owner1") as owner:
        owner.execute("select dp.collect_statistics('sale')")
        with sales.connect("owner1", autocommit=False) as refreshing:
            refreshing.execute("select dp.refresh_statistics('sale')")
            # locks stay until the transaction ends
            assert shown(sales, "owner1") == [("refresh", "sale", "storing", *[None] * 5)]
        assert shown(sales, "owner1") == []
    # nobody else can pretend to refresh
    lock = f"select pg_advisory_lock_shared(((1685082880 + 2)::bigint << 32) | {_oid(sales)})"
    with sales.connect("alice") as alice:
        alice.execute(lock)
        assert shown(sales, "owner1") == []


def _oid(sales: Any) -> int:
    return int(sales.sql("select 'sale'::regclass::oid::bigint")[0][0])
