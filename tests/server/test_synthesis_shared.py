"""``CALL dp.synthesize`` where foreign keys share columns with each other and with primary keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.server.test_synthesis_odd import Odd, people, same_constraints, synthesized

SHOP = """
create table tenant (id int primary key, plan text not null);
insert into tenant select i, (array['a','b'])[1 + i % 2] from generate_series(1, 6) i;
create table customer (tenant int not null references tenant, id int, kind text not null, primary key (tenant, id));
insert into customer select 1 + i % 6, i, (array['x','y'])[1 + i / 6 % 2] from generate_series(1, 960) i;
create table product (tenant int not null references tenant, id int, sort text not null, primary key (tenant, id));
insert into product select 1 + i % 6, i, (array['p','q'])[1 + i / 6 % 2] from generate_series(1, 60) i;
create table purchase (tenant int not null references tenant, id int, customer int not null, product int not null, gift int, ok boolean not null,
  primary key (tenant, id), foreign key (tenant, customer) references customer, foreign key (tenant, product) references product,
  constraint gift foreign key (tenant, gift) references product);
insert into purchase select c.tenant, row_number() over (), c.id, p.id, case when c.id % 3 = 0 then p.id end, c.id % 2 = 0
  from customer c join product p using (tenant) where (c.kind = 'x') = (p.sort = 'p') and (c.id / 12 + p.id / 6) % 2 = 0;
create table line (tenant int, purchase int, product int, n int not null, primary key (tenant, purchase, product),
  foreign key (tenant, purchase) references purchase, foreign key (tenant, product) references product);
insert into line select tenant, id, product, 3 from purchase
"""
STAFF = """
create table staff (tenant int, id int, boss int, before int, f boolean not null, primary key (tenant, id), unique (tenant, before),
  foreign key (tenant, boss) references staff, foreign key (tenant, before) references staff);
insert into staff select 1 + i % 3, i, case when i > 3 then i - 3 end, case when i > 3 then i - 3 end, true from generate_series(1, 60) i
"""
DOMAINS = "select dp.set_domain('customer', 'kind', array['x', 'y']);"
FREE = "select dp.link('purchase', 'product', array['tenant', 'gift'], follow => false);"
SCHEMAS = {
    "customers are units": Odd(
        SHOP,
        "select dp.declare_public('tenant'); select dp.declare_public('product'); select dp.protect('customer', privacy_unit => 'id');"
        + DOMAINS,
        ("customer", "purchase"),
        {"customer": 200, "purchase": 900},
        {"customer": 1, "purchase": 6},
    ),
    "tenants are units": Odd(
        SHOP,
        "select dp.protect('tenant', privacy_unit => 'id'); select dp.set_domain('tenant', 'plan', array['a', 'b']);"
        "select dp.set_domain('product', 'sort', array['p', 'q']); select dp.set_domain('line', 'n', 1, 9);"
        + DOMAINS
        + FREE,
        ("tenant", "customer", "product", "purchase", "line"),
        {"tenant": 10, "customer": 100, "product": 100, "purchase": 300, "line": 600},
        {"tenant": 1, "customer": 40, "product": 10, "purchase": 50, "line": 60},
    ),
    "rows of a table to itself": Odd(
        STAFF,
        "select dp.protect('staff', privacy_unit => 'id'); select dp.set_domain('staff', 'tenant', 1, 3);"
        "select dp.link('staff', 'staff', array['tenant', 'boss'], follow => false); select dp.link('staff', 'staff', array['tenant', 'before'], follow => false)",
        ("staff",),
        {"staff": 60},
        {"staff": 1},
    ),
    "pairs of pairs": people(
        "create table x (a int, b int, primary key (a, b)); insert into x select i, j from generate_series(1, 4) i, generate_series(1, 4) j;"
        "create table t (id int primary key, p int not null references person, a int not null, b int not null, c int not null,"
        " foreign key (a, b) references x, foreign key (b, c) references x, foreign key (c, a) references x);"
        "insert into t select i, 1 + i % 20, 1, 1, 1 from generate_series(1, 50) i",
        "select dp.declare_public('x')",
        {"t": 100},
    ),
    "two keys of one column": people(
        "create table x (id int primary key, a int); insert into x select i, i % 3 from generate_series(1, 9) i;"
        "create table y (id int primary key, a int); insert into y select i, i % 2 from generate_series(5, 15) i;"
        "create table t (id int primary key references person, x int not null references x, foreign key (x) references y)",
        "select dp.declare_public('x'); select dp.declare_public('y')",
        {"t": 40},
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_copy_has_all_keys_and_rows(database: Any, name: str) -> None:
    odd = SCHEMAS[name]
    told = synthesized(database, odd)
    same_constraints(database, odd)
    for table, number in odd.rows.items():
        assert database.sql(f"select count(*) from syn.{table}") == [(number,)], told
    if name == "rows of a table to itself":
        linked = "select count(boss) > 20 and count(before) > 20 from syn.staff"
        assert database.sql(linked) == [(True,)]


def test_links_that_share_a_column_are_learnt(database: Any) -> None:
    """Customers of a kind buy one sort of products, and a third of purchases are gifts.

    Of so many rows 0.95 are alike, 0.015 more or less, and 0.335 are gifts, 0.003 more or less: the
    ends are 13 times as far away.
    """
    rows = {"customer": 960, "purchase": 4320}
    synthesized(database, replace(SCHEMAS["customers are units"], rows=rows), epsilon=20)
    # noise of epsilon 20 is a few rows; of each tenant some rows find no product that is alike
    alike, gifts = database.sql(
        "select avg(((c.kind = 'x') = (p.sort = 'p'))::int)::float8, avg((o.gift is not null)::int)::float8"
        " from syn.purchase o join syn.customer c on (c.tenant, c.id) = (o.tenant, o.customer)"
        " join product p on (p.tenant, p.id) = (o.tenant, o.product)"
    )[0]
    assert alike > 0.75
    assert 0.2 < gifts < 0.45
