"""Maintenance runs owners' code in a superuser's session, and a view can take a table's name."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.server.asking import say
from tests.server.waiting import wait_until, waits

pytestmark = pytest.mark.server

SET_UP = """
create schema hs; grant usage on schema hs to public;
create table hs.x (a int); insert into hs.x select generate_series(1, 1237);
select dp.protect('hs.x');
create schema mal authorization mallory; grant usage on schema mal to public;
select dp.grant_budget('mallory', 50, 1e-3);
"""


@pytest.fixture
def shop(database: Any) -> Any:
    """A protected relation, and mallory with a budget and a schema."""
    database.sql(SET_UP)
    return database


def index_on_call(shop: Any, call: str) -> None:
    """Let mallory have an index whose expression calls something."""
    shop.sql(
        "create table mal.t (a int); insert into mal.t select generate_series(1, 10);"
        "create function mal.f(a int) returns int immutable language plpgsql as $f$ begin"
        " if current_setting('mal.armed', true) = 'yes' then"
        f" raise exception 'gave % to %', ({call}), current_user; end if; return a; end $f$;"
        "create index on mal.t (mal.f(a))",
        user="mallory",
    )


@pytest.mark.parametrize(
    ("call", "state"),
    [
        ("dp.unprotect('hs.x')", "PD070"),
        ("dp.declare_public('hs.x')", "PD070"),
        ("dp.grant_budget('mallory', 1000)", "PD070"),
        ("dp.caller()", "PD070"),
        ("select count(*) from dp.ledger", "PD070"),
        (
            "dp.sensitivity_of('SELECT public.dp_count(*) FROM hs.x', 'residual', 1, true, '')",
            "PD070",
        ),
        (
            "select r from dp.run_json('SELECT public.dp_count(*) FROM hs.x', null, '') as r",
            "P0001",
        ),
    ],
)
def test_maintenance_is_not_on_the_superusers_behalf(shop: Any, call: str, state: str) -> None:
    index_on_call(shop, call)
    shop.sql("grant dp_owner to mallory")
    try:
        with shop.connect() as admin:
            admin.execute("set mal.armed = 'yes'")
            said = say(admin, "analyze mal.t")
            assert said.startswith(state), said
            assert "postgres" not in said
        spent = shop.sql(
            "select count(*) from dp.spend s join dp.principal p on p.id = s.principal"
            " where p.role_name = 'postgres'"
        )
        assert spent == [(0,)]
    finally:
        shop.sql("revoke dp_owner from mallory")
    assert shop.sql("select kind from dp.relations where relation_name = 'x'") == [("protected",)]


def test_a_materialized_view_asks_on_its_owners_budget(shop: Any) -> None:
    with shop.connect(user="mallory") as mallory:
        mallory.execute("create materialized view mal.m as select dp_count(*) as n from hs.x")
        mallory.execute("set dp.fresh = on")
        mallory.execute("refresh materialized view mal.m")
    with shop.connect() as admin:
        admin.execute("set dp.fresh = on")
        admin.execute("refresh materialized view mal.m")
    rows = shop.sql(
        "select p.role_name, count(*) from dp.spend s join dp.principal p on p.id = s.principal"
        " group by 1"
    )
    assert rows == [("mallory", 3)]


def test_code_that_analysis_runs_is_its_writers(shop: Any) -> None:
    """A CHECK runs while a statement is read: as who wrote it, on nobody's behalf."""
    shop.sql(
        "create function mal.chk(v text) returns boolean language plpgsql as $f$ begin"
        " raise exception 'ran as %, for %', current_user, dp.caller()::regrole; end $f$;"
        "create domain mal.dc as text check (mal.chk(value));",
        user="mallory",
    )
    question = "SELECT public.dp_count(*) FROM hs.x WHERE ('{q}'::mal.dc[] IS NOT NULL)"
    with shop.connect() as admin:
        said = say(admin, f"select * from dp.explain_query($${question}$$, '')")
        assert "for postgres" not in said, said
    index_on_call(shop, f"select value from dp.explain_query($q${question}$q$, '') limit 1")
    with shop.connect() as admin:
        admin.execute("set mal.armed = 'yes'")
        said = say(admin, "analyze mal.t")
        assert "postgres" not in said, said


def test_a_temporary_type_is_nobodys(shop: Any) -> None:
    with shop.connect(user="mallory") as mallory:
        mallory.execute("create type pg_temp.ee as enum ('x', '(x)')")
        mallory.execute("create collation pg_temp.cc (provider = icu, locale = 'und')")
        for question in (
            "select dp_count(*) from hs.x where 'x'::pg_temp.ee = 'x'",
            "select '(x)'::pg_temp.ee, dp_count(*) from hs.x",
            "select dp_count(*) from hs.x group by case when a > 1 then '(x)'::pg_temp.ee end",
            "select dp_count(*) from hs.x where a::text collate pg_temp.cc > 'a'",
        ):
            said = say(mallory, question)
            # the service session does not see it
            assert said.startswith(("PD013", "PD014")), (question, said)


def test_a_view_that_takes_a_tables_name_is_not_expanded(shop: Any) -> None:
    spy = "query_to_xml('select pg_advisory_lock(91, count(*)::int) from hs.x', true, false, '')"
    shop.sql("grant dp_owner to mallory")
    shop.sql(
        "create table mal.p (a int); insert into mal.p select generate_series(1, 5);"
        "create table mal.r (a int); insert into mal.r values (1);"
        "select dp.protect('mal.p'), dp.declare_public('mal.r');"
        "select dp.set_domain('mal.p', 'a', 'mal.r'::regclass, 'a');"
        f"create view mal.v as select 1 as a where ({spy}) is not null",
        user="mallory",
    )
    try:
        for table, call in (
            ("p", "select dp_count(*) from mal.p"),
            ("r", "select * from dp.domain_members('mal.p', 'a')"),
            ("r", "select a, dp_count(*) from mal.p group by a"),
        ):
            said: list[str] = []
            with shop.connect(user="mallory") as asks, shop.connect(user="mallory") as swaps:
                asks.execute("set dp.fresh = on")
                asks.execute(call)
                swaps.execute("begin")
                swaps.execute(
                    f"alter table mal.{table} rename to old_{table};"
                    f"alter view mal.v rename to {table}"
                )
                thread = threading.Thread(target=lambda: said.append(say(asks, call)))  # noqa: B023
                thread.start()
                # it waits for the table, or says at once what has no need of it
                wait_until(lambda: waits(shop) or not thread.is_alive())  # noqa: B023
                swaps.execute("commit")
                thread.join()
                locks = shop.sql(
                    "select objid from pg_locks where locktype = 'advisory' and classid = 91"
                )
                assert locks == [], (call, said)
                swaps.execute(
                    f"alter view mal.{table} rename to v;"
                    f"alter table mal.old_{table} rename to {table}"
                )
    finally:
        shop.sql("revoke dp_owner from mallory")
