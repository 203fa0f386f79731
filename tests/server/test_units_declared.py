"""Privacy units along foreign keys: what changes, is missing or contradicts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused, say

pytestmark = pytest.mark.server


def test_a_dropped_foreign_key_ends_questions_and_a_new_one_begins_them(
    unit_shop: Any, unit_asker: Any
) -> None:
    unit_asker.execute("select dp_count(*) from item")
    unit_shop.sql("alter table item drop constraint item_o_fkey")
    assert refused(unit_asker, "select dp_count(*) from item").sqlstate == "PD012"
    unit_shop.sql("alter table item add foreign key (o) references orders")
    unit_asker.execute("select dp_count(*) from item")
    unit_shop.sql("create table visit (c int not null references customer)")
    unit_asker.execute("select dp_count(*) from visit")
    unit_shop.sql("revoke select on visit from dp_executor")
    error = refused(unit_asker, "select dp_count(*) from visit")
    assert error.diag.message_detail == "The reason: role dp_executor may not read it."
    assert "GRANT SELECT ON public.visit TO dp_executor" in str(error.diag.message_hint)


def test_a_dropped_foreign_key_in_the_middle_ends_questions(
    unit_shop: Any, unit_asker: Any
) -> None:
    unit_asker.execute("select dp_count(*) from item")
    unit_shop.sql("alter table orders drop constraint orders_c_fkey")
    assert refused(unit_asker, "select dp_count(*) from item").sqlstate == "PD012"


def test_rows_without_a_unit_are_refused_or_excluded(unit_shop: Any, unit_asker: Any) -> None:
    unit_shop.sql(
        "create table call (id int primary key, c int references customer);"
        " insert into call select g, case when g % 2 = 0 then 1 + g % 3000 end"
        " from generate_series(1, 4000) g; grant select on call to dp_executor"
    )
    error = refused(unit_asker, "select dp_count(*) from call")
    assert error.sqlstate == "PD012"
    assert "c can be NULL" in str(error.diag.message_detail)
    unit_shop.sql("select dp.link('call', 'customer', array['c'], nulls => 'excluded')")
    ((value,),) = unit_asker.execute("select dp_count(*) from call").fetchall()
    assert abs(value - 2000) < 180
    unit_shop.sql("select dp.unlink('call', 'customer', array['c'])")
    assert refused(unit_asker, "select dp_count(*) from call").sqlstate == "PD012"


def test_a_link_without_a_foreign_key(unit_shop: Any, unit_asker: Any) -> None:
    unit_shop.sql(
        "create table mail (c int not null); insert into mail select 1 + g % 5000"
        " from generate_series(1, 5000) g"
    )
    assert refused(unit_asker, "select dp_count(*) from mail").sqlstate == "PD012"
    unit_shop.sql("select dp.link('mail', 'customer', array['c'])")
    assert "no foreign key" in str(
        refused(unit_asker, "select dp_count(*) from mail").diag.message_detail
    )
    unit_shop.sql("select dp.link('mail', 'customer', array['c'], nulls => 'excluded')")
    ((value,),) = unit_asker.execute("select dp_count(*) from mail").fetchall()
    assert abs(value - 3000) < 90  # who is no customer is never counted


def test_a_parent_without_a_key_is_refused(unit_shop: Any, unit_asker: Any) -> None:
    """A row with several parents would belong to several units."""
    unit_shop.sql("create table part (o int not null, x int); create table box (x int not null);")
    unit_shop.sql(
        "insert into part select o, o % 5 from orders; insert into box select o % 5 from orders"
    )
    unit_shop.sql("select dp.link('part', 'orders', array['o'], nulls => 'excluded')")
    unit_shop.sql("select dp.link('box', 'part', array['x'], array['x'], nulls => 'excluded')")
    unit_asker.execute("select dp_count(*) from part")
    error = refused(unit_asker, "select dp_count(*) from box")
    assert "unique key" in str(error.diag.message_detail)
    error = refused(unit_asker, "select dp_count(*) from box join part using (x)")
    assert "unique key" in str(error.diag.message_detail)


@pytest.mark.parametrize(
    ("parent", "said"), [("customer", "refer to other rows of it by k"), ("orders", "in a circle")]
)
def test_keys_in_a_circle_are_cut_by_the_owner(
    unit_shop: Any, unit_asker: Any, parent: str, said: str
) -> None:
    unit_shop.sql(f"alter table customer add k int references {parent}")
    assert said in str(refused(unit_asker, "select dp_count(*) from orders").diag.message_detail)
    unit_shop.sql(f"select dp.link('customer', '{parent}', array['k'], follow => false)")
    unit_asker.execute("select dp_count(*) from orders")
    assert dict(unit_shop.sql("select relation_name, problem from dp.relations"))["orders"] is None


@pytest.mark.parametrize(
    ("before", "call", "why"),
    [
        ("", "dp.declare_public('orders')", "belong to privacy units"),
        ("", "dp.protect('orders')", "belong to privacy units"),
        ("", "dp.protect('customer', privacy_unit => 'none')", "has no column"),
        ("create table t (a int)", "dp.protect('t', privacy_unit => 'a')", "can be NULL"),
        (
            "create table t (a int primary key); create table s (a int references t);"
            " select dp.declare_public('s')",
            "dp.protect('t', privacy_unit => 'a')",
            "declared otherwise",
        ),
        (
            "create table t (a int primary key); create table s (a int references t);"
            " select dp.protect('s')",
            "dp.protect('t', privacy_unit => 'a')",
            "declared otherwise",
        ),
        ("", "dp.link('item', 'nation', array['o', 'k'])", "no primary key of 2"),
        ("", "dp.link('item', 'nation', array['z'])", "does not exist"),
        ("", "dp.link('item', 'nation', array['o'], nulls => 'public')", "refused or excluded"),
        ("", "dp.unlink('item', 'nation', array['o'])", "not linked"),
    ],
)
def test_declarations_that_contradict(unit_shop: Any, before: str, call: str, why: str) -> None:
    if before:
        unit_shop.sql(before)
    error = refused(unit_shop.connect(), f"select {call}")
    assert error.sqlstate == "PD040"
    assert why in str(error)


def test_a_public_relation_that_begins_to_refer_to_a_unit_is_refused(
    unit_shop: Any, unit_asker: Any
) -> None:
    unit_shop.sql(
        "create table s (c int not null); insert into s values (1); select dp.declare_public('s')"
    )
    assert say(unit_asker, "select dp_count(*) from s") == "[(1,)]"
    unit_shop.sql("alter table s add foreign key (c) references customer")
    error = refused(unit_asker, "select dp_count(*) from s")
    assert error.sqlstate == "PD012"
    assert "units of customer.c" in str(error.diag.message_detail)


def test_one_notion_for_ever_once_spent(unit_shop: Any, unit_asker: Any) -> None:
    unit_shop.sql(
        "create table t (a int primary key); insert into t values (1); select dp.protect('t')"
    )
    unit_shop.sql("select dp.protect('t', privacy_unit => 'a')")  # nothing was spent yet
    unit_shop.sql("select dp.protect('t')")
    unit_asker.execute("select dp_count(*) from t")
    error = refused(unit_shop.connect(), "select dp.protect('t', privacy_unit => 'a')")
    assert "row by row" in str(error)
    unit_shop.sql("select dp.unprotect('t')")
    error = refused(unit_shop.connect(), "select dp.protect('t', privacy_unit => 'a')")
    assert "row by row" in str(error)
    unit_asker.execute("select dp_count(*) from item")
    unit_shop.sql("select dp.unprotect('customer')")
    assert "privacy unit c" in str(refused(unit_shop.connect(), "select dp.protect('customer')"))
    unit_shop.sql("select dp.protect('customer', privacy_unit => 'c')")
    unit_asker.execute("select dp_count(*) from item")


def test_a_dropped_relation_keeps_its_notion_with_its_root(unit_shop: Any, unit_asker: Any) -> None:
    unit_asker.execute("select dp_count(*) from item")
    unit_shop.sql("drop table item, orders, customer; create table customer (c int primary key)")
    error = refused(unit_shop.connect(), "select dp.protect('customer')")
    assert "privacy unit c" in str(error)


def test_unprotecting_takes_the_members_along(unit_shop: Any, unit_asker: Any) -> None:
    unit_shop.sql("select dp.unprotect('customer')")
    reading = "select relname from pg_class where has_table_privilege('dp_executor', oid, 'select') and relname = any (%s)"
    names = ["customer", "orders", "item", "nation"]
    with unit_shop.connect() as owner:
        assert owner.execute(reading, [names]).fetchall() == [("nation",)]
    for relation in names[:3]:
        assert refused(unit_asker, f"select dp_count(*) from {relation}").sqlstate == "PD012"
