"""What changes after a release: it then answers nothing, or still the same, and never something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import asking
from tests.server.releasing import release
from tests.server.test_release_answers import told

pytestmark = pytest.mark.server

SET_UP = """
create type mood as enum ('low', 'mid', 'high');
create table pub (k int primary key, g text not null);
insert into pub values (0, 'a'), (1, 'b'), (2, 'c');
create table e (id int primary key, sick boolean not null, tall boolean not null, m mood not null,
  b int not null references pub, d date not null);
insert into e select i, i % 100 = 0, i % 2 = 0, (array['low', 'mid', 'mid'])[1 + i % 3]::mood, i % 3,
  date '9999-12-24' + i % 8 from generate_series(1, 600) i;
create table person (id int primary key);
create table visit (id int not null references person, s text not null, f boolean not null);
insert into person select generate_series(1, 50);
insert into visit select p, case when v = 1 then 'x' else 'y' end, v % 2 = 0
  from generate_series(1, 50) p, generate_series(1, 10) v;
select dp.protect('e'), dp.declare_public('pub'), dp.protect('person', privacy_unit => 'id');
select dp.set_domain('e', 'd', date '9999-12-24', date '9999-12-31');
select dp.set_domain('visit', 's', array['x', 'y']);
select dp.grant_budget('postgres', 1e7, 1);
select dp.set_root_cap('e', 1e6, 1), dp.set_root_cap('person', 1e6, 1);
"""


@pytest.fixture
def exact(server: Any) -> Iterator[Any]:
    """A session without noise in a database of its own."""
    database = server.create_database()
    database.sql(SET_UP)
    with asking.silent(database, "e") as session:
        yield session
    server.drop_database(database)


def test_columns_that_change_names(exact: Any) -> None:
    release(exact, "r", "select sick, dp_count(*) from e group by 1")
    question = "select sick, dp_count(*) from e group by 1 order by 1"
    assert told(exact, question)[1] is not None
    exact.execute(
        "alter table e rename sick to tmp; alter table e rename tall to sick;"
        " alter table e rename tmp to tall"
    )
    assert told(exact, question) == ([(False, 300), (True, 300)], None)


@pytest.mark.parametrize(
    "change",
    [
        "alter table e rename sick to tmp; alter table e rename tall to sick;"
        " alter table e rename tmp to tall",
        "drop table dpv.r",
    ],
)
def test_a_change_of_another_session(exact: Any, change: str) -> None:
    """What a session knows of a question that it asked again and again ends as well."""
    release(exact, "r", "select sick, dp_count(*) from e group by 1")
    question = "select sick, dp_count(*) from e group by 1 order by 1"
    for _ in range(3):
        assert told(exact, question)[1] is not None
    with psycopg.connect(exact.info.dsn, autocommit=True) as other:
        other.execute(change)
    found, said = told(exact, question)
    assert said is None
    assert sum(count for _, count in found) == 600


def test_a_reader_who_loses_the_release(exact: Any) -> None:
    release(exact, "r", "select sick, dp_count(*) from e group by 1")
    question = "select sick, dp_count(*) from e group by 1 order by 1"
    exact.execute("grant select on dpv.r to alice; select dp.grant_budget('alice', 1e6, 1)")
    with psycopg.connect(exact.info.dsn, user="alice", autocommit=True) as alice:
        for _ in range(3):
            assert told(alice, question)[1] is not None
        exact.execute("revoke select on dpv.r from alice")
        assert told(alice, question)[1] is None


def test_labels_that_change_places(exact: Any) -> None:
    release(exact, "r", "select dp.prefix(m) as m, dp_count(*) from e group by 1")
    question = "select m, dp_count(*) from e group by 1 order by 1"
    assert told(exact, question)[1] is not None
    exact.execute("alter type mood rename value 'low' to 'tmp'")
    assert told(exact, question) == ([("tmp", 200), ("mid", 400), ("high", 0)], None)
    exact.execute("alter type mood rename value 'mid' to 'low'")
    exact.execute("alter type mood rename value 'tmp' to 'mid'")
    assert told(exact, question) == ([("mid", 200), ("low", 400), ("high", 0)], None)


def test_public_rows_that_come_after(exact: Any) -> None:
    release(exact, "r", "select k, g, dp_count(*) from e join pub on b = k group by k, g")
    question = "select k, g, dp_count(*) from e join pub on b = k group by k, g order by k"
    assert told(exact, question)[1] is not None
    exact.execute("update pub set g = case g when 'a' then 'b' when 'b' then 'a' else g end")
    found, said = told(exact, question)
    assert (found, said) == ([(0, "b", 200), (1, "a", 200), (2, "c", 200)], None)


def test_a_table_that_was_replaced_after_the_snapshot(exact: Any) -> None:
    """Questions of an old snapshot are answered from the table of now."""
    release(exact, "r", "select sick, tall, dp_count(*) from e group by 1, 2")
    question = "select dp_count(*) from e where sick or tall"
    assert told(exact, question)[1] is not None
    exact.execute("begin isolation level repeatable read; select count(*) from pg_class")
    with psycopg.connect(exact.info.dsn, autocommit=True) as other:
        other.execute("select dp.drop_release('r')")
        release(other, "r", "select sick, tall, dp_count(*) from e group by 1, 2", epsilon=1)
    found, said = told(exact, question)
    exact.execute("rollback")
    assert "dpv.r" in str(said)
    assert told(exact, question) == (found, said)


def test_groups_that_are_none(exact: Any) -> None:
    release(exact, "r", "select tall, k, dp_count(*) from e join pub on b = k group by 1, 2")
    for where in ("k = 100", "k = 0 and k = 1"):
        text = f"select k, dp_count(*) from e join pub on b = k where {where} group by k"
        assert told(exact, text) == ([], None)


def test_the_last_day_of_the_calendar(exact: Any) -> None:
    release(exact, "r", "select d, dp_count(*) from e group by 1")
    text = "select dp_count(*) from e where d between '9999-12-26' and '9999-12-31'"
    ((count,),) = exact.execute(text.replace("dp_count", "count")).fetchall()
    assert told(exact, text)[0] == [(count,)]


def test_units_are_cut_off_after_conditions(exact: Any) -> None:
    exact.execute("set dp.max_rows_contributed = 1")
    release(exact, "r", "select s, f, dp_count(*) from visit group by 1, 2")
    assert told(exact, "select dp_count(*) from visit where s = 'x'") == ([(50,)], None)


def test_a_relation_that_takes_the_name_is_another_one(exact: Any) -> None:
    release(exact, "r", "select tall, dp_count(*) from e group by 1")
    exact.execute("create role other_owner; grant dp_owner to other_owner")
    try:
        exact.execute("grant create on schema public to other_owner; alter table e rename to old")
        exact.execute("set role other_owner; create table e (id int primary key)")
        assert exact.execute("select name from dp.releases").fetchall() == []
        error = asking.refused(exact, "select dp.drop_release('r')")
        assert "no release r of yours" in str(error)
    finally:
        exact.execute("reset role; drop table if exists e; drop owned by other_owner")
        exact.execute("drop role other_owner")


def test_units_that_become_others(exact: Any) -> None:
    """Numbers of which units were cut off are no counts of rows, nor of rows of other units."""
    exact.execute(
        "alter table visit add other int references person; update visit set other = 1 + id % 5;"
        " alter table visit alter other set not null"
    )
    exact.execute("select dp.link('visit', 'person', array['other'], follow => false)")
    exact.execute("set dp.max_rows_contributed = 1")
    release(exact, "r", "select s, dp_count(*) from visit group by 1")
    question = "select s, dp_count(*) from visit group by 1 order by 1"
    found, said = told(exact, question)
    assert sum(count for _, count in found) == 50
    assert said is not None
    exact.execute("alter table person rename to people; alter table people rename to person")
    assert told(exact, question) == (found, said)
    exact.execute("select dp.unlink('visit', 'person', array['other'])")
    exact.execute("select dp.link('visit', 'person', array['id'], follow => false)")
    # the account of other units would not let them be asked about
    assert asking.state(exact, question) == "PD012"
    exact.execute("delete from dp.covered")
    assert told(exact, question)[1] is None
    exact.execute("delete from dp.covered")
    exact.execute("select dp.unprotect('person')")
    exact.execute("select dp.protect('visit')")
    assert told(exact, question) == ([("x", 50), ("y", 450)], None)
