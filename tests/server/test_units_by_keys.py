"""Units of tables that are large enough to be added up in arrays: the numbers are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.in_service import in_service

pytestmark = pytest.mark.server

SET_UP = """
create table customer (id int primary key, country text not null);
insert into customer select g, 'country ' || g % 5 from generate_series(1, 3000) g;
create table orders (id bigint primary key, customer int not null references customer,
  status char(1) not null, priority int not null);
insert into orders select 7 * g, 1 + (g * 37 + g / 7) % 2500,
  substr('ABC', 1 + g / 11 % 3, 1), g / 5 % 4 from generate_series(1, 80000) g;
create table item (id serial primary key, o bigint not null references orders, price numeric(9, 2),
  number int not null, sold date not null);
insert into item (o, price, number, sold)
  select 7 * (1 + (g * 13 + g / 5) % 80000), case when g % 50 > 0 then g % 997 - 100.25 end, g % 11,
    date '2020-01-01' + g % 1000 from generate_series(1, 200000) g;
select dp.protect('customer', privacy_unit => 'id', delta => 1);
select dp.set_domain('orders', 'status', array['A', 'B', 'C']);
select dp.set_domain('orders', 'priority', 0, 3), dp.set_domain('item', 'price', -200, 900);
select dp.set_domain('customer', 'country', array['country 0', 'country 1', 'country 2', 'country 3', 'country 4']);
select dp.grant_budget('postgres', 1e6, 1);
analyze customer, orders, item;
"""
#: No unit is cut off, and what counts by keys is counted.
PATCH = in_service("""
from dpsql.core.mechanisms import truncation
truncation.bounds = lambda largest, least=1: (10**15,)
from dpsql.statistics import keyed
import dpsql
dpsql.by_keys = 0
right = keyed.evaluate
def evaluate(*given):
    found = right(*given)
    dpsql.by_keys += found is not None
    return found
keyed.evaluate = evaluate
""")
USED = in_service("""
import dpsql
if dpsql.by_keys != 1:
    raise Exception(f"answered by keys {dpsql.by_keys} times")
dpsql.by_keys = 0
""")
QUESTIONS = (
    "select dp_count(*) from orders",
    "select dp_count(*) from item",
    "select status, dp_count(*) from orders group by status",
    "select dp_avg(i.price), dp_count(*) from item i join orders o on i.o = o.id",
    "select dp_sum(i.price), dp_sum(i.number), dp_count(*) from item i where i.sold < '2021-06-01'",
    "select o.status, dp_sum(i.price) filter (where i.number > 5), dp_count(*) filter (where i.number < 3),"
    " dp_sum(o.priority) from item i join orders o on i.o = o.id group by 1",
    "select c.country, dp_count(*), dp_count(*) filter (where o.priority = 1) from orders o"
    " join customer c on o.customer = c.id group by 1",
    "select dp_count(*) filter (where o.status = 'A'), dp_sum(i.price) from item i"
    " join orders o on i.o = o.id where i.number <> 4",
)


@pytest.fixture(scope="module")
def shop(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_added_up_by_keys_is_what_postgresql_says(shop: Any, question: str) -> None:
    with asking.silent(shop, "customer", PATCH) as session:
        found = session.execute(question).fetchall()
        session.execute(USED)
        expected = session.execute(question.replace("dp_", "")).fetchall()
    # public groups without results are shown
    assert sorted(row for row in found if any(map(_counted, row))) == sorted(expected)


def _counted(number: object) -> bool:
    return not isinstance(number, str) and bool(number)
