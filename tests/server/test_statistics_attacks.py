"""Rows that are read but not counted as changes: nobody gets too little noise by them.

Each attack makes thousands of rows of a collected relation meet a row of another owner's, with
noise for the few that were there when statistics were taken.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import say

pytestmark = pytest.mark.server

SET_UP = """
create schema sa authorization mallory; grant usage on schema sa to public;
grant dp_owner to mallory;
set role mallory;
create table sa.a (id int, k int); insert into sa.a select i, i from generate_series(1, 1000) i;
create table sa.p (id int, k int) partition by range (id);
create table sa.p1 partition of sa.p for values from (0) to (100000);
create table sa.p2 (id int, k int);
insert into sa.p select i, i from generate_series(1, 1000) i;
insert into sa.p2 select i, 5000 from generate_series(100000, 199999) i;
reset role;
create table b (id int primary key, k int);
insert into b select i, i from generate_series(1, 1000) i; insert into b values (5000, 5000);
select dp.protect(r), dp.collect_statistics(r)
  from (values ('sa.a'::regclass), ('sa.p'), ('b')) as v(r);
select dp.grant_budget('mallory', 1000, 1e-3);
grant all on sa.a to alice; grant create on schema sa to alice;
select dp.grant_budget('alice', 1000, 1e-3);
"""
SETTINGS = (
    "set dp.method = elastic; set dp.statistics = stored; set dp.epsilon = 1; set dp.delta = 1e-7"
)
OLD = "set dp.fresh = on; begin isolation level repeatable read; select 1 from pg_class limit 1"


@pytest.fixture
def shop(database: Any) -> Any:
    """Mallory's relations and another owner's, all collected."""
    database.sql(SET_UP)
    for relation in ("sa.a", "sa.p", "b"):
        database.sql(f"select dp.refresh_statistics('{relation}')")
    return database


def analyst(shop: Any, *more: str) -> psycopg.Connection[Any]:
    """Connect as alice with settings for stored statistics."""
    connection: psycopg.Connection[Any] = shop.connect(user="alice")
    for text in (SETTINGS, *more):
        connection.execute(text)
    return connection


def question(relation: str) -> str:
    return f"select dp_count(*) from {relation} join b using (k)"


def test_nothing_is_wrong_with_honest_questions(shop: Any) -> None:
    with analyst(shop) as alice:
        assert "[(" in say(alice, question("sa.a"))
        assert "[(" in say(alice, question("sa.p"))


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (f"execute '{question('sa.a')}' into n; raise notice 'n %', n;", "1, 20001"),
        (f"open late for {question('sa.a')};", "20001"),
    ],
)
@pytest.mark.parametrize("method", ["elastic", "sketch"])
def test_a_question_inside_a_statement_that_writes(
    shop: Any, body: str, at: str, method: str
) -> None:
    shop.sql(f"select dp.create_sketch('{question('sa.a')}', 10)")
    with analyst(shop, f"set dp.method = {method}") as alice:
        alice.execute(
            "create function sa.f() returns int volatile language plpgsql as $f$"
            f" declare n bigint; late refcursor := 'late'; begin {body} return 77;"
            " exception when sqlstate 'PD011' then raise notice 'refused'; return 77; end $f$"
        )
        said: list[str] = []
        alice.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        alice.execute("begin")
        alice.execute(
            f"insert into sa.a select i, case when i in ({at}) then sa.f() else 5000 end"
            " from generate_series(1, 20001) i"
        )
        if "open" in body and "refused" not in said:
            assert "PD" in say(alice, "fetch all from late")
        else:
            # nothing was written yet when it was asked first; rows that are committed were read
            assert said[0] == said[-1] != "refused"
            assert shop.sql("select count(*) from dp.spend") == [(1,)]
        alice.execute("rollback")
        assert "[(" in say(alice, question("sa.a"))


def test_a_partition_attached_under_an_older_snapshot(shop: Any) -> None:
    with analyst(shop, OLD) as alice:
        shop.sql(
            "alter table sa.p attach partition sa.p2 for values from (100000) to (200000)",
            user="mallory",
        )
        # as of now, when its statistics are not valid any more
        assert say(alice, question("sa.p")).startswith("PD020")
    assert shop.sql("select count(*) from dp.spend") == [(0,)]


def test_frozen_rows_in_a_leaf_under_an_older_snapshot(shop: Any) -> None:
    with analyst(shop, OLD) as alice:
        with shop.connect(user="mallory") as mallory, mallory.transaction():
            mallory.execute("truncate sa.p1")
            with mallory.cursor().copy("copy sa.p1 from stdin with (freeze)") as copy:
                for i in range(5000):
                    copy.write_row((i, 5000))
        # as of now, when its statistics are not valid any more
        assert say(alice, question("sa.p")).startswith("PD020")
    assert shop.sql("select count(*) from dp.spend") == [(0,)]


def test_answers_outlive_new_partitions(shop: Any) -> None:
    with analyst(shop, "set dp.statistics = live") as alice:
        first = say(alice, question("sa.p"))
        shop.sql(
            "alter table sa.p attach partition sa.p2 for values from (100000) to (200000)",
            user="mallory",
        )
        assert say(alice, question("sa.p")) == first
    assert shop.sql("select count(*) from dp.spend") == [(1,)]


@pytest.mark.parametrize(
    ("key", "first", "spellings"),
    [
        ("numeric", "1", ["1.0", "1.00", "1.000", "1.0000"]),
        ("interval", "1 day", ["24:00", "1 day", "24:00"]),
        ("regproc", "sa.ov(int)", []),
        ("regclass", "sa.a", []),
        ("float8", "0", ["-0", "0", "-0"]),
        ("bpchar", "a", ["a ", "a  "]),
        ("money", "1", []),
        ('text collate "ci"', "a", ["A", "a", "A"]),
    ],
)
def test_keys_without_one_text_are_not_used(
    shop: Any, key: str, first: str, spellings: list[str]
) -> None:
    shop.sql(
        "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        "create function sa.ov(int) returns int language sql return 1"
    )
    value = f"'{first}'::regprocedure::oid::regproc" if key == "regproc" else f"'{first}'"
    shop.sql(
        f"create table nk (id {key} primary key, v int); insert into nk values ({value}, 1);"
        "select dp.protect('nk'), dp.collect_statistics('nk')"
    )
    shop.sql("select dp.refresh_statistics('nk')")
    for spelling in spellings:
        shop.sql(f"update nk set id = '{spelling}'")
    shop.sql("update nk set v = 2")
    keyed = "select keyed from dp.measured_relation where relation = 'nk'::regclass"
    assert shop.sql(keyed) == [(False,)]
    assert shop.sql("select count(*) from dp.changed_key") == [(0,)]
    changes = "select changes::int from dp.statistics where 'public.nk' = any (relations) limit 1"
    assert shop.sql(changes) == [(len(spellings) + 1,)]
