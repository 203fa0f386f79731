"""Texts that are kept and read again later: names in them may have passed to something else."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.server

SET_UP = """
create table secret (a int, t int); insert into secret select i % 40, i from generate_series(1, 1274) i;
select dp.protect('secret');
create schema bs authorization mallory; grant usage on schema bs to public;
"""
OWN = """
create table bs.p (a int, t int); insert into bs.p values (1, 1), (2, 2);
create table bs.probe (a int); insert into bs.probe values (7);
select dp.protect('bs.p'), dp.protect('bs.probe');
select dp.collect_statistics('bs.p'), dp.collect_statistics('bs.probe');
"""


@pytest.fixture
def shop(database: Any) -> Any:
    """Somebody's protected table, and mallory, an owner with tables of her own."""
    database.sql(SET_UP)
    database.sql("grant dp_owner to mallory")
    database.sql(OWN, user="mallory")
    yield database
    database.sql("revoke dp_owner from mallory")


def test_a_view_that_is_replaced_counts_nothing_else(shop: Any) -> None:
    shop.sql("select dp.collect_statistics('secret')")
    with shop.connect(user="mallory") as mallory:
        mallory.execute("create view bs.w as select a, t from bs.p")
        mallory.execute("select dp.declare_view('bs.w')")
        mallory.execute(
            "select dp.keep_statistics('select public.dp_count(*) from bs.w x, bs.probe y"
            " where x.a = y.a')"
        )
        mallory.execute("select dp.refresh_statistics('bs.probe')")
        before = mallory.execute(
            "select count(*) from dp.statistics where kind = 'boundary'"
        ).fetchone()
        assert before is not None
        assert before[0] > 0
        mallory.execute("create or replace view bs.w as select a, t from secret")
        mallory.execute("select dp.refresh_statistics('bs.probe')")
        rows = mallory.execute("select relations::text, identity, value from dp.statistics")
        oid = shop.sql("select 'secret'::regclass::oid::text")[0][0]
        for relations, identity, value in rows:
            assert "secret" not in relations
            assert f"{oid}(" not in identity
            assert value < 100


@pytest.mark.parametrize("call", ["dp.keep_statistics('{}')", "dp.create_sketch('{}', 64)"])
def test_no_text_with_somebodys_type_is_kept(shop: Any, call: str) -> None:
    shop.sql(
        "create type bs.e3 as enum ('(x)'); create table bs.t3 (a int, e bs.e3);"
        " select dp.protect('bs.t3')",
        user="mallory",
    )
    question = "select public.dp_count(*) from bs.t3 x, bs.t3 y where x.a = y.a and x.e = ''(x)''"
    with shop.connect() as admin:
        with pytest.raises(psycopg.Error, match="not built in") as caught:
            admin.execute(f"select {call.format(question)}")
        assert caught.value.sqlstate == "PD011"
        assert admin.execute("select count(*) from dp.kept_query").fetchone() == (0,)
        assert admin.execute("select count(*) from dp.sketch").fetchone() == (0,)
        admin.execute(f"select {call.format(question.split(' and ')[0])}")


def test_updates_work_whatever_the_type_of_the_key(shop: Any) -> None:
    shop.sql(
        "create domain bs.dk as int check (value > 0);"
        "create table bs.dd (k bs.dk primary key, a int); insert into bs.dd values (1, 1);"
        "select dp.protect('bs.dd'), dp.collect_statistics('bs.dd');"
        "update bs.dd set a = 2; update bs.dd set k = 3",
        user="mallory",
    )
    assert shop.sql("select sum(updated) from dp.change") == [(2,)]


def test_a_sketch_of_dropped_relations_is_shown_to_nobody_else(shop: Any) -> None:
    shop.sql("create table z (a int, b int); select dp.protect('z')")
    with shop.connect() as admin:
        admin.execute("select dp.create_sketch('select dp_count(*) from z x, z y where x.a = y.b')")
        admin.execute("drop table z")
    with shop.connect(user="mallory") as mallory:
        assert mallory.execute("select * from dp.sketches").fetchall() == []
