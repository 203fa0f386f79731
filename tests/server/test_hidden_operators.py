"""Operators that the printed form of a statement hides must be PostgreSQL's own."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

SET_UP = """
create schema w;
create schema theirs;
create type w.en as enum ('a', 'b');
create table w.l (id int, v w.en, x w.en);
create table w.r (id int, v w.en, y w.en);
create function theirs.yes(w.en, w.en) returns bool language sql immutable as 'select true';
create operator theirs.= (leftarg = w.en, rightarg = w.en, function = theirs.yes);
create operator theirs.<< (leftarg = w.en, rightarg = w.en, function = theirs.yes);
set search_path = theirs, pg_catalog, w, public;
create view w.joined as select l.id from w.l join w.r using (v);
create view w.around as select id from w.joined;
"""
HIDDEN = [
    ("select dp_count(*) from l join r using (v)", "USING", "dp_count"),
    ("select dp_count(*) from l natural join (select v from r) s", "USING", "dp_count"),
    ("select dp_count(*) from l where nullif(v, x) is null", "NULLIF", "nullif"),
    ("select dp_count(*) from l where v is distinct from x", "IS DISTINCT FROM", "is distinct"),
    ("select dp_count(*) from l where v is not distinct from x", "IS DISTINCT FROM", "is not"),
    ("select dp_count(*) from l where case v when x then true end", "CASE", "case"),
    ("select dp_count(*) from (select nullif(v, x) as z from l) s", "NULLIF", "nullif"),
    ("select case v when 'a' then 1 end, dp_count(*) from l group by 1", "CASE", "case"),
]


@pytest.fixture
def connection(database: Any) -> psycopg.Connection[Any]:
    connection: psycopg.Connection[Any] = database.connect()
    connection.execute(SET_UP)  # type: ignore[arg-type]
    return connection


def told(connection: psycopg.Connection[Any], text: str) -> psycopg.errors.Error:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(text)  # type: ignore[arg-type]
    return caught.value


def test_an_operator_that_is_not_built_in_is_refused_where_it_is_not_printed(
    connection: psycopg.Connection[Any],
) -> None:
    for text, construct, place in HIDDEN:
        error = told(connection, text)
        assert error.sqlstate == "PD013", text
        assert "operator theirs.=(w.en,w.en) is not allowed" in str(error.diag.message_primary)
        assert error.diag.message_detail == f"{construct} found it by the search_path."
        assert 'take "theirs" out of search_path' in str(error.diag.message_hint)
        position = int(error.diag.statement_position or 0) - 1
        start = text[max(position - 2, 0) : position + len(place)]
        assert place in start, (text, start)
        inner = told(connection, f"select * from dp.query($$ {text} $$)")
        assert inner.sqlstate == "PD013", text
        assert "operator theirs.=(w.en,w.en)" in str(inner.diag.message_primary)


@pytest.mark.parametrize("view", ["joined", "around"])
def test_an_operator_in_a_view_is_refused_too(
    connection: psycopg.Connection[Any], view: str
) -> None:
    connection.execute("set search_path = pg_catalog, public")
    error = told(connection, f"select dp_count(*) from w.{view}")
    assert error.sqlstate == "PD013"
    assert error.diag.message_detail == 'USING uses it in the definition of view "joined".'


@pytest.mark.parametrize("view", ["joined", "around"])
def test_such_a_view_is_not_declared(connection: psycopg.Connection[Any], view: str) -> None:
    connection.execute("set search_path = pg_catalog, public")
    connection.execute("select dp.declare_public('w.l'), dp.declare_public('w.r')")
    if view == "around":  # of which the inner one was another when it was declared
        connection.execute("alter view w.joined rename to other")
        connection.execute("create view w.joined as select id from w.l")
        connection.execute("select dp.declare_view('w.joined')")
        connection.execute("create or replace view w.around as select id from w.joined")
        connection.execute("set search_path = theirs, pg_catalog, public")
        connection.execute(
            "create or replace view w.joined as select l.id from w.l join w.r using (v)"
        )
    error = told(connection, f"select dp.declare_view('w.{view}')")
    assert error.sqlstate == "PD013"
    assert "operator theirs.=(w.en,w.en) is not allowed" in str(error.diag.message_primary)
    assert error.diag.message_detail == 'USING uses it in the definition of view "joined".'


def test_without_that_schema_the_same_statements_pass(
    connection: psycopg.Connection[Any],
) -> None:
    connection.execute("select dp.declare_public('w.l'), dp.declare_public('w.r')")
    connection.execute("set search_path = w, public")
    for text, _, _ in HIDDEN:
        connection.execute(text)  # type: ignore[arg-type]
    # printed operators are refused by the analyser
    printed = "select dp_count(*) from l, r where l.v operator(theirs.=) r.v"
    assert "theirs" in str(told(connection, printed))
