"""What was priced in an earlier snapshot than the answer's does not bound or list what is read later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.in_service import in_service, value_in_service

SET_UP = """
create table a (k int primary key, v int); create table b (k int primary key, v int);
insert into a select i, i % 10 from generate_series(1, 100) i;
insert into b select i, i % 10 from generate_series(1, 100) i;
create table listed (x int primary key); insert into listed select generate_series(0, 9);
select dp.declare_public('listed');
select dp.protect('a'), dp.protect('b'), dp.collect_statistics('a'), dp.collect_statistics('b');
"""
TAKEN = """
select dp.keep_statistics('select dp_count(*) from a join b using (v)');
select dp.refresh_statistics('a'), dp.refresh_statistics('b');
select dp.grant_budget('postgres', 1000, 1e-3);
"""
QUESTION = "select dp_count(*) from a join b using (v)"
#: Another session does something between the charge and the reading; keeps the shifts that bound.
MEANWHILE = """
import psycopg
from dpsql.core import stale, sketching
from dpsql.engine import answer
again, bound = answer.meet_again, stale.bound

def changed(*given, **named):
    with psycopg.connect({place!r}, autocommit=True) as other:
        other.execute({statement!r})
    return again(*given, **named)

def seen(shape, numbering, values, shifts, *rest):
    stale.seen = sorted(shifts)
    return bound(shape, numbering, values, shifts, *rest)

answer.meet_again, stale.bound = changed, seen
"""
SEEN = "from dpsql.core import stale\nreturn stale.seen"


@pytest.fixture
def asker(database: Any) -> Iterator[Any]:
    for script in (SET_UP, TAKEN):
        database.sql(script)
    with database.connect() as session:
        session.execute("set dp.method = elastic; set dp.statistics = stored; set dp.fresh = on")
        session.execute("set dp.delta = 1e-7")
        session.execute(f"select * from dp.explain('{QUESTION}')")
        yield session


def meanwhile(database: Any, session: Any, statement: str) -> None:
    place = database.conninfo()
    session.execute(in_service(MEANWHILE.format(place=place, statement=statement)))


def test_changes_between_charge_and_reading_count(database: Any, asker: Any) -> None:
    meanwhile(database, asker, "insert into a select i, 0 from generate_series(101, 140) i")
    asker.execute(QUESTION)
    (found,) = asker.execute(f"select {value_in_service(SEEN)}").fetchone()
    assert max(eval(found)) >= 40


def test_statistics_that_end_between_charge_and_reading_answer_nothing(
    database: Any, asker: Any
) -> None:
    meanwhile(database, asker, "delete from dp.statistic")
    assert refused(asker, QUESTION).sqlstate == "PD900"
    assert database.sql("select count(*) from dp.failure where failed_at is not null") == [(0,)]


def test_groups_that_come_between_charge_and_reading_are_left_out(
    database: Any, asker: Any
) -> None:
    asker.execute("reset dp.statistics; reset dp.method")
    listed = sorted(database.sql("select distinct x from listed"))
    meanwhile(database, asker, "insert into listed values (11)")
    rows = asker.execute("select x, dp_count(*) from a join listed on v = x group by x").fetchall()
    assert sorted((x,) for x, _ in rows) == listed
    assert database.sql("select count(*) from dp.failure where failed_at is not null") == [(0,)]
