"""What is counted over parts on other servers is counted there: only groups are sent.

The plans are those of the counting SQL that dp.explain shows, as planned for dp_executor
(sql/hook/sent.c); rows are those that foreign scans returned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.shards import Shards, sharded

ORDERS = 3000
LINES = 15000
CUSTOMERS = 20
SHARDS = 3
SET_UP = f"""
insert into orders select i, 1 + i % {CUSTOMERS}, i / 7.0, (array['a', 'b', 'c'])[1 + i % 3], date '2024-01-01' + i % 50
  from generate_series(1, {ORDERS}) i;
insert into line select 1 + i % {ORDERS}, i % 50, i % 7, date '2024-01-05' + i % 40 from generate_series(1, {LINES}) i;
create table customer (c_id int primary key, c_kind text);
insert into customer select i, (array['a', 'b'])[1 + i % 2] from generate_series(1, {CUSTOMERS}) i;
alter table customer owner to owner1;
"""
DECLARE = """
select dp.protect('orders'), dp.protect('line'), dp.protect('customer');
select dp.declare_shards(r, written => 'coordinator') from unnest(array['orders', 'line']::regclass[]) as r;
select dp.set_domain('orders', 'o_pri', array['a', 'b', 'c']);
select dp.set_domain('customer', 'c_kind', array['a', 'b']);
select dp.set_domain('line', 'l_quantity', 0, 50);
select dp.grant_budget('owner1', epsilon => 1000, delta => 1e-3);
"""
JOIN = "from orders join line on l_order = o_id"
#: A statement, and the most rows that its answer and all its boundaries may need.
STATEMENTS = {
    "one relation": ("select dp_count(*) from line where l_day < '2024-02-01'", SHARDS),
    "groups": ("select o_pri, dp_count(*) from orders group by o_pri", 3 * SHARDS),
    "sum": ("select dp_sum(l_quantity) from line", SHARDS),
    # the answer, and the largest count of an order in each relation
    "joined in place": (f"select dp_count(*) {JOIN}", 3 * SHARDS),
    "joined, filtered, grouped": (
        f"select o_pri, dp_count(*) {JOIN} where o_day < '2024-02-10' and l_part in (1, 2) group by o_pri",
        (3 + 2) * SHARDS,
    ),
    "a condition that spans both": (f"select dp_count(*) {JOIN} where o_day < l_day", 3 * SHARDS),
    "what becomes CASE": (
        "select dp_count(*) from line where coalesce(l_part = 3, true) and (l_quantity > 40) is not true",
        SHARDS,
    ),
    # months of days: a shard tells how many rows a day has
    "what is computed late": (
        "select dp_count(*) from line where extract(month from l_day) = 1",
        40 * SHARDS,
    ),
    "groups that are computed late": (
        f"select extract(month from o_day), dp_count(*) {JOIN} where extract(month from o_day) in (1, 2)"
        " group by 1",
        # and the largest count of an order, of orders of some days: of each order its day
        (50 + 1) * SHARDS + ORDERS,
    ),
    "joined with itself": (
        "select dp_count(*) from line a join line b on a.l_order = b.l_order and a.l_part < b.l_part",
        None,
    ),
    "different values": ("select dp_count(distinct l_part) from line", 7 * SHARDS),
    "a histogram": ("select dp_histogram(l_quantity, 0, 50, 5) from line", 50 * SHARDS),
    "a percentile": ("select dp_percentile(l_quantity, 0.5, 0, 50) from line", 50 * SHARDS),
    "a sum of a join": (f"select o_pri, dp_sum(l_quantity) {JOIN} group by o_pri", 3 * SHARDS),
}


#: Of units: the same shop, where customers are hidden with their orders.
UNITS = """
select dp.protect('customer', privacy_unit => 'c_id');
select dp.link('orders', 'customer', array['o_customer'], nulls => 'excluded');
select dp.declare_public('line');
select dp.declare_shards(r, written => 'coordinator') from unnest(array['orders', 'line']::regclass[]) as r;
select dp.set_domain('orders', 'o_pri', array['a', 'b', 'c']);
select dp.grant_budget('owner1', epsilon => 1000, delta => 1e-3);
"""
UNIT_STATEMENTS = {
    "units": ("select dp_count(*) from orders", CUSTOMERS * SHARDS),
    "groups of units": (
        "select o_pri, dp_count(*) from orders group by o_pri",
        3 * CUSTOMERS * SHARDS,
    ),
    "units of what is joined in place": (f"select dp_count(*) {JOIN}", CUSTOMERS * SHARDS),
}


@contextmanager
def shop(server: Any, declare: str) -> Iterator[Shards]:
    """Make the shop, declared in some way."""
    with sharded(server, SHARDS) as found:
        found.table(
            "orders",
            "o_id int, o_customer int, o_price numeric(12,2), o_pri text, o_day date",
            "o_id",
        )
        found.table("line", "l_order int, l_quantity int, l_part int, l_day date", "l_order")
        found.near.sql(SET_UP)
        found.near.sql(declare, user="owner1")
        yield found


@pytest.fixture(scope="module", params=["analysed", "not analysed"])
def shards(server: Any, request: pytest.FixtureRequest) -> Iterator[Shards]:
    with shop(server, DECLARE) as found:
        if request.param == "analysed":
            found.near.sql("analyze orders, line, customer")
        yield found


def scans(plan: Any) -> Iterator[dict[str, Any]]:
    if plan["Node Type"] == "Foreign Scan":
        yield plan
    for inner in plan.get("Plans", ()):
        yield from scans(inner)


def planned(shards: Shards, statement: str) -> Iterator[dict[str, Any]]:
    """Run what counts for a statement; yield its scans of shards."""
    with shards.near.connect("owner1") as owner:
        rows = owner.execute(
            "select value from dp.explain(%s) where item = 'counting SQL'", (statement,)
        ).fetchall()
    with shards.near.connect() as session:
        session.execute("set role dp_executor; set search_path = pg_catalog, pg_temp")
        for (text,) in rows:
            told = session.execute(f"explain (analyze, verbose, format json) {text}").fetchone()[0]
            plan = told if isinstance(told, list) else json.loads(told)
            yield from scans(plan[0]["Plan"])


def sent(shards: Shards, statement: str) -> tuple[list[str], float]:
    """Return what is asked of the shards, and how many rows they send."""
    remote, total = [], 0.0
    for scan in planned(shards, statement):
        remote.append(scan["Remote SQL"])
        total += scan["Actual Rows"] * scan["Actual Loops"]
    return remote, total


@pytest.mark.parametrize("name", STATEMENTS)
def test_only_groups_are_sent(shards: Shards, name: str) -> None:
    statement, most = STATEMENTS[name]
    remote, rows = sent(shards, statement)
    assert remote
    assert all(any(w in sql for w in ("count(*)", "sum(", "GROUP BY")) for sql in remote), remote
    if most is not None:
        assert rows <= most, (rows, remote)


@pytest.mark.parametrize("name", STATEMENTS)
def test_shards_work_at_the_same_time(shards: Shards, name: str) -> None:
    one_by_one = [s for s in planned(shards, STATEMENTS[name][0]) if not s["Async Capable"]]
    assert one_by_one == []


def test_of_units_only_what_each_adds_to_groups_is_sent(server: Any) -> None:
    with shop(server, UNITS) as found:
        for statement, most in UNIT_STATEMENTS.values():
            remote, rows = sent(found, statement)
            assert remote
            assert rows <= most, (rows, remote)
            assert all(scan["Async Capable"] for scan in planned(found, statement))


def test_of_other_joins_the_eliminated_side_is_sent(shards: Shards) -> None:
    """Customers are here: a shard tells how many lines each of them has."""
    statement = f"select dp_count(*) {JOIN} join customer on o_customer = c_id"
    remote, rows = sent(shards, statement)
    assert any("JOIN" in sql and "GROUP BY" in sql for sql in remote), remote
    assert all(scan["Async Capable"] for scan in planned(shards, statement))
    # lines by customer, orders by customer, and largest counts: each order is alone with its key
    assert rows <= 2 * CUSTOMERS * SHARDS + 4 * SHARDS, (rows, remote)
