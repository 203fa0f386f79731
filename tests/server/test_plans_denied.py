"""A plan over rows that may not be read is shown to nobody: it holds estimates (PRIVACY.md section 2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import asking

pytestmark = pytest.mark.server

SET_UP = """
grant usage on schema public to dp_analyst;
create table ledger_of_sales (id int primary key, amount int not null);
insert into ledger_of_sales select i, i % 10 from generate_series(1, 4321) as i;
create table parted (id int) partition by range (id);
create table parted_low partition of parted for values from (0) to (5000);
insert into parted select i from generate_series(1, 4321) as i;
create view shown as select count(*) as n from ledger_of_sales;
analyze ledger_of_sales; analyze parted;
select dp.protect('ledger_of_sales'), dp.protect('parted');
select dp.expose('ledger_of_sales');
select dp.grant_budget('alice', epsilon => 1, delta => 1e-6);
create schema mine authorization alice;
grant select on shown to alice;
grant select (id) on parted to bob;
set role alice;
create function mine.rows() returns setof public.ledger_of_sales language sql stable as 'select * from public.ledger_of_sales where amount < 5';
create view mine.own as select * from public.ledger_of_sales;
create function mine.number() returns bigint language plpgsql as $$ begin return (select count(*) from public.ledger_of_sales); end $$;
reset role;
"""
DENIED = [
    "explain select * from ledger_of_sales where amount < 5",
    "select * from ledger_of_sales where amount = 3",
    "select count(*) from ledger_of_sales tablesample system (10)",
    "explain select * from generate_series(1, 3) as x where exists (select from ledger_of_sales where id = x)",
    "with s as materialized (select * from ledger_of_sales) select * from s",
    "explain select * from mine.rows()",
    "select * from mine.own",
    "select mine.number()",
    "delete from ledger_of_sales where id < 100",
    "update ledger_of_sales set amount = 1 where id < 100",
    "explain select * from parted where id < 100",
    "explain select * from parted_low where id < 100",
    "prepare p as select * from ledger_of_sales; execute p",
    "declare c cursor with hold for select * from ledger_of_sales",
    "create table mine.copied as select * from ledger_of_sales",
    "copy (select * from ledger_of_sales) to stdout",
]
FREE = [
    ("bob", "explain select id from parted where id < 100"),
    ("alice", "select * from shown"),
    ("alice", "explain select count(*) from dpv.ledger_of_sales"),
    ("alice", "explain select * from dpv.ledger_of_sales"),
]


@pytest.fixture(scope="module")
def kept(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


def heard(database: Any, user: str, statement: str) -> tuple[psycopg.Error | None, str]:
    """Return the error of a statement, if any, and the plans that its session is sent."""
    said: list[str] = []
    with database.connect(user=user) as session:
        session.add_notice_handler(lambda d: said.append(f"{d.message_primary} {d.message_detail}"))
        session.execute(
            "set debug_pretty_print = off; set client_min_messages = log; set debug_print_plan = on"
        )
        try:
            session.execute(statement)
        except psycopg.Error as error:
            return error, "\n".join(said)
    return None, "\n".join(said)


def scanned(plans: str, oids: set[str]) -> list[str]:
    """Return the plans that name one of the relations."""
    return [p for p in plans.splitlines() if oids & set(re.findall(r":relid (\d+)", p))]


@pytest.mark.parametrize("statement", DENIED)
def test_no_plan_is_made_of_rows_that_may_not_be_read(kept: Any, statement: str) -> None:
    found = kept.sql(
        "select oid::text from pg_class where relname in ('ledger_of_sales', 'parted', 'parted_low')"
    )
    oids = {row[0] for row in found} if isinstance(found, list) else {str(found)}
    error, plans = heard(kept, "alice", statement)
    assert error is not None
    assert error.sqlstate == "42501", error
    assert not scanned(plans, oids)


@pytest.mark.parametrize(("user", "statement"), FREE)
def test_what_may_be_read_is_planned(kept: Any, user: str, statement: str) -> None:
    assert heard(kept, user, statement)[0] is None


def test_the_refusal_keeps_its_hint(kept: Any) -> None:
    error, _ = heard(kept, "alice", "explain select * from ledger_of_sales")
    assert error is not None
    assert "dpv.ledger_of_sales" in str(error.diag.message_hint)


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("select from parted where id in (select id + 1 from ledger_of_sales offset 0)", "parted"),
        ("select (select max(id) from ledger_of_sales) from parted", "parted"),
        (
            "select from ledger_of_sales where exists (select from parted offset 3)",
            "ledger_of_sales",
        ),
    ],
)
def test_the_relation_that_is_named_is_the_one_that_postgresql_names(
    kept: Any, statement: str, first: str
) -> None:
    """PostgreSQL checks outer queries first, and the planner opens the relations of sub-queries first."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"for table {first}\\b"):
        kept.connect(user="alice").execute(statement)
