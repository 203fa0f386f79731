"""What dp.link and dp.unlink refuse and tell: types, several units, which of two ways to keep."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import refused

pytestmark = pytest.mark.server

SET_UP = """
create table customer (id int primary key, code text not null unique, price numeric not null unique);
create table orders (id int primary key, customer int not null references customer);
create table ticket (customer int not null references customer, "order" int references orders);
insert into customer select g, g, g from generate_series(1, 300) g;
insert into orders select g, g from generate_series(1, 300) g;
insert into ticket select g, case when g <= 100 then g end from generate_series(1, 300) g;
select dp.protect('customer', privacy_unit => 'id');
select dp.grant_budget('postgres', 1e5, 1)
"""
FOLLOW = "SELECT dp.link('public.ticket', 'public.orders', array['order'], follow => false);"
EXCLUDE = "SELECT dp.link('public.ticket', 'public.orders', array['order'], nulls => 'excluded');"


@pytest.fixture
def shop(database: Any) -> Any:
    database.sql(SET_UP)
    return database


def problem(database: Any, relation: str) -> str | None:
    query = f"select problem from dp.relations where relation_name = '{relation}'"
    return str(found) if (found := database.sql(query)[0][0]) else None


def warned(database: Any, statement: str) -> list[str]:
    found: list[str] = []

    def keep(told: psycopg.errors.Diagnostic) -> None:
        if told.severity == "WARNING":
            found.append(told.message_primary or "")

    with database.connect() as session:
        session.add_notice_handler(keep)
        session.execute(statement)
    return found


def test_another_way_that_is_never_null_is_what_to_keep(shop: Any) -> None:
    told = str(problem(shop, "ticket"))
    assert 0 < told.index(FOLLOW) < told.index(EXCLUDE)
    assert "every row still belongs to its unit by another way" in told
    assert f"and to none by this one) or {EXCLUDE}" in told
    assert "rows where order leads to no parent are never counted" in told
    shop.sql(FOLLOW)
    assert problem(shop, "ticket") is None
    # at epsilon 20 noise beyond 60 has a probability far below 1e-9
    ((value,),) = shop.sql("set dp.epsilon = 20; select dp_count(*) from ticket")
    assert abs(value - 300) < 60


def test_without_another_way_nothing_says_not_to_follow(shop: Any) -> None:
    shop.sql("alter table ticket drop customer")
    told = str(problem(shop, "ticket"))
    assert EXCLUDE in told
    assert "follow => false" not in told
    # nor where the other way may be NULL itself
    shop.sql("alter table ticket add customer int references customer")
    assert "follow => false" not in str(problem(shop, "ticket"))


def test_several_units_are_told_of_by_link_and_unlink(shop: Any) -> None:
    several = ["rows of public.ticket belong to several privacy units"]
    assert warned(shop, FOLLOW.lower()) == []
    unlink = "select dp.unlink('ticket', 'orders', array['order'])"
    assert warned(shop, unlink) == several
    assert warned(shop, EXCLUDE.lower()) == several
    assert warned(shop, EXCLUDE.lower()) == []


@pytest.mark.parametrize("excluded", [False, True])
def test_a_foreign_key_between_types_that_are_not_compared_is_told_of(
    shop: Any, excluded: bool
) -> None:
    """The analyser would refuse such a way also where rows without a unit are left out."""
    shop.sql(
        "create table day (d timestamp primary key, customer int not null references customer);"
        "create table shift (d timestamp not null references day);"
        "insert into day select '2020-01-01', 1; insert into shift select d from day"
    )
    assert problem(shop, "shift") is None
    if excluded:
        shop.sql("select dp.link('shift', 'day', array['d'], nulls => 'excluded')")
    shop.sql("alter table shift alter d type date")
    told = str(problem(shop, "shift"))
    assert "public.shift.d is of type date, public.day.d of type timestamp" in told
    assert "excluded" not in told
    assert "follow" not in told
    mend = told[told.index("ALTER TABLE") :]
    with shop.connect() as owner:
        assert refused(owner, "select dp_count(*) from shift").sqlstate in ("PD011", "PD012")
        # with another way for every row the key need not be followed
        owner.execute("alter table shift add customer int not null references customer default 1")
        other = str(problem(shop, "shift"))
        assert 0 < other.index("follow => false);") < other.index(mend)
        assert "excluded" not in other
        assert "never counted" not in other
        owner.execute("alter table shift drop customer")
        owner.execute(mend)
        assert problem(shop, "shift") is None
        owner.execute("select dp_count(*) from shift")


def test_a_foreign_key_between_types_that_are_compared_excludes_rows(shop: Any) -> None:
    shop.sql("create table paid (price int not null references customer (price))")
    told = str(problem(shop, "paid"))
    assert "types of price and price differ" in told
    assert "ALTER" not in told
    shop.sql(told[told.index("SELECT") :])
    assert problem(shop, "paid") is None
    shop.sql("select dp_count(*) from paid")


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        ("text", "id", False),
        ("int", "code", False),
        ("date", "id", False),
        ("numeric", "code", False),
        ("bigint", "id", True),
        ("numeric", "id", True),
        ("smallint", "price", True),
        ("varchar(9)", "code", True),
        ("text", "code", True),
    ],
)
def test_columns_are_linked_where_questions_can_compare_them(
    shop: Any, mine: str, theirs: str, fits: bool
) -> None:
    shop.sql(f"create table mail (c {mine})")
    link = f"select dp.link('mail', 'customer', array['c'], array['{theirs}'], nulls => 'excluded')"
    if fits:
        shop.sql(link)
        assert problem(shop, "mail") is None
        shop.sql("select dp_count(*) from mail")
        return
    with shop.connect() as owner:
        error = refused(owner, link)
    assert error.sqlstate == "PD040"
    assert "columns of different types" in str(error)
    assert f"public.mail.c is of type {mine.replace('int', 'integer')}" in str(
        error.diag.message_detail
    )
    assert "ALTER TABLE public.mail ALTER c TYPE" in str(error.diag.message_hint)
    # what leads to no unit is never compared
    shop.sql(link.replace("nulls => 'excluded'", "follow => false"))
