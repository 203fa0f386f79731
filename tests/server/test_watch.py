"""The witness of the fuzzer gives alarm: each way to read protected rows past a door is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import PARALLEL
from tests.server.conftest import declare
from tests.server.waiting import wait_until
from tests.server.watching import Watch

READS = [
    "select count(*) from purchase",
    "select * from purchase where p_id = 7",
    "select (select max(p_amount) from purchase)",
    "select c_id from client where exists (select from purchase where p_client = c_id)",
    "with p as (select * from purchase) select count(*) from p",
    "with recursive r(n) as (select 1 union all select n + 1 from r, purchase where p_id = n) select count(*) from r",
    "select count(*) from purchase tablesample system (100)",
    "select count(*) from purchase where ctid = '(0,1)'",
    "select * from purchase for update",
    "set enable_seqscan = off; select count(*) from purchase where p_id < 100",
    "set enable_seqscan = off; set enable_indexscan = off; select count(p_amount) from purchase where p_id < 100",
    "update purchase set p_flag = true where false",
    "delete from purchase where false",
    "insert into purchase select -1, 1, 1, '2024-01-01', true where false",
    "explain analyze select count(*) from purchase",
    "copy (select p_id from purchase) to stdout",
    "prepare p as select count(*) from purchase; execute p",
    "begin; declare c cursor for select * from purchase; fetch c; commit",
    "create temp table mine as select * from purchase",
    "do $$ begin perform count(*) from purchase; raise exception 'x'; exception when others then null; end $$",
    "begin; savepoint s; select count(*) from purchase; rollback",
    "select * from leaking",
    "select leaked()",
    "select executed()",
    PARALLEL
    + "; set min_parallel_table_scan_size = 0; set parallel_setup_cost = 0; select count(*) from purchase",
]
LEAKS = """
create role watched_reader login;
grant select, insert, update, delete on client, purchase to watched_reader;
grant dp_analyst to watched_reader;
create view leaking as select count(*) from purchase;
create function leaked() returns bigint language sql security definer set search_path = public as 'select count(*) from purchase';
create function executed() returns bigint language sql security definer set search_path = public as 'select count(*) from purchase';
alter function executed() owner to dp_executor;
grant select on leaking to watched_reader;
select dp.grant_budget('watched_reader', 100, 1e-4);
analyze;
"""


@pytest.fixture(scope="module")
def watch(server: Any) -> Iterator[Watch]:
    """A shop with rows that leak to somebody, who is watched."""
    shop = declare(server.create_database())
    shop.sql(LEAKS)
    yield Watch.over(shop, ["public.client", "public.purchase"], ["watched_reader"])
    server.drop_database(shop)
    server.create_database().sql("drop role watched_reader")


def run(watch: Watch, statement: str) -> None:
    with watch.database.connect(user="watched_reader") as session:
        cursor = session.cursor()
        if statement.startswith("copy"):
            with cursor.copy(statement) as copy:
                list(copy)
        else:
            cursor.execute(statement)


@pytest.mark.parametrize("statement", READS)
def test_a_read_past_the_door_gives_alarm(watch: Watch, statement: str) -> None:
    watch.alarms()
    run(watch, statement)
    assert any("purchase as" in line for line in watch.alarms()), statement


def counted(watch: Watch) -> dict[str, int]:
    """Count once those who were watched are gone: the last thing that they do is to report."""
    gone = "select from pg_stat_activity where usename = 'watched_reader'"
    wait_until(lambda: watch.database.sql(gone) == [])
    return watch.counted()


QUESTIONS = [
    "select dp_count(*) from purchase",
    "select c_kind, dp_count(*), dp_sum(p_amount, 0, 100) from purchase join client on c_id = p_client group by c_kind",
    "select dp_percentile(p_amount, 0.5, 0, 100) from purchase",
    "prepare p as select dp_count(*) from purchase where p_id < $1; execute p(5)",
    "explain analyze select dp_count(*) from purchase where p_id < 3",
    "select * from dp.explain('select dp_count(*) from purchase')",
    "set transaction isolation level repeatable read; select dp_count(*) from purchase where p_id < 9",
]


def test_questions_give_no_alarm(watch: Watch) -> None:
    before = counted(watch)
    watch.alarms()
    for statement in QUESTIONS:
        run(watch, statement)
    assert watch.alarms() == []
    assert counted(watch) == before


def test_a_copy_of_the_relation_is_counted(watch: Watch) -> None:
    """The executor does not run it, so that the second witness must tell."""
    before = counted(watch)
    run(watch, "copy purchase to stdout")
    wait_until(lambda: counted(watch)["public.purchase"] > before["public.purchase"])


def test_who_is_watched_cannot_stop_it(watch: Watch) -> None:
    for setting in ("relations = ''", "alarms = '/dev/null'"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(watch, f"set watch.{setting}")
    watch.alarms()
    with watch.database.connect(user="watched_reader") as session:
        for statement in ("reset all", "discard all", "select count(*) from purchase"):
            session.execute(statement)
    assert watch.alarms()
