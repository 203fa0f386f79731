"""NOT NULL of rows that nobody checked: it is no fact, neither for a plan nor for arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking
from tests.server.in_service import in_service

pytestmark = pytest.mark.server

FAR = """
create table visit (o int, g text, v int);
insert into visit select s, case when s % 3 > 0 then 'a' end, s % 10 from generate_series(1, 60) s;
insert into visit values (99, 'a', null);
"""
NEAR = """
create table customer (id int primary key);
insert into customer select generate_series(1, 20);
create table orders (id int primary key, customer int not null references customer);
insert into orders select s, 1 + s % 19 from generate_series(1, 60) s;
insert into orders values (99, 20);
create extension postgres_fdw;
create server far foreign data wrapper postgres_fdw options (host '{host}', dbname '{dbname}');
create user mapping for public server far options (user 'postgres', password_required 'false');
create foreign table foreign_visit (o int not null, g text not null, v int not null)
  server far options (table_name 'visit');
create table parted_visit (o int not null, g text not null, v int not null) partition by range (o);
create foreign table part partition of parted_visit for values from (0) to (100)
  server far options (table_name 'visit');
create table inherited_visit (o int not null, g text not null, v int not null);
create table child () inherits (inherited_visit);
insert into child select o, coalesce(g, 'b'), coalesce(v, 0) from foreign_visit;
select dp.protect('customer', privacy_unit => 'id', delta => 1);
select dp.declare_public('foreign_visit'), dp.declare_public('parted_visit');
select dp.declare_public('inherited_visit'), dp.grant_budget('postgres', 1e6, 1);
"""
#: Nobody may forbid it to a child from PostgreSQL 18 on.
DROP = """
alter table child alter g drop not null, alter v drop not null;
update child set g = null where g = 'b';
update child set v = null where o = 99;
"""
#: Whatever can be counted in arrays is; no unit is cut off.
PATCH = in_service("""
from functools import partial
from dpsql.core.mechanisms import truncation
from dpsql.statistics import contributions
truncation.bounds = lambda largest, least=1: (10**9,)
contributions.contributions = partial(contributions.contributions, kernel="{kernel}")
""")
QUESTIONS = (
    "select g, dp_count(*), dp_sum(o.id) from {visit} v join orders o on v.o = o.id group by g",
    "select g, dp_count(*) from {visit} v join orders o on v.o = o.id group by g",
    "select dp_sum(v.v), dp_count(v.v), dp_count(*) from {visit} v join orders o on v.o = o.id",
    "select dp_sum(v.v) from {visit} v join orders o on v.o = o.id where o.id = 99",
)


@pytest.fixture(scope="module")
def near(server: Any) -> Iterator[Any]:
    far, database = server.create_database(), server.create_database()
    far.sql(FAR)
    database.sql(NEAR.format(host=server.cluster.socket, dbname=far.name))
    if database.sql("show server_version_num")[0][0] < "180000":
        database.sql(DROP)
    yield database
    server.drop_database(database)
    server.drop_database(far)


@pytest.mark.parametrize("kernel", ["sql", "arrays"])
@pytest.mark.parametrize("visit", ["foreign_visit", "parted_visit", "inherited_visit"])
def test_null_is_counted_where_not_null_is_claimed(near: Any, visit: str, kernel: str) -> None:
    """Which executor runs depends on protected rows, so it must not change a number."""
    with asking.silent(near, "customer", PATCH.format(kernel=kernel)) as session:
        for question in QUESTIONS:
            text = question.format(visit=visit)
            found = session.execute(text).fetchall()
            expected = session.execute(text.replace("dp_", "")).fetchall()
            assert sorted(map(_zeroed, found)) == sorted(map(_zeroed, expected)), text


def _zeroed(row: tuple[Any, ...]) -> tuple[str, ...]:
    """Read the sum of nothing as 0."""
    return tuple(str(value or 0) for value in row)
