"""A name that comes to mean something else between look and use gives nothing away.

PostgreSQL resolves names as of now; a transaction's snapshot, a cached plan and a stored answer
are older.  Types, collations, relations, schemas, parents and roles are swapped under a question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.asking import say
from tests.server.waiting import wait_until, waits

pytestmark = pytest.mark.server

SET_UP = """
create schema hs;
create table hs.x (a int, s text); insert into hs.x select g, 's' || g from generate_series(1, 10) g;
create table hs.pub (a int); insert into hs.pub select generate_series(1, 5);
create table hs.priv (a int); insert into hs.priv select generate_series(1, 1234);
select dp.protect('hs.x'), dp.protect('hs.priv'), dp.declare_public('hs.pub');
create schema mal authorization mallory; grant usage on schema hs, mal to public;
select dp.grant_budget('mallory', 50, 1e-3);
"""
SPY = "query_to_xml('select * from hs.x', false, true, '')::text"


@pytest.fixture
def shop(database: Any) -> Any:
    """Protected and public relations, and mallory with a budget and a schema."""
    database.sql(SET_UP)
    return database


@contextmanager
def old_snapshot(database: Any) -> Iterator[psycopg.Connection[Any]]:
    """Give mallory a transaction whose snapshot is taken before what the test does then."""
    with database.connect(user="mallory") as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("select 1")
        yield connection
        connection.execute("rollback")


def test_an_enum_replaced_by_a_domain_runs_nothing(shop: Any) -> None:
    text = "SELECT 'a'::mal.e AS e, public.dp_count(*) AS n FROM hs.x WHERE (a > 1)"
    with shop.connect(user="mallory") as mallory:
        mallory.execute("create type mal.e as enum ('a', 'b')")
        mallory.execute("select * from dp.explain_query(%s, '')", [text])
        mallory.execute("select * from dp.estimate_query(%s, '')", [text])
        mallory.execute("drop type mal.e")
        mallory.execute(
            "create domain mal.e as text check (case when current_user = 'dp_executor'"
            f" then {SPY}::int is not null else true end)"
        )
        for call in (
            f"select * from dp.run($${text}$$) as t(a text, b bigint)",
            f"select * from dp.run_json($${text}$$, null, '')",
            f"select * from dp.query($${text}$$)",
            text,
        ):
            said = say(mallory, call)
            assert "PD013" in said, said
            assert "s7" not in said, said


@pytest.mark.parametrize("kind", ["domain", "array"])
def test_a_type_swapped_during_the_question(shop: Any, kind: str) -> None:
    """Another session replaces the enum again and again while questions name it."""
    stop = threading.Event()
    body = f"text check (case when current_user = 'dp_executor' then {SPY}::int = 1 else true end)"

    def swap() -> None:
        with shop.connect(user="mallory") as other:
            while not stop.is_set():
                other.execute("create type mal.e as enum ('a', 'b')")
                other.execute("drop type mal.e")
                other.execute(f"create domain mal.e as {body}")
                other.execute("drop domain mal.e")

    thread = threading.Thread(target=swap)
    thread.start()
    value = "'a'::mal.e" if kind == "domain" else "'{a}'::mal.e[]"
    condition = f"{value} = 'a'" if kind == "domain" else f"'a' = any ({value})"
    try:
        with shop.connect(user="mallory") as mallory:
            mallory.execute("set dp.epsilon = 0.00001; set dp.fresh = on")
            until = time.monotonic() + 4
            while time.monotonic() < until:
                for question in (
                    f"select {value} as e, dp_count(*) from hs.x",
                    f"select dp_count(*) from hs.x where a > 1 and {condition}",
                ):
                    assert "s7" not in say(mallory, f"select * from dp.query($${question}$$)")
    finally:
        stop.set()
        thread.join()


def test_a_collation_replaced_by_a_nondeterministic_one(shop: Any) -> None:
    question = "select dp_count(*) from hs.x where a = 5 and s collate mal.c like 'q%'"
    with shop.connect(user="mallory") as mallory:
        mallory.execute("create collation mal.c (provider = icu, locale = 'und')")
        said = [say(mallory, question)]
        mallory.execute("drop collation mal.c")
        mallory.execute(
            "create collation mal.c"
            " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        said.append(say(mallory, question))
    with old_snapshot(shop) as mallory, shop.connect(user="mallory") as other:
        other.execute(
            "create collation mal.late"
            " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        said.append(say(mallory, question.replace("mal.c", "mal.late")))
    assert all("PD013" in one and "collation" in one for one in said), said


def test_a_domain_that_the_snapshot_does_not_show(shop: Any) -> None:
    with old_snapshot(shop) as mallory, shop.connect(user="mallory") as other:
        other.execute(f"create domain mal.d as text check ({SPY} is not null)")
        for condition in ("s = '5'::mal.d", "s = any ('{5}'::mal.d[])", "s in ('5'::mal.d)"):
            mallory.execute("savepoint a")
            said = say(mallory, f"select dp_count(*) from hs.x where {condition}")
            assert said.startswith(("PD01", "42501")), said
            assert "s7" not in said
            mallory.execute("rollback to a")


# What an enum with the label "(x)" can be replaced by, so that reading the label runs a CHECK.
READERS = {
    "composite": "create domain mal.d as text check ({spy}); create type mal.e as (a mal.d)",
    "domain over composite": "create domain mal.d as text check ({spy});"
    " create type mal.c as (a mal.d); create domain mal.e as mal.c",
    "domain over array": "create domain mal.e as text[] check ({spy})",
    "range": "create function mal.less(text, text) returns float8 immutable language sql as"
    " 'select 0.0'; create domain mal.d as text check ({spy}); create type mal.e as range"
    " (subtype = mal.d)",
}


@pytest.mark.parametrize("kind", READERS)
def test_reading_a_literal_runs_nothing(shop: Any, kind: str) -> None:
    """The stored answer's statement is finished with types as they are called by then."""
    loot = "pg_advisory_lock(4242, (select count(*) from hs.x)::int) is null or true"
    spy = f"case when current_user = 'dp_executor' then query_to_xml($x$select {loot}$x$,"
    spy = READERS[kind].format(spy=f"{spy} true, false, '') is not null else true end")
    text = "SELECT '(x)'::mal.e AS e, public.dp_count(*) AS n FROM hs.x"
    with shop.connect(user="mallory") as mallory, shop.connect(user="mallory") as second:
        mallory.execute("create type mal.e as enum ('(x)', '{x}', '[x,x]')")
        mallory.execute("select * from dp.run_json(%s, null, '')", [text])
        second.execute("select * from dp.explain_query(%s, '')", [text])
        swap = f"drop type mal.e; {spy}"
        mallory.execute(
            "create function mal.swap() returns text volatile language plpgsql as $f$ begin"
            f" execute $s${swap}$s$; return ''; end $f$"
        )
        # one statement, whose snapshot is from before the swap
        said = say(
            second,
            "select r from (select mal.swap() as s offset 0) as s,"
            f" lateral dp.run_json($t${text}$t$ || s.s, null, '') as r",
        )
        assert "s7" not in said
        say(second, f"select * from dp.run_json($t${text}$t$, null, '')")
        locks = shop.sql(
            "select objid from pg_locks where locktype = 'advisory' and classid = 4242"
        )
        assert locks == []


def test_nobody_is_analysed_as_somebody_else(shop: Any) -> None:
    """What dp_executor may call takes no role, so that its capture would not be a superuser's."""
    rows = shop.sql(
        "select replace(p.oid::regprocedure::text, '\"', '') from pg_proc p where p.pronamespace = 'dp'::regnamespace"
        " and p.proname like 'analyze%' order by 1"
    )
    assert [row[0] for row in rows] == [
        "dp.analyze(text)",
        "dp.analyze(text,text[])",
        "dp.analyze_kept(integer)",
        "dp.analyze_own(text)",
        "dp.analyze_view(oid)",
    ]


def test_an_owner_cannot_have_casts_run_as_the_extensions_owner(shop: Any) -> None:
    """An enum without labels, whose cast an old snapshot does not show."""
    shop.sql("grant dp_owner to mallory")
    try:
        with shop.connect(user="mallory") as mallory, shop.connect(user="mallory") as other:
            mallory.execute("create type mal.e as enum (); create table mal.t (c mal.e)")
            mallory.execute("select dp.protect('mal.t')")
            mallory.execute("begin isolation level repeatable read")
            mallory.execute("select 1")
            other.execute(
                "create function mal.evil(text) returns mal.e language plpgsql as $$ begin"
                " raise exception 'ran as %', current_user; end $$;"
                " create cast (text as mal.e) with function mal.evil(text)"
            )
            for call in (
                "dp.set_domain_values('mal.t', 'c', array['x'], false, null)",
                "dp.set_domain('mal.t', 'c', array['x'])",
            ):
                mallory.execute("savepoint a")
                said = say(mallory, f"select {call}")
                assert said.startswith("PD040"), said
                assert "ran as" not in said
                mallory.execute("rollback to a")
            mallory.execute("rollback")
    finally:
        shop.sql("revoke dp_owner from mallory")


def test_explain_counts_no_groups_of_what_took_a_name(shop: Any) -> None:
    shop.sql("insert into hs.priv select generate_series(2000, 4000)")
    with old_snapshot(shop) as mallory:
        shop.sql(SWAPS["relations"])
        question = "select p.a, r.a, dp_count(*) from hs.x, hs.pub p, hs.pub r group by p.a, r.a"
        said = say(mallory, f"select * from dp.explain($${question}$$)")
        assert "('private relations', 'hs.pub, hs.x')" in said, said
        assert "('public relations', 'none')" in said, said
        assert "combinations" not in said


SWAPS = {
    "relations": "alter table hs.pub rename to t; alter table hs.priv rename to pub",
    "schemas": "create schema h2; alter table hs.priv set schema h2; alter table h2.priv rename to"
    " pub; alter schema hs rename to h0; alter schema h2 rename to hs;"
    " grant usage on schema hs to public",
    "child": "create table hs.kid () inherits (hs.pub); insert into hs.kid select 1 from"
    " generate_series(1, 1234)",
    "policy": "select dp.undeclare_public('hs.pub'); select dp.protect('hs.pub')",
}


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("warm", [False, True])
def test_what_is_public_in_an_old_snapshot_only(shop: Any, swap: str, warm: bool) -> None:
    """With a cached plan and without: what is asked about is declared as of now."""
    question = "select dp_count(*) from hs.pub"
    with shop.connect(user="mallory") as mallory:
        if warm:
            assert say(mallory, question) == "[(5,)]"
        mallory.execute("begin isolation level repeatable read")
        mallory.execute("select 1")
        shop.sql(SWAPS[swap])
        said = say(mallory, question)
        if swap == "child":  # public, too
            assert said == "[(1239,)]"
        assert charges(shop) == ([] if swap == "child" else [(1, 1, 0)])


def charges(shop: Any) -> list[tuple[int, float, float]]:
    """Tell what was charged: number of roots, epsilon and delta of each question."""
    return list(shop.sql("select cardinality(roots), epsilon::float, delta::float from dp.spend"))


@pytest.mark.parametrize("swap", ["relations", "schemas"])
def test_a_cached_plan_follows_names(shop: Any, swap: str) -> None:
    with shop.connect(user="mallory") as mallory:
        assert say(mallory, "select dp_count(*) from hs.pub") == "[(5,)]"
        shop.sql(SWAPS[swap])
        mallory.execute("select dp_count(*) from hs.pub")
    spent = shop.sql("select count(*), count(distinct roots) from dp.spend")
    assert spent == [(1, 1)]


def test_a_statement_that_waits_while_names_change(shop: Any) -> None:
    """Also under READ COMMITTED a statement's snapshot can be old when it asks.

    It has its snapshot when it waits for the lock, and asks when it has the lock.  The service
    takes its own, in which the name is that of protected rows, whose count has a price.
    """
    text = "SELECT public.dp_count(*) AS n FROM hs.pub"
    outcome: list[str] = []
    with shop.connect() as holder, shop.connect(user="mallory") as mallory:
        holder.execute("select pg_advisory_lock(4711)")
        waiting = (
            "select t.n from (select pg_advisory_lock_shared(4711)::text as s offset 0) as s,"
            f" lateral dp.run($${text}$$ || repeat(' ', length(s.s))) as t(n bigint)"
        )
        thread = threading.Thread(target=lambda: outcome.append(say(mallory, waiting)))
        thread.start()
        try:
            wait_until(lambda: waits(shop))
            shop.sql(SWAPS["relations"])
        finally:
            holder.execute("select pg_advisory_unlock(4711)")
            thread.join()
    assert outcome[0].startswith("[("), outcome
    assert charges(shop) == [(1, 1, 0)]


def test_who_asks_is_a_role_and_not_its_name(shop: Any) -> None:
    shop.sql("create role ta; create role tb; grant ta to mallory; grant dp_analyst to ta, tb")
    try:
        shop.sql("select dp.grant_budget('ta', 1), dp.grant_budget('tb', 1)")
        with shop.connect(user="mallory") as mallory:
            mallory.execute("set role ta")
            shop.sql("alter role ta rename to tc; alter role tb rename to ta")
            mallory.execute("select dp_count(*) from hs.x")
        rows = shop.sql(
            "select r.rolname from dp.spend s join dp.principal p on p.id = s.principal"
            " join pg_roles r on r.oid = p.role_oid"
        )
        assert rows == [("tc",)]
    finally:
        shop.sql("drop owned by tc, ta; drop role tc, ta")


def test_the_log_volume_of_a_read_is_not_told(shop: Any) -> None:
    """Reading prunes pages, which is logged: by how many rows were deleted."""
    shop.sql(
        "create table hs.w (a int, f text) with (autovacuum_enabled = off);"
        " insert into hs.w select g, repeat('x', 500) from generate_series(1, 3000) g;"
        " select dp.protect('hs.w')"
    )
    shop.sql("vacuum analyze hs.w")
    shop.sql("delete from hs.w where a % 100 = 0")
    with shop.connect() as mallory:
        mallory.execute("set dp.explain_buffers = on; set session authorization mallory")
        mallory.execute("set dp.fresh = on")
        say(mallory, "select dp_count(*) from hs.priv")  # whatever the catalogue's pages need
        plan = say(
            mallory,
            "explain (analyze, wal, costs off, timing off, summary off)"
            " select dp_count(*) from hs.w",
        )
    assert "Function Scan" in plan
    assert "WAL" not in plan


MULTIPLE = """create table hs.p1 (a int); create table hs.p2 (b int);
create table hs.c () inherits (hs.p1, hs.p2)"""


def test_a_row_belongs_to_one_declared_relation(shop: Any) -> None:
    shop.sql(MULTIPLE)
    for relation in ("hs.p1", "hs.p2"):
        with pytest.raises(psycopg.Error, match="inherits from several") as caught:
            shop.sql(f"select dp.protect('{relation}')")
        assert caught.value.sqlstate == "PD040"
    shop.sql("alter table hs.priv inherit hs.pub")
    with shop.connect(user="mallory") as mallory:
        assert "PD012" in say(mallory, "select dp_count(*) from hs.pub")


TRUE = [
    "1 = 1", "'x' = 'x'", "'x' in ('x', 'y')", "current_date > '2000-01-01' and a > 0",
    "true", "not false", "1 is not null", "a > 0 or 1 = 1", "null::int is null and a > 0",
    "2 between 1 and 3", "'abc' like 'a%'", "case when 1 = 1 then true else false end",
]  # fmt: skip
FALSE = ["1 = 2", "'x' in ('y')", "false", "null", "a > 0 and 1 = 2", "not (1 = 1)", "1 = null"]


@pytest.mark.parametrize(
    ("condition", "expected"), [(c, 5) for c in TRUE] + [(c, 0) for c in FALSE]
)
def test_conditions_over_constants(shop: Any, condition: str, expected: int) -> None:
    with shop.connect(user="mallory") as mallory:
        for text in (
            f"select dp_count(*) from hs.pub where {condition}",
            f"select dp_count(case when {condition} then 1 end) from hs.pub",
        ):
            assert mallory.execute(text).fetchone() == (expected,), text


def test_a_condition_over_a_parameter(shop: Any) -> None:
    with shop.connect(user="mallory") as mallory:
        mallory.execute(
            "prepare p(text) as select dp_count(*) from hs.pub where $1 = 'all' and a > 0"
        )
        assert mallory.execute("execute p('all')").fetchone() == (5,)
        assert mallory.execute("execute p('none')").fetchone() == (0,)
