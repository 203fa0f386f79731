"""Questions that are answered in a service session (sql/hook/service.c)."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tests.server.conftest import declare
from tests.server.in_service import in_service, value_in_service
from tests.server.waiting import connected
from tests.server.waiting import wait_until as until

COUNT = "select dp_count(*) from client"
#: The same as dp.run is given it.
NAMED = "select public.dp_count(*) from public.client"
SLOW = (
    "select dp_count(*) from purchase a, purchase b, purchase c"
    " where a.p_flag = b.p_flag and b.p_flag = c.p_flag and a.p_amount < b.p_amount"
    " and b.p_amount < c.p_amount"
)
SERVICES = (
    "select pid from pg_stat_activity"
    " where datname = current_database() and application_name = 'dpsql_service'"
)


def test_another_backend_answers(shop: Any) -> None:
    with shop.connect("alice") as alice:
        answer = alice.execute(COUNT).fetchone()
        again = alice.execute(COUNT).fetchone()
        found = shop.sql(
            "select usename, leader_pid from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and leader_pid is not null"
        )
        assert found == [("dp_executor", alice.info.backend_pid)]
    assert answer == again
    assert shop.sql("select count(*), min(state) from dp.spend") == [(1, "answered")]


def test_a_refusal_points_into_the_askers_statement(shop: Any) -> None:
    with shop.connect("alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute(f"{COUNT} where c_id > random()")
    assert caught.value.sqlstate == "PD013"
    assert caught.value.diag.statement_position == "45"
    assert caught.value.diag.context is None


def test_nobody_else_can_call_the_procedure(shop: Any) -> None:
    arguments = "null, 'run', 'select 1', null, null, 10, pg_backend_pid(), false, 0, '', 'UTC'"
    for role in ("alice", "owner1", "postgres"):
        with pytest.raises(psycopg.Error) as caught:
            shop.sql(f"call dp.serve({arguments})", user=role)
        assert caught.value.sqlstate in ("42501", "PD070")
    with pytest.raises(psycopg.OperationalError):  # peer: root is not the server's user
        shop.connect("dp_executor")


def test_rows_of_an_open_transaction_are_refused_and_those_of_others_not_seen(shop: Any) -> None:
    shop.sql("grant insert on client to alice")
    with shop.connect("alice") as alice:
        alice.execute("begin")
        alice.execute("insert into client values (5000, 1, '2000-01-01', 'a')")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(COUNT)
        assert caught.value.sqlstate == "PD011"
        alice.execute("rollback")
        alice.execute(COUNT)
    assert shop.sql("select count(*) from dp.spend") == [(1,)]


def test_locks_of_the_asker_and_of_who_waits_for_it_do_not_block_the_service(shop: Any) -> None:
    shop.sql("create role lord superuser login")
    try:
        shop.sql("select dp.grant_budget('lord', 10, 1e-6)")
        with shop.connect("lord") as lord, shop.connect() as other:
            lord.execute("begin")
            lord.execute("lock table client in access share mode")
            waits = threading.Thread(
                target=other.execute, args=("lock table client in access exclusive mode; select 1",)
            )
            waits.start()
            until(lambda: shop.sql("select 1 from pg_locks where not granted") != [])
            lord.execute("set statement_timeout = '60s'")
            lord.execute(COUNT)
            lord.execute("rollback")
            waits.join()
            lord.execute("begin")
            lord.execute("lock table client in access exclusive mode")
            with pytest.raises(psycopg.Error) as caught:
                lord.execute(COUNT.replace("client", "client where c_id > 1"))
            assert caught.value.sqlstate == "PD011"
            lord.execute("rollback")
    finally:
        shop.sql("drop owned by lord; select dp.revoke_budget('lord'); drop role lord")


@pytest.mark.parametrize("end", ["pg_cancel_backend", "pg_terminate_backend"])
def test_the_end_of_the_asker_ends_the_service(shop: Any, end: str) -> None:
    with shop.connect("alice") as alice:
        alice.execute(COUNT)
        seen: list[str | None] = []

        def ask() -> None:
            try:
                alice.execute(SLOW)
            except psycopg.Error as error:
                seen.append(error.sqlstate)

        asks = threading.Thread(target=ask)
        asks.start()
        until(lambda: shop.sql("select 1 from dp.spend where state = 'charged'") != [])
        shop.sql(f"select {end}({alice.info.backend_pid})")
        until(lambda: shop.sql(f"{SERVICES} and state = 'active'") == [])

        asks.join()
        assert seen == (["57014"] if end == "pg_cancel_backend" else ["57P01"])
    assert shop.sql("select count(*) from dp.spend where state <> 'answered'") == [(1,)]


def test_a_service_that_dies_is_told_and_replaced(shop: Any) -> None:
    with shop.connect("alice") as alice:
        alice.execute(COUNT)
        seen: list[str | None] = []

        def ask() -> None:
            try:
                alice.execute(SLOW)
            except psycopg.Error as error:
                seen.append(error.sqlstate)

        asks = threading.Thread(target=ask)
        asks.start()
        until(lambda: shop.sql("select 1 from dp.spend where state = 'charged'") != [])
        shop.sql(f"select pg_terminate_backend(pid) from ({SERVICES}) as s")
        asks.join()
        assert seen[0] in ("57P01", "PD050")
        alice.execute(COUNT)  # a new service
        shop.sql(f"select pg_terminate_backend(pid) from ({SERVICES}) as s")
        until(lambda: shop.sql(SERVICES) == [])
        alice.execute(COUNT)  # it idled when it ended: nothing is told
    assert shop.sql("select count(*) from dp.spend where state = 'charged'") == [(1,)]


def test_no_code_of_the_asker_runs_in_the_service(shop: Any) -> None:
    shop.sql("create schema mine authorization alice")
    with shop.connect("alice") as alice:
        alice.execute(
            "create function mine.asks(int) returns bool language plpgsql as $$ begin"
            " perform set_config('mine.pid', pg_backend_pid()::text, false); return true; end $$"
        )
        alice.execute("create domain mine.odd as int check (mine.asks(value))")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(f"{COUNT} where c_id = any ('{{1}}'::mine.odd[])")
        assert caught.value.sqlstate == "PD013"
        assert "CHECK of a domain" in str(caught.value)


#: True in the asker's session; in the service session it runs a query and shows the result in an error.
TELLING = """current_setting('application_name') <> 'dpsql_service'
  or ('ran' || query_to_xml('select name from pg_cursors', true, true, '')::text)::int > 0"""
LITERALS = {
    "array": "c_id = any ('{1}'::mine.telling[])",
    "array of arrays": "c_id = any ('{{1}}'::mine.telling[])",
    "row": "('(1)'::mine.pair).a = c_id",
    "range": "c_id <@ ('[1,2]'::mine.span)::text::int4range",
    "multirange": "('{[1,2]}'::mine.spans)::text is not null",
    "column of the asker's view": "exists (select from mine.view where a = '{1}' and b = c_id)",
}


@pytest.mark.parametrize("literal", LITERALS.values(), ids=[*LITERALS])
def test_no_check_of_a_domain_runs_in_the_service(shop: Any, literal: str) -> None:
    """Functions that are built in read tables and tell what a session has looked up, too."""
    shop.sql("create schema mine authorization alice")
    with shop.connect("alice") as alice:
        alice.execute(f"create domain mine.telling as int check ({TELLING})")
        alice.execute("create type mine.pair as (a mine.telling)")
        alice.execute(
            "create type mine.span as range (subtype = mine.telling, multirange_type_name = mine.spans)"
        )
        alice.execute("create view mine.view as select null::mine.telling[] as a, 1 as b")
        for text in (
            f"{COUNT} where {literal}",
            f"select * from dp.explain($$ {COUNT} where {literal} $$)",
            f"select * from dp.estimate($$ {COUNT} where {literal} $$)",
            f"select dp.query($$ {COUNT} where {literal} $$, null)",
            f"select c_kind, dp_count(*) from client where {literal} group by c_kind having dp_count(*) > 3",
        ):
            with pytest.raises(psycopg.Error) as caught:
                alice.execute(text)
            assert caught.value.sqlstate == "PD013", text
            assert "CHECK of a domain" in str(caught.value)
            assert "ran" not in str(caught.value).replace("range", "")
        # a CHECK without a function: its message would show whose session it is
        alice.execute("create table mine.t (a int)")
        alice.execute("create type mine.none as enum ('b')")
        alice.execute("alter domain mine.telling drop constraint telling_check")
        alice.execute(
            "alter domain mine.telling add check"
            " (greatest(session_user, 'b'::name)::mine.none is not null) not valid"
        )
        for text, state in (
            (f"select * from dp.explain($$ {COUNT} where {literal} $$)", "PD013"),
            (f"select x from dp.run($$ {NAMED} where {literal} $$, null) as (x int)", "PD013"),
            (
                "select x from dp.run($$ select public.dp_count(*) into mine.made from public.client"
                f" where {literal} $$, null) as (x int)",
                "PD014",
            ),
            (
                "select x from dp.run($$ with w as (delete from mine.t returning 1)"
                f" {NAMED} where {literal} $$, null) as (x int)",
                "PD011",
            ),
        ):
            with pytest.raises(psycopg.Error) as caught:
                alice.execute(text)
            assert "dp_executor" not in str(caught.value), text
            assert caught.value.sqlstate == state, str(caught.value)
        assert alice.execute(f"{COUNT} where c_id = any ('{{1}}'::integer[])").fetchone()


def test_the_client_is_told_what_dpsql_says_and_nothing_else(shop: Any) -> None:
    heard: list[str | None] = []
    with shop.connect() as session:
        session.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        session.execute(
            in_service("""
            plpy.execute("select set_config('client_min_messages', 'debug5', false)")
            for say in (plpy.debug, plpy.log, plpy.info, plpy.notice, plpy.warning):
                say("overheard")
            plpy.execute("select dp.note('a note', '', ''), dp.warn('a warning', '', '')")""")
        )
    assert [text for text in heard if text != "there is no transaction in progress"] == [
        "a note",
        "a warning",
    ]


def test_who_cancels_and_asks_again_keeps_one_service_busy(shop: Any) -> None:
    with shop.connect() as session:
        session.execute(in_service("pass"))
        session.execute("set session authorization alice")
        stuck = value_in_service(
            "import threading; GD['go'] = threading.Event(); GD['go'].wait(20)"
        )
        session.execute("set statement_timeout = 200")
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute(f"select {stuck}")
        session.execute("set statement_timeout = 0")
        with pytest.raises(psycopg.Error) as caught:
            session.execute(COUNT)
        assert caught.value.sqlstate == "PD050"
        assert "has not ended yet" in str(caught.value)
        assert len(shop.sql(SERVICES)) == 1

        def answered() -> bool:
            try:
                return bool(session.execute(COUNT).fetchone())
            except psycopg.Error as error:
                if error.sqlstate != "PD050":
                    raise
                return False

        until(answered)


def test_a_session_that_closes_does_not_wait_for_an_idle_service(shop: Any) -> None:
    """The connection of a question that was cancelled and went on is closed as well."""
    with shop.connect() as session:
        session.execute(in_service("pass"))
        session.execute("set session authorization alice")
        session.execute("set statement_timeout = 200")
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute(f"select {value_in_service('import time; time.sleep(3)')}")
        pid = session.info.backend_pid
    shown = "select from pg_stat_activity where pid = %s or leader_pid = %s"
    until(lambda: shop.sql(shown, pid, pid) == [], 30)


def test_transactions_stack_and_settings_of_the_asker_do_not_reach_the_service(shop: Any) -> None:
    with shop.connect("alice") as alice:
        for setting in (
            "work_mem = '64kB'",
            "enable_hashjoin = off",
            "datestyle = 'German'",
            "lock_timeout = '1ms'",
            "default_transaction_isolation = 'serializable'",
            "client_min_messages = error",
        ):
            alice.execute(f"set {setting}")
        alice.execute("begin")
        alice.execute(COUNT)
        alice.execute(
            "create function pg_temp.deep(n int) returns bigint language plpgsql as $$ begin"
            " if n > 0 then return pg_temp.deep(n - 1); end if;"
            " return (select dp_count(*) from public.client where c_id > 3); end $$"
        )
        alice.execute("select pg_temp.deep(100)")
        alice.execute("commit")


def test_sessions_that_end_give_their_places_back(make_server: Any) -> None:
    """Its service ends with each; a lock group whose leader ends first keeps a place for ever."""
    shop = declare(make_server(max_connections="14").create_database())
    for _ in range(30):
        alice = connected(shop, "alice")
        alice.execute(COUNT)
        alice.close()
