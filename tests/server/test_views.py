"""dp.expose: who may, what is shown, what changes of the relation do, dumps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.asking import refused, state
from tests.server.exposing import EXPOSE, ORDERS, SET_UP
from tests.server.test_dump_restore import dump_and_restore

pytestmark = pytest.mark.server

EXPOSED = ["o_id", "o_customer", "o_status", "o_amount", "o_day", "o_at", "o_channel", "o_note", "o_extra"]  # fmt: skip
COUNT = 'select count(*) from dpv."Orders"'


@pytest.fixture(scope="module")
def original(server: Any) -> Iterator[Any]:
    """A database that nobody is connected to."""
    yield from asking.made(server, SET_UP + EXPOSE)


@pytest.fixture
def own(server: Any, original: Any) -> Iterator[Any]:
    """A database that a test may change."""
    database = server.create_database(template=original.name)
    yield database
    server.drop_database(database)


@pytest.fixture
def owner(own: Any) -> Any:
    return own.connect("owner1")


@pytest.fixture
def alice(own: Any) -> Any:
    """Noise of scale 1/50 is 1 or more with a probability below exp(-49)."""
    session = own.connect("alice")
    session.execute("set dp.epsilon = 50; set client_min_messages = error")
    return session


def columns(session: Any, view: str = 'dpv."Orders"') -> list[str]:
    return [c.name for c in session.execute(f"select * from {view} limit 0").description]


# -- what is shown -----------------------------------------------------------------------


def test_tools_find_views_columns_types_and_comments(views: Any) -> None:
    with views.connect("alice") as alice:
        assert alice.execute(
            "select table_name, table_type from information_schema.tables where table_schema = 'dpv' order by 1"
        ).fetchall() == [("Orders", "VIEW"), ("customer", "VIEW")]
        found = alice.execute(
            "select column_name, data_type, numeric_precision, is_nullable from information_schema.columns"
            " where table_schema = 'dpv' and table_name = 'Orders' order by ordinal_position"
        ).fetchall()
        assert [row[0] for row in found] == EXPOSED
        assert {row[0]: row[1] for row in found}["o_day"] == "date"
        assert ("o_amount", "numeric", 10, "YES") in found
        assert ("o_channel", "text", None, "YES") in found
        told = alice.execute(
            "select a.attname, col_description(a.attrelid, a.attnum) from pg_attribute as a"
            " where a.attrelid = 'dpv.\"Orders\"'::regclass and col_description(a.attrelid, a.attnum) is not null"
        ).fetchall()
        assert dict(told) == {
            "o_id": "primary key",
            "o_customer": "references public.customer (c_id)",
            "o_amount": "in euros",
        }
        ((whole,),) = alice.execute("select obj_description('dpv.\"Orders\"'::regclass)").fetchall()
        assert whole.startswith(
            'what was bought; stands for the protected relation public."Orders"'
        )
        # as psql's \d asks, and SQLAlchemy for indexes and keys
        assert alice.execute("select pg_get_viewdef('dpv.customer'::regclass)").fetchone()
        assert (
            alice.execute(
                "select * from pg_constraint where conrelid = 'dpv.customer'::regclass"
            ).fetchall()
            == []
        )


def test_references_name_the_view_of_the_other_relation(own: Any, owner: Any) -> None:
    owner.execute("select dp.expose('customer', name => 'Client')")
    owner.execute("select dp.expose('\"Orders\"', array['o_customer'])")
    told = "select col_description('dpv.\"Orders\"'::regclass, 1)"
    assert own.sql(told) == [('references dpv."Client" (c_id)',)]


def test_columns_may_be_left_out_and_in_another_order(owner: Any, alice: Any) -> None:
    owner.execute("select dp.expose('\"Orders\"', array['o_status', 'o_id'])")
    assert columns(alice) == ["o_status", "o_id"]
    assert alice.execute(COUNT + " where o_id <= 10").fetchone() == (10,)
    found = alice.execute('select o_status, count(*) from dpv."Orders" group by 1 order by 1')
    assert found.fetchall() == [("back", 100), ("open", 300), ("sent", 200)]
    owner.execute("select dp.expose('\"Orders\"')")
    assert columns(alice) == [*EXPOSED[:-1], "o_secret", "o_extra"]


def test_columns_that_no_question_can_use_are_left_out(own: Any, owner: Any) -> None:
    own.sql('create type pair as (a int, b int); alter table "Orders" add o_pair pair')
    notices: list[str] = []
    owner.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    owner.execute("select dp.expose('\"Orders\"')")
    assert notices == ['columns of public."Orders" are not exposed: o_pair (public.pair)']
    error = refused(owner, "select dp.expose('\"Orders\"', array['o_id', 'o_pair'])")
    assert (
        error.diag.message_primary == 'questions cannot use o_pair (public.pair) of public."Orders"'
    )


def test_domains_show_as_the_types_that_they_are_over(own: Any, owner: Any, alice: Any) -> None:
    own.sql(
        "create type mood as enum ('sad', 'well');"
        "create domain small as int check (value < 100); create domain nested as small;"
        "create domain money_ as numeric(8, 2) check (value >= 0); create domain feeling as mood;"
        """create domain code as varchar(5) collate "C" check (value <> 'x');"""
        'alter table "Orders" add d1 small, add d2 nested, add d3 money_, add d4 feeling, add d5 code;'
        """update "Orders" set d1 = 7, d2 = o_id % 2, d3 = 2.5, d4 = 'sad', d5 = 'B'"""
    )
    owner.execute("select dp.expose('\"Orders\"')")
    owner.execute("select dp.expose('\"Orders\"')")  # the view stays
    found = own.sql(
        "select a.attname, format_type(a.atttypid, a.atttypmod), c.collname from pg_attribute as a"
        " left join pg_collation as c on c.oid = a.attcollation"
        " where a.attrelid = 'dpv.\"Orders\"'::regclass and a.attname ~ '^d[1-5]$' order by 1"
    )
    assert found == [
        ("d1", "integer", None),
        ("d2", "integer", None),
        ("d3", "numeric(8,2)", None),
        ("d4", "text", "default"),
        ("d5", "character varying(5)", "C"),
    ]
    owner.execute("select dp.set_domain('\"Orders\"', 'd2', 0, 1)")
    for written, question in (
        ("count(*) from {} where d1 = 7", "dp_count(*) from {} where d1 = 7"),
        ("count(*) from {} where d4 = 'sad'", "dp_count(*) from {} where d4::text = 'sad'"),
        ("count(*) from {} where d5 < 'a'", "dp_count(*) from {} where d5 < 'a'"),
        ("sum(d3) from {} where d3 > 1", "dp_sum(d3) from {} where d3 > 1"),
        (
            "d2, count(*) from {} group by d2 order by d2",
            "d2::int, dp_count(*) from {} group by d2::int order by 1",
        ),
    ):
        if "sum" in written:
            owner.execute("select dp.set_domain('\"Orders\"', 'd3', 0, 10)")
        first = alice.execute(f"select {written.format('dpv.' + chr(34) + 'Orders' + chr(34))}")
        before = own.sql("select count(*) from dp.spend")
        again = alice.execute(f"select {question.format(chr(34) + 'Orders' + chr(34))}")
        assert again.fetchall() == first.fetchall(), written
        assert own.sql("select count(*) from dp.spend") == before, written


def test_readers_are_all_analysts_or_those_who_are_named(own: Any, owner: Any, alice: Any) -> None:
    assert state(own.connect("bob"), COUNT) is None
    owner.execute("select dp.expose('\"Orders\"', readers => array['alice'])")
    assert state(own.connect("bob"), COUNT) == "42501"
    assert (
        state(own.connect("bob"), 'select count(*) from (select * from dpv."Orders") as t')
        == "42501"
    )
    assert alice.execute(COUNT).fetchone() == (ORDERS,)
    owner.execute("select dp.expose('\"Orders\"', readers => array['bob'])")
    assert state(alice, COUNT) == "42501"
    assert state(own.connect("bob"), COUNT) is None
    owner.execute("select dp.expose('\"Orders\"')")
    assert alice.execute(COUNT).fetchone() == (ORDERS,)


def test_a_role_without_budget_is_told_so(own: Any) -> None:
    own.sql("select dp.revoke_budget('bob')")
    assert state(own.connect("bob"), COUNT) in ("PD002", "42501", "PD001")


# -- who may, and how it is refused ------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "statement", "code", "message"),
    [
        ("alice", "select dp.expose('customer')", "42501", None),
        ("alice", "select dp.unexpose('customer')", "42501", None),
        ("bob", "select dp.expose('customer')", "42501", None),
        ("owner1", "select dp.expose(null)", "PD040", 'parameter "relation" of dp.expose must not be null'),
        ("owner1", "select dp.unexpose(null)", "PD040", None),
        ("owner1", "select dp.expose('customer', array['c_id', 'none'])", "PD040", 'relation public.customer has no column "none"'),
        ("owner1", "select dp.expose('customer', array[]::name[])", "PD040", None),
        ("owner1", "select dp.expose('customer', array['c_id', 'c_id'])", "PD040", None),
        ("owner1", "select dp.expose('customer', array['c_id', null])", "PD040", None),
        ("owner1", "select dp.expose('customer', name => 'Orders')", "PD040", 'there is a relation dpv."Orders" already'),
        ("owner1", "select dp.expose('customer', name => '')", "PD040", None),
        ("owner1", "select dp.expose('customer', name => repeat('x', 64))", "PD040", None),
        ("owner1", "select dp.expose('customer', name => 'dpv.a.b')", "PD040", None),
        ("owner1", "select dp.expose('customer', readers => array['nobody'])", "PD040", "role nobody does not exist"),
        ("owner1", "select dp.expose('public.land')", "PD040", "relation public.land is not protected"),
        ("owner1", "select dp.expose('public.theirs')", "PD070", None),
        ("owner1", "select dp.unexpose('public.land')", "PD040", "relation public.land is not exposed"),
    ],
)  # fmt: skip
def test_what_cannot_be_exposed(
    views: Any, user: str, statement: str, code: str, message: str | None
) -> None:
    views.sql("create table if not exists public.theirs (a int); create table if not exists public.land (a int);"
              " alter table public.land owner to owner1")  # fmt: skip
    before = views.sql("select * from dp.shown_relation order by 1")
    with views.connect(user) as session:
        error = refused(session, statement)
    assert error.sqlstate == code, error
    assert message is None or error.diag.message_primary == message
    assert views.sql("select * from dp.shown_relation order by 1") == before


def test_names_are_whole_and_quoted(own: Any, owner: Any, alice: Any) -> None:
    for name, view in (
        ("Käufe; drop", 'dpv."Käufe; drop"'),
        ('a"b', 'dpv."a""b"'),
        ("dpv.Sold", "dpv.sold"),
        ('dpv."Sold"', 'dpv."Sold"'),
        ("select", 'dpv."select"'),
    ):
        assert owner.execute("select dp.expose('customer', name => %s)", [name]).fetchone() == (
            view,
        )
        assert alice.execute(f"select count(*) from {view}").fetchone() == (60,)
    assert own.sql(
        "select count(*) from pg_class where relnamespace = 'dpv'::regnamespace and relkind = 'v'"
    ) == [(2,)]


# -- the life of a view ------------------------------------------------------------------


def test_unexposed_views_refuse(own: Any, owner: Any, alice: Any) -> None:
    alice.execute(f"prepare q as {COUNT}")
    assert alice.execute("execute q").fetchone() == (ORDERS,)
    alice.execute(f"create view public.mine as {COUNT}")
    owner.execute("select dp.unexpose('\"Orders\"')")
    assert state(alice, COUNT) == "PD010"
    assert state(alice, "execute q") == "PD010"
    assert state(alice, "select * from mine") == "42P01"
    assert "dp_count(*)" in str(refused(alice, 'select * from dpv."Orders"').diag.message_hint)
    owner.execute("select dp.expose('\"Orders\"')")
    assert alice.execute("execute q").fetchone() == (ORDERS,)
    own.sql("select dp.unprotect('\"Orders\"')", user="owner1")
    assert state(alice, COUNT) == "42P01"
    assert own.sql("select name::text from dp.shown_relation") == [("customer",)]


def test_statements_prepared_before_answer_after(own: Any, owner: Any, alice: Any) -> None:
    owner.execute("select dp.unexpose('customer')")
    alice.execute("prepare q as select count(*) from dpv.customer")
    assert state(alice, "execute q") == "PD010"
    owner.execute("select dp.expose('customer', array['c_id'])")
    assert alice.execute("execute q").fetchone() == (60,)


def test_more_columns_at_the_end_keep_what_was_built_on_the_view(owner: Any, alice: Any) -> None:
    owner.execute("select dp.expose('\"Orders\"', array['o_id'])")
    alice.execute('create view public.mine as select count(*) from dpv."Orders"')
    alice.execute('create view public.passing as select o_id as id from dpv."Orders"')
    owner.execute("select dp.expose('\"Orders\"', array['o_id', 'o_status'])")
    assert alice.execute("select * from mine").fetchone() == (ORDERS,)
    assert alice.execute("select count(*) from passing where id > 0").fetchone() == (ORDERS,)
    owner.execute("select dp.expose('\"Orders\"', array['o_status'])")
    assert state(alice, "select * from mine") == "42P01"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ('alter table "Orders" drop column o_status', "o_status"),
        ('alter table "Orders" rename column o_status to other', "o_status"),
        ('alter table "Orders" alter o_amount type numeric(12,2)', "o_amount"),
        ('alter table "Orders" rename column o_note to x; alter table "Orders" rename column o_secret to o_note', "o_note"),
    ],
)  # fmt: skip
def test_columns_that_change_are_refused_until_exposed_again(
    own: Any, owner: Any, alice: Any, change: str, named: str
) -> None:
    """Nobody stands in the owner's way, and no other column takes the place of one."""
    owner.execute(change)
    error = refused(alice, COUNT)
    assert error.sqlstate == "PD010"
    assert (
        error.diag.message_primary
        == f'column {named} of dpv."Orders" cannot be used: the relation changed'
    )
    assert columns(alice) == EXPOSED  # probes stay free
    owner.execute("select dp.expose('\"Orders\"')")
    assert alice.execute(COUNT).fetchone() == (ORDERS,)


def test_labels_of_an_enum_that_change_show(owner: Any, alice: Any) -> None:
    """Plans with a cast of an enum are kept in the session until its labels change."""
    asked = 'select o_channel, count(*) from dpv."Orders" group by 1 order by 1'
    assert alice.execute(asked).fetchall() == [("shop", 300), ("web", 300)]
    assert alice.execute(asked).fetchall() == [("shop", 300), ("web", 300)]
    owner.execute("alter type channel rename value 'web' to 'net'")
    assert alice.execute(asked).fetchall() == [("net", 300), ("shop", 300)]
    owner.execute("alter type channel add value 'post'")
    assert alice.execute(asked).fetchall() == [("net", 300), ("post", 0), ("shop", 300)]
    filtered = "select count(*) from dpv.\"Orders\" where o_channel = 'net'"
    assert alice.execute(filtered).fetchone() == (300,)
    owner.execute("alter type channel rename value 'net' to 'web'")
    assert alice.execute(filtered).fetchone() == (0,)


def test_dropped_and_renamed_relations(own: Any, owner: Any, alice: Any) -> None:
    owner.execute('alter table "Orders" rename to sales')
    assert alice.execute(COUNT).fetchone() == (ORDERS,)
    owner.execute("drop table sales")
    assert state(alice, COUNT) == "PD010"
    assert state(alice, 'select * from dpv."Orders"') == "PD010"


@pytest.mark.parametrize("form", ["c", "p"])
def test_a_restored_database_answers_again(
    server: Any, own: Any, owner: Any, alice: Any, form: str
) -> None:
    """Columns get other numbers by a dump; views of analysts come along."""
    own.sql(
        'alter table "Orders" add gone int; alter table "Orders" drop gone; alter table "Orders" drop o_at'
    )
    owner.execute(
        "select dp.expose('\"Orders\"', array['o_secret', 'o_status'], name => 'sold', readers => array['alice'])"
    )
    alice.execute(
        "create view public.mine as select o_status, count(*) as n from dpv.sold group by 1"
    )
    alice.execute("create view public.passing as select o_status from dpv.sold")
    copy = dump_and_restore(server, own, form)
    try:
        copy.sql("select dp.acknowledge_restore('moved')")
        session = copy.connect("alice")
        session.execute("set dp.epsilon = 50")
        assert session.execute("select count(*) from dpv.sold where o_secret <= 10").fetchone() == (
            10,
        )
        assert session.execute("select sum(n) from mine").fetchone() == (ORDERS,)
        assert session.execute("select count(*) from passing").fetchone() == (ORDERS,)
        assert state(copy.connect("bob"), "select count(*) from dpv.sold") == "42501"
        assert state(session, "select * from dpv.sold") == "PD010"
    finally:
        server.drop_database(copy)


def test_without_the_library_views_deny(own: Any) -> None:
    """What was stored without passing the library is what a server without it runs."""
    alice = own.connect("alice")
    alice.execute(f"create function public.f() returns bigint begin atomic {COUNT}; end")
    assert state(alice, "select f()") == "PD010"
    alice.execute("create table public.log (a int)")
    alice.execute(f"create rule r as on insert to log do also {COUNT}")
    assert state(alice, "insert into log values (1)") == "PD010"


def test_relations_of_privacy_units_are_exposed_too(database: Any) -> None:
    """A view over a member of units asks what dp_count asks, and is one question with it."""
    database.sql(
        "create table client (id int primary key); create table visit (id int primary key, client int not null"
        " references client, minutes int not null); insert into client select generate_series(1, 300);"
        " insert into visit select i, 1 + i % 300, i % 60 from generate_series(1, 1500) as i;"
        " select dp.protect('client', privacy_unit => 'id'), dp.set_domain('visit', 'minutes', 0, 60),"
        " dp.grant_budget('alice', epsilon => 100)"
    )
    database.sql("select dp.expose('client'), dp.expose('visit', array['client', 'minutes'])")
    session = database.connect("alice")
    session.execute("set client_min_messages = error; set dp.epsilon = 10")
    for over_view, over_relation in (
        ("select count(*) from dpv.visit", "select dp_count(*) from visit"),
        ("select sum(minutes) from dpv.visit where minutes > 5", "select dp_sum(minutes) from visit where minutes > 5"),
        ("select count(*) from dpv.visit as v join dpv.client as c on c.id = v.client",
         "select dp_count(*) from visit as v join client as c on c.id = v.client"),
    ):  # fmt: skip
        first = session.execute(over_view).fetchone()
        spent = session.execute("select epsilon_spent from dp.budgets").fetchone()
        assert session.execute(over_relation).fetchone() == first
        assert session.execute("select epsilon_spent from dp.budgets").fetchone() == spent
    database.sql("select dp.unprotect('client')")
    assert state(session, "select count(*) from dpv.visit") == "42P01"
