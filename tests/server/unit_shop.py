"""Customers as privacy units, with orders and items: what tests of units ask."""

from __future__ import annotations

from typing import Any

# 3,000 customers; customer c has c % 4 orders, order o has 1 + o % 3 items
SET_UP = """
create table nation (n int primary key, name text not null);
insert into nation values (1, 'one'), (2, 'two');
create table customer (c int primary key, n int not null references nation);
insert into customer select g, 1 + g % 2 from generate_series(1, 3000) g;
create table orders (o int primary key, c int not null references customer, urgent boolean not null);
insert into orders select row_number() over (), c, c % 2 = 0
  from customer, generate_series(1, 3) k where k <= c % 4;
create table item (o int not null references orders, k int not null, weight int, primary key (o, k));
insert into item select o, k, o % 10 from orders, generate_series(1, 3) k where k <= 1 + o % 3;
select dp.protect('customer', privacy_unit => 'c');
select dp.declare_public('nation');
grant usage on schema public to alice;
select dp.grant_budget('alice', 100000, 1e-3);
"""


def truth(shop: Any, statement: str) -> list[Any]:
    rows: list[Any] = shop.sql(statement.replace("dp_count", "count"))
    return rows
