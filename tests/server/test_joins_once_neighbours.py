"""Outer joins, IN and EXISTS over all neighbours of a small instance: what a row moves is at most the bound.

The truth is PostgreSQL's answer to the statement as it is written; every row is taken away, and rows of
all kinds are added, as far as constraints allow (PRIVACY.md sections 1, 4 and 9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import asking

pytestmark = pytest.mark.server

SET_UP = """
create table land (l_id int primary key, l_name text not null, l_part int not null);
create table customer (c_id int primary key, c_land int not null references land, c_kind text not null);
create table buy (b_id int primary key, b_customer int not null references customer, b_gift int references customer,
  b_amount int not null, b_note text);
create table mark (m_buy int not null references buy, m_what text not null, primary key (m_buy, m_what));
create table loose (x int not null, y int);
insert into land select i, 'land ' || i, i % 2 from generate_series(1, 3) as i;
insert into customer select i, 1 + i % 3, (array['a', 'b'])[1 + i % 2] from generate_series(1, 6) as i;
insert into buy select i, 1 + i * i % 4, case when i % 4 > 0 then 1 + i % 6 end, i % 5, nullif('n' || i % 3, 'n2')
  from generate_series(1, 9) as i;
insert into mark select distinct 1 + i * 3 % 7, 'w' || i % 3 from generate_series(1, 12) as i;
insert into loose select 1 + i % 4, nullif(i % 6, 0) from generate_series(1, 14) as i;
select dp.declare_public('land'), dp.protect('customer'), dp.protect('buy'), dp.protect('mark'), dp.protect('loose');
select dp.set_domain('customer', 'c_kind', array['a', 'b']), dp.set_domain('mark', 'm_what', array['w0', 'w1', 'w2']);
"""
#: What is deleted from and added to each relation.
ADDED = {
    "customer": ["select 99, 1, 'a'", "select 99, 2, 'b'"],
    "buy": ["select distinct 99, b_customer, b_gift, 3, 'n0' from buy"],
    "mark": [
        "select b_id, w from buy, (values ('w0'), ('w1')) as v(w) where not exists (select from mark where m_buy = b_id and m_what = w)"
    ],
    "loose": [
        "select distinct x, y from loose",
        "select b_customer, b_gift from buy",
        "select b_id, b_id from buy",
    ],
}
STATEMENTS = [
    "select c_kind, count(*) from buy left join customer on c_id = b_customer group by 1",
    "select l_name, count(*) from buy left join customer on c_id = b_customer left join land on l_id = c_land group by 1",
    "select c_kind, count(*) from mark left join buy on m_buy = b_id left join customer on b_customer = c_id group by 1",
    "select c_kind, count(b_id) from customer left join buy on c_id = b_customer group by 1",
    "select l_name, count(c_id) from land left join customer on l_id = c_land group by 1",
    "select count(b_note) from customer left join buy on c_id = b_customer",
    "select count(*) from buy where b_gift in (select c_id from customer where c_kind = 'a')",
    "select count(*) from buy where exists (select from mark where m_buy = b_id and m_what = 'w1')",
    "select count(*) from loose where y in (select b_id from buy where b_amount > 1) and x in (select c_id from customer)",
    "select count(*) from loose left join customer on c_id = x where c_kind = 'a'",
    "select count(b_id) from loose left join buy on b_customer = x and b_gift = y",
    "select c_kind, count(b_id) from customer left join loose on x = c_id left join buy on b_id = y group by 1",
    "select count(*) from loose as l join loose as k on l.x = k.y where exists (select from customer where c_id = k.x and c_kind = 'a')",
    "select count(*) from buy left join customer on c_id = b_gift",
    "select m_what, count(*) from mark left join buy on b_id = m_buy and b_amount = 3 group by 1",
    "select count(c_id) from customer right join loose on y = c_id",
]


@pytest.fixture(scope="module")
def small(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


def counts(session: Any, statement: str) -> dict[tuple[object, ...], int]:
    return {tuple(row[:-1]): row[-1] for row in session.execute(statement).fetchall()}


def moved(session: Any, statement: str, change: str, values: Any) -> int:
    """Return by how much one change of a row moves all counts together; 0 where it breaks a constraint."""
    before = counts(session, statement)
    try:
        session.execute(change, values)
        after = counts(session, statement)
    except psycopg.errors.IntegrityError:
        after = before
    finally:
        session.execute("rollback to there")
    return sum(abs(before.get(k, 0) - after.get(k, 0)) for k in before.keys() | after.keys())


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_row_moves_the_counts_by_more_than_the_bound(small: Any, statement: str) -> None:
    with small.connect() as session:
        asked = statement.replace("count(", "dp_count(")
        bound = session.execute("select dp.sensitivity(%s, 'residual', 0.5)", (asked,)).fetchone()[0]  # fmt: skip
        session.execute("begin; savepoint there")
        largest = 0
        for relation, sources in ADDED.items():
            for (row,) in session.execute(f"select ctid::text from {relation}").fetchall():
                change = f"delete from {relation} where ctid = %s::tid"
                largest = max(largest, moved(session, statement, change, (row,)))
            for row in {row for s in sources for row in session.execute(s).fetchall()}:
                change = f"insert into {relation} values ({', '.join(['%s'] * len(row))})"
                largest = max(largest, moved(session, statement, change, row))
        session.execute("rollback")
    assert 0 < largest <= bound
