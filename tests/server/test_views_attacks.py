"""Exposed views against who wants more: other columns, rows, other relations, somebody else's rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import asking
from tests.server.asking import refused, state

pytestmark = pytest.mark.server

HIDDEN = ("c_secret", "o_secret")


@pytest.fixture(scope="module")
def alice(views: Any) -> Iterator[Any]:
    with views.connect("alice") as session:
        session.execute("set dp.epsilon = 0.01; set client_min_messages = error")
        yield session


@pytest.mark.parametrize(
    "statement",
    [
        "select count(c_secret) from dpv.customer",
        "select count(*) from dpv.customer as c where c.c_secret = 'secret 1'",
        "select count(*) from (select * from dpv.customer) as t where c_secret = 'secret 1'",
        "with t as (select * from dpv.customer) select count(*) from t where c_secret = 'secret 1'",
        "select count(*) from dpv.customer as t (a, b, c_secret) where c_secret = 'secret 1'",
        "select count(*) from dpv.customer as a join dpv.customer as b using (c_secret)",
        "select c_secret from dpv.customer group by c_secret",
        "select count(*) from dpv.customer as c where (c).c_secret = 'secret 1'",
        "select count(*) from dpv.customer where customer.c_secret is null",
        "select count(*) from dpv.customer, lateral (select c_secret) as x",
        "select count(*) from dpv.customer where ctid = '(0,1)'",
        "select count(*) from dpv.customer where xmin::text <> '0'",
        "select count(distinct tableoid) from dpv.customer",
    ],
)
def test_a_hidden_column_has_no_name(views: Any, alice: Any, statement: str) -> None:
    before = views.sql("select count(*) from dp.ledger")
    assert state(alice, statement) in ("42703", "42P10"), statement
    assert views.sql("select count(*) from dp.ledger") == before


@pytest.mark.parametrize(
    "statement",
    [
        "select count(c) from dpv.customer as c",
        "select count(c.*) from dpv.customer as c",
        "select count(distinct c) from dpv.customer as c",
        "select count(*) from dpv.customer as c where c::text like '%secret%'",
        "select count(*) from dpv.customer as c where c is not null",
        "select count(*) from dpv.customer as a, dpv.customer as b where a = b",
        "select c, count(*) from dpv.customer as c group by c",
        "select count(*) from dpv.customer as c where to_jsonb(c) ? 'x'",
        "select count(*) from dpv.customer as c where row_to_json(c)::text like '%secret%'",
        "select max(c::text) from dpv.customer as c",
        "select count(*) from dpv.customer as c where hashtext(c::text) > 0",
        "select sum(length(c::text)) from dpv.customer as c",
    ],
)
def test_whole_rows_are_refused(views: Any, alice: Any, statement: str) -> None:
    before = views.sql("select count(*) from dp.ledger")
    error = refused(alice, statement)
    assert error.sqlstate is not None
    assert error.sqlstate.startswith("PD01")
    assert not any(name in str(error) for name in HIDDEN)
    assert views.sql("select count(*) from dp.ledger") == before


@pytest.mark.parametrize(
    ("statement", "exposed"),
    [
        # the hidden columns would be compared, too
        ("select count(*) from {0} as a natural join {0} as b", ["c_id", "c_country"]),
        ("select count(*) from (select * from {0}) as a natural join (select * from {0}) as b", ["c_id", "c_country"]),
        ("select count(*) from (select distinct * from {0}) as t", ["c_id", "c_country"]),
    ],
)  # fmt: skip
def test_a_star_is_the_exposed_columns(alice: Any, statement: str, exposed: list[str]) -> None:
    """The question that dp.run gets names the columns that it joins by."""
    plan = str(alice.execute("explain (verbose) " + statement.format("dpv.customer")).fetchall())
    assert "dp.run(" in plan
    assert all(name in plan for name in exposed)
    assert not any(name in plan for name in HIDDEN)


def test_the_question_names_exposed_columns_only(alice: Any) -> None:
    plan = str(
        alice.execute(
            'explain (verbose) select count(*) from dpv."Orders" as o, dpv.customer'
        ).fetchall()
    )
    assert "public.dp_count(*)" in plan
    assert "o_extra" in plan  # what is exposed is there, or this shows nothing
    assert not any(name in plan for name in HIDDEN)


def test_merged_columns_of_a_join_keep_their_sides(views: Any) -> None:
    """Column numbers of view and relation differ; joins number columns by position."""
    views.sql("create table if not exists public.wide (w_hidden text, w_gone int, w_b text, w_a int);"
              " alter table public.wide drop w_gone; alter table public.wide owner to owner1;"
              " insert into public.wide select 'x', 'b' || i, i from generate_series(1, 40) as i")  # fmt: skip
    with views.connect("owner1") as owner:
        owner.execute("select dp.protect('wide'), dp.expose('wide', array['w_a', 'w_b'])")
    with asking.silent(views, "wide") as silent:
        silent.execute("set client_min_messages = error")
        for join, known in (
            ("dpv.wide as a join dpv.wide as b using (w_a) where a.w_b = b.w_b and w_a <= 7", 7),
            (
                "(dpv.wide as a join dpv.wide as b using (w_b)) join dpv.wide as c using (w_b) where w_b = 'b3'",
                1,
            ),
            ("(dpv.wide as a natural join dpv.wide as b) as j (x, y) where y = 'b3' and x = 3", 1),
            ("dpv.wide as t (k, v) where v like 'b%' and k <= 9", 9),
        ):
            assert silent.execute(f"select count(*) from {join}").fetchone() == (known,)
            question = str(
                silent.execute(f"explain (verbose) select count(*) from {join}").fetchall()
            )
            assert "w_hidden" not in question


def test_temporary_names_and_search_paths_change_nothing(views: Any) -> None:
    with views.connect("alice") as session:
        session.execute("set dp.epsilon = 100; set client_min_messages = error")
        session.execute("create temp table customer (c_id int, c_country text)")
        session.execute(
            "create temp table shown_relation (name name, relation oid, columns name[], attnums int2[])"
        )
        session.execute("set search_path = pg_temp, dpv, public")
        # the schema dpv is searched after the temporary one
        assert session.execute("select count(*) from customer").fetchone() == (0,)
        assert session.execute("select count(*) from dpv.customer").fetchone() == (60,)
        session.execute("drop table customer")
        assert session.execute("select count(*) from customer").fetchone() == (60,)


def test_aggregates_and_operators_of_others_are_not_taken_for_postgresqls(views: Any) -> None:
    views.sql(f"grant create on database {views.name} to alice")
    with views.connect("alice") as session:
        session.execute(
            "create schema mine; create aggregate mine.count (*) (sfunc = int8inc, stype = bigint, initcond = '0')"
        )
        session.execute("create aggregate mine.sum (int) (sfunc = int4_sum, stype = bigint)")
        session.execute(
            "create function mine.same(int, int) returns boolean language sql immutable as 'select $1 = $2'"
        )
        session.execute(
            "create operator mine.= (leftarg = int, rightarg = int, function = mine.same)"
        )
        session.execute("set search_path = mine, pg_catalog")
        for aggregate in ("count(*)", "sum(c_id)"):
            assert refused(session, f"select {aggregate} from dpv.customer").sqlstate == "PD011"
        session.execute("set search_path = pg_catalog")
        error = refused(session, "select count(*) from dpv.customer where c_id operator(mine.=) 3")
        assert "The operator is not one of pg_catalog." in str(error.diag.message_detail)
        session.execute("drop schema mine cascade")


def test_a_function_in_a_condition_never_sees_a_row(views: Any) -> None:
    with views.connect("alice") as session:
        session.execute("create table public.seen (a int)")
        session.execute("create function public.look(int) returns boolean language plpgsql as"
                        " $$ begin insert into seen values ($1); return true; end $$")  # fmt: skip
        for statement in (
            "select count(*) from dpv.customer where look(c_id)",
            "select count(*) filter (where look(c_id)) from dpv.customer",
            "select look(c_id), count(*) from dpv.customer group by 1",
            "select * from dpv.customer where look(c_id)",
            "select * from dpv.customer where look(c_id) limit 1",
        ):
            error = refused(session, statement)
            assert str(error.sqlstate).startswith("PD01"), statement
        assert session.execute("select count(*) from seen").fetchone() == (0,)
        session.execute("drop function look; drop table seen")


def test_rows_are_refused_whatever_is_asked_of_them(alice: Any) -> None:
    """Also where a planner could know that no row of NULLs satisfies a condition."""
    for condition in (
        "c_id < 100",
        "c_country = 'DE'",
        "c_id is not null",
        "c_id is null",
        "c_id in (1, 2)",
    ):
        assert state(alice, f"select * from dpv.customer where {condition}") == "PD010", condition
        assert state(alice, f"select 1 from dpv.customer where {condition} limit 5") == "PD010"


def test_nobody_makes_or_changes_a_view_in_the_schema(views: Any, alice: Any) -> None:
    for statement in (
        "create view dpv.mine as select 1",
        "create or replace view dpv.customer as select 1 as c_id, ''::text as c_country",
        "alter view dpv.customer rename to other",
        "alter view dpv.customer alter c_id set default 1",
        "create rule r as on insert to dpv.customer do instead nothing",
        "drop view dpv.customer",
        "insert into dp.shown_relation values ('x', 'customer', null, array['c_secret'], array[3])",
        "select dp.exposed_columns('dpv.customer'::regclass)",
        "select dp.show_exposed('customer'::regclass, 'customer', array[3]::int2[], null)",
    ):
        assert state(alice, statement) in ("42501", "42809"), statement


def test_a_view_of_anothers_gives_no_rights(views: Any) -> None:
    """Who is not among the readers gets nothing through a view of one who is."""
    views.sql(
        "select dp.expose('customer', array['c_id', 'c_country'], readers => array['alice'])",
        user="owner1",
    )
    try:
        with views.connect("alice") as session:
            session.execute("create view public.lent as select c_id from dpv.customer")
            session.execute("grant select on public.lent to bob")
        bob = views.connect("bob")
        assert state(bob, "select count(*) from lent") == "42501"
        assert state(bob, "select count(*) from dpv.customer") == "42501"
        assert state(bob, "select count(*) from (select * from lent) as t limit 1") == "42501"
    finally:
        views.sql("drop view if exists public.lent")
        views.sql("select dp.expose('customer', array['c_id', 'c_country'])", user="owner1")


def test_a_prepared_statement_keeps_no_right(views: Any) -> None:
    session = views.connect("alice")
    session.execute("set dp.epsilon = 0.01")
    session.execute("prepare q as select count(*) from dpv.customer")
    session.execute("execute q")
    views.sql("revoke select on dpv.customer from dp_analyst")
    try:
        assert state(session, "execute q") == "42501"
    finally:
        views.sql("grant select on dpv.customer to dp_analyst")
    assert state(session, "execute q") is None


def test_every_answer_is_charged_to_who_asks(views: Any) -> None:
    """A definer's function over a view charges the session's role, as dp_count does."""
    with views.connect("alice") as session:
        session.execute("set dp.epsilon = 0.01")
        session.execute(
            "create function public.f() returns bigint language sql as 'select count(*) from dpv.\"Orders\" where o_id < 77'"
        )
    asked = "select count(*) from dp.ledger where role = 'bob'"
    before = views.sql(asked)[0][0]
    with views.connect("bob") as session:
        session.execute("set dp.epsilon = 0.01")
        session.execute("select public.f()")
        session.execute("select public.f()")
    assert views.sql(asked)[0][0] == before + 1
    views.sql("drop function public.f()")


def test_the_catalogue_tells_nothing_of_the_rows(views: Any, alice: Any) -> None:
    views.sql("analyze")
    assert alice.execute(
        "select reltuples, relpages from pg_class where oid = 'dpv.\"Orders\"'::regclass"
    ).fetchone() in [(0.0, 0), (-1.0, 0)]
    assert alice.execute("select * from pg_stats where schemaname = 'dpv'").fetchall() == []
    definition = str(alice.execute("select pg_get_viewdef('dpv.\"Orders\"'::regclass)").fetchone())
    assert "refuse_rows" in definition
    assert "public" not in definition


def test_a_deep_nest_of_queries_ends_in_an_error(alice: Any) -> None:
    text = "select * from dpv.customer"
    for level in range(400):
        text = f"select * from ({text}) as t{level}"
    with pytest.raises(psycopg.Error) as caught:
        alice.execute(f"select count(*) from ({text}) as t")
    assert caught.value.sqlstate in ("PD011", "54001")
