"""Interception goes by what belongs to the extension, never by a name."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import PARALLEL
from tests.server.hook_fixture.asking import Asking, ask, echoing


@pytest.fixture
def alice(database: Any) -> Asking:
    echoing(database)
    return ask(database)


def test_an_aggregate_of_the_same_name_is_an_ordinary_one(alice: Asking) -> None:
    alice.run("create aggregate mine.dp_count(*) (sfunc = int8inc, stype = int8, initcond = '0')")
    alice.run("set search_path = mine, public")
    assert alice.run("select dp_count(*) from generate_series(1, 3)") == [(3,)]
    assert not alice.asked
    assert alice.run("select public.dp_count(*) from public.t") == [(1,)]
    assert len(alice.asked) == 1


def test_temporary_objects_cannot_stand_in(alice: Asking) -> None:
    alice.run("create temp table t (a integer)")
    alice.run("create temp table pg_class (relname name)")
    alice.run("create aggregate pg_temp.dp_count(*) (sfunc = int8inc, stype = int8,"
              " initcond = '0')")  # fmt: skip
    alice.run("create function pg_temp.run(text, text[] default null) returns setof record"
              " language sql as 'select 666::bigint'")  # fmt: skip
    alice.run("create function mine.run(text, text[] default null) returns setof record"
              " language sql as 'select 666::bigint'")  # fmt: skip
    alice.run("set search_path = mine, pg_temp, public, pg_catalog")
    assert alice.run("select dp_count(*) from public.t") == [(1,)]
    assert "FROM public.t" in alice.asked[0]["query"]
    for temporary in ("t", "pg_class, pg_catalog.pg_class c"):
        with pytest.raises(psycopg.Error, match="is temporary") as caught:
            alice.run(f"select dp_count(*) from {temporary}")
        assert caught.value.sqlstate == "PD012"


def test_functions_and_operators_of_the_analyst_are_named_in_full(alice: Asking) -> None:
    alice.run("create function mine.eq(integer, integer) returns boolean language sql"
              " as 'select true'")  # fmt: skip
    alice.run("create operator mine.= (leftarg = integer, rightarg = integer,"
              " function = mine.eq)")  # fmt: skip
    alice.run("set search_path = mine, public, pg_catalog")
    alice.run("select dp_count(*) from t where a = 1")
    assert "a OPERATOR(mine.=) 1" in alice.asked[0]["query"]


def test_without_the_extension_the_hook_does_nothing(database: Any) -> None:
    owner = database.connect()
    owner.execute("drop extension dpsql cascade")
    owner.execute("create aggregate public.dp_count(*) (sfunc = int8inc, stype = int8,"
                  " initcond = '0')")  # fmt: skip
    query = "select dp_count(*) from generate_series(1, 3)"
    assert owner.execute(query).fetchall() == [(3,)]
    owner.execute("create function f() returns bigint return (select dp_count(*) from pg_class)")
    owner.execute(f"create view v as {query}")
    assert "dp_count" in owner.execute("select pg_get_viewdef('v'::regclass)").fetchone()[0]
    owner.execute("set dp.epsilon = 3")


def test_an_extension_without_its_function_says_so(database: Any, alice: Asking) -> None:
    owner = database.connect()
    owner.execute("alter extension dpsql drop function dp.run(text, text[])")
    with pytest.raises(psycopg.Error) as raised:
        alice.run("select dp_count(*) from t")
    assert raised.value.sqlstate == "PD030"
    assert "ALTER EXTENSION dpsql UPDATE" in raised.value.diag.message_hint


IMITATION = """
create aggregate public.uncaught(*) (
    sfunc = dp.not_intercepted, stype = bigint, finalfunc = dp.not_intercepted,
    parallel = restricted);
create aggregate public.uncaught("any") (
    sfunc = dp.not_intercepted, stype = bigint, finalfunc = dp.not_intercepted,
    parallel = restricted);
create table big as select g % 7 as a from generate_series(1, 10000) g;
"""


EXECUTED = [
    "select uncaught(*) from big",
    "select uncaught(a) from big where false",
    "select uncaught(null::integer) from big",
    "select a, uncaught(*) from big group by a",
    "select uncaught(*) over (partition by a) from big",
    "select uncaught(distinct a) filter (where a > 100) from big",
    "explain analyze select uncaught(*) from big",
    "select uncaught(*)",
]


@pytest.mark.parametrize("parallel", [False, True])
def test_executed_aggregates_never_return(database: Any, parallel: bool) -> None:
    """The same aggregates, but not members: what happens when the library is not preloaded."""
    owner = database.connect()
    owner.execute(IMITATION)
    same = owner.execute(
        "select count(*), count(distinct (aggtransfn, aggfinalfn, aggcombinefn, aggmtransfn,"
        " agginitval, proparallel)) from pg_aggregate join pg_proc on aggfnoid = oid"
        " where proname in ('uncaught', 'dp_count') and pronargs = 0"
    ).fetchall()
    assert same == [(2, 1)]
    owner.execute("set parallel_setup_cost = 0")
    if parallel:
        owner.execute(PARALLEL)
    for query in EXECUTED:
        with pytest.raises(psycopg.Error) as raised:
            owner.execute(query)
        assert raised.value.sqlstate == "PD060", query
        assert raised.value.diag.message_primary == "a private aggregate was not intercepted"
        assert "shared_preload_libraries" in raised.value.diag.message_hint
        assert "dp.query" in raised.value.diag.message_hint


def test_set_role_and_definer_functions_ask_as_well(alice: Asking, database: Any) -> None:
    database.sql("create function public.d() returns bigint language sql security definer"
                 " as 'select dp_count(*) from t'")  # fmt: skip
    assert alice.run("select public.d()") == [(1,)]
    assert len(alice.asked) == 1
