"""Bounds over parts on other servers need no more rows than the groups of the answer.

Customers, suppliers and nations are here, orders and lines there: the joins of Q1 to Q3 of TPC-H.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.shards import Shards, sharded
from tests.server.test_parts_pushed import sent

SHARDS = 3
ORDERS, LINES, CUSTOMERS, SUPPLIERS, PARTS, NATIONS = 3000, 15000, 20, 20, 10, 4
SET_UP = f"""
insert into orders select i, 1 + i % {CUSTOMERS} from generate_series(1, {ORDERS}) i;
insert into line select 1 + i % {ORDERS}, 1 + (i / 7) % {SUPPLIERS + 1}, 1 + i % {PARTS} from generate_series(1, {LINES}) i;
create table nation (n_id int primary key);
create table customer (c_id int primary key, c_nation int not null);
create table supplier (s_id int primary key, s_nation int not null);
create table partsupp (ps_part int, ps_supplier int, primary key (ps_part, ps_supplier));
insert into nation select generate_series(1, {NATIONS});
insert into customer select i, 1 + i % {NATIONS + 1} from generate_series(1, {CUSTOMERS}) i;
insert into supplier select i, 1 + i % {NATIONS} from generate_series(1, {SUPPLIERS}) i;
insert into partsupp select p, s from generate_series(1, {PARTS}) p, generate_series(1, {SUPPLIERS}) s where (p + s) % 3 > 0;
alter table nation owner to owner1; alter table customer owner to owner1;
alter table supplier owner to owner1; alter table partsupp owner to owner1;
"""
DECLARE = """
select dp.declare_public('nation');
select dp.protect(r) from unnest(array['orders', 'line', 'customer', 'supplier', 'partsupp']::regclass[]) as r;
select dp.declare_shards(r, written => 'coordinator') from unnest(array['orders', 'line']::regclass[]) as r;
select dp.grant_budget('postgres', epsilon => 1000, delta => 1e-3);
select dp.grant_budget('owner1', epsilon => 1000, delta => 1e-3);
"""
STATEMENTS = {
    "Q1": "nation, customer, orders, line, supplier where n_id = c_nation and c_id = o_customer"
    " and o_id = l_order and l_supplier = s_id",
    "Q2": "partsupp, supplier, line, orders where ps_supplier = s_id and ps_part = l_part"
    " and ps_supplier = l_supplier and l_order = o_id",
    "Q3": "supplier, line, orders, customer, nation where s_id = l_supplier and l_order = o_id"
    " and o_customer = c_id and c_nation = n_id and n_id = s_nation",
}
#: What the rest is joined on with orders and lines, and how often a row of each part is needed.
GROUPS = {
    "Q1": ("o_customer, l_supplier", 4),
    "Q2": ("l_part, l_supplier", 4),
    "Q3": ("o_customer, l_supplier", 4),
}


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, SHARDS) as found:
        found.table("orders", "o_id int, o_customer int", "o_id")
        found.table("line", "l_order int, l_supplier int, l_part int", "l_order")
        found.near.sql(SET_UP)
        found.near.sql(DECLARE, user="owner1")
        found.near.sql("analyze orders, line, nation, customer, supplier, partsupp")
        yield found


def number(database: Any, text: str) -> int:
    with database.connect() as session:
        return int(session.execute(text).fetchone()[0])


def groups(shards: Shards, columns: str) -> int:
    """Count groups of what is joined on the shards, on each of them."""
    text = f"select count(*) from (select distinct {columns} from orders join line on l_order = o_id) g"
    return sum(number(database, text) for database in shards.far)


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_more_than_the_groups_of_the_answer_are_sent(shards: Shards, name: str) -> None:
    columns, rows_of_parts = GROUPS[name]
    remote, rows = sent(shards, f"select dp_count(*) from {STATEMENTS[name]}")
    assert remote
    assert all("count(*)" in sql for sql in remote), [s for s in remote if "count(*)" not in s]
    largest = groups(shards, columns)
    # of Q1 the groups by customer, and by supplier, are asked for beside those by both
    more = (CUSTOMERS + SUPPLIERS + 1) * SHARDS if name == "Q1" else (SUPPLIERS + 1) * SHARDS
    assert largest <= rows <= largest + more + rows_of_parts * SHARDS, (rows, largest, remote)
    assert rows < ORDERS


@pytest.mark.parametrize("name", STATEMENTS)
def test_answers_are_those_of_the_plain_statement(shards: Shards, name: str) -> None:
    true = number(shards.near, f"select count(*) from {STATEMENTS[name]}")
    assert true
    with silent(shards.near, "orders") as session:
        found = session.execute(f"select dp_count(*) from {STATEMENTS[name]}").fetchone()
    assert found == (true,)


def test_what_the_bound_leaves_out_is_said(shards: Shards) -> None:
    with shards.near.connect("owner1") as owner:
        told = {
            name: dict(
                owner.execute(
                    "select item, value from dp.explain(%s)", (f"select dp_count(*) from {text}",)
                ).fetchall()
            )
            for name, text in STATEMENTS.items()
        }
    assert "left out of the bound" not in told["Q1"]
    assert "left out of the bound" not in told["Q2"]
    assert told["Q3"]["left out of the bound"].startswith(
        "public.customer, public.supplier, where other servers"
    )


def test_the_bound_of_what_leaves_relations_out_is_no_smaller(shards: Shards) -> None:
    """The same rows on one server: its bound, which may use all conditions, is at most as large."""
    near = shards.near
    near.sql(
        "create table o as select * from orders; create table l as select * from line;"
        " alter table o owner to owner1; alter table l owner to owner1"
    )
    near.sql("select dp.protect('o'), dp.protect('l')", user="owner1")
    with near.connect("owner1") as owner:
        for text in STATEMENTS.values():
            alone = text.replace("orders", "o").replace("line", "l")
            for beta in (0.1, 1.0):
                far, one = (
                    owner.execute(
                        "select dp.sensitivity(%s, 'residual', %s)",
                        (f"select dp_count(*) from {sql}", beta),
                    ).fetchone()[0]
                    for sql in (text, alone)
                )
                assert one <= far * (1 + 1e-8) <= 4 * one * (1 + 1e-8), (text, beta)
