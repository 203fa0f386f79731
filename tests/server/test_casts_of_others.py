"""A cast that the owner of an enum wrote runs in nobody else's name.

Casts apply whatever the search_path says, and the planner puts a function in SQL into the query
as text, where no call is seen.  Each kind is tried: both directions, the type and its array,
functions in SQL and in PL/pgSQL, with the library loaded at server start and without.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.server

WAYS = [
    f"{a}-{language}"
    for a, language in product(
        ("en as text", "text as en", "en[] as text", "text as en[]", "en[] as text[]"),
        ("sql", "plpgsql"),
    )
]
SQL_BODY = """select query_to_xml('select pg_notify(''leak'', current_user || '' '' ||
    (select string_agg(c::text, '';'') from (select * from public.secret limit 3) c))',
    true, false, '')::text"""
QUESTIONS = (
    "select dp_count(*) from secret group by case when a > 0 then 'x'::mallory.en end",
    "select dp_count(*) from secret where b = 'x'::mallory.en::text",
    "select dp_count(*) from secret where 'x'::mallory.en = any ('{x}'::mallory.en[])",
    "select 'x'::mallory.en, dp_count(*) from secret",
    "select dp_count(*) from mallory.t group by e",
    "select e, dp_count(*) from mallory.t where e = 'x' group by e",
)


def cast(way: str) -> str:
    """Write a cast whose function tells a protected row to whoever listens."""
    pair, language = way.rsplit("-", 1)
    source, target = (
        f"mallory.{name}" if name.startswith("en") else name for name in pair.split(" as ")
    )
    value = f"({SQL_BODY})"
    if language == "plpgsql":
        body = f"declare x text := {value}; begin return null; end"
    elif target == "text":
        body = f"select {value}"
    else:
        body = f"select case when {value} is null then null::{target} end"
    return (
        f"create function mallory.f({source}) returns {target} volatile language {language}"
        f" as $f$ {body} $f$; create cast ({source} as {target}) with function mallory.f({source})"
    )


def prepare(database: Any) -> None:
    """A protected relation, and mallory, who may declare relations and ask."""
    database.sql(
        """create schema mallory authorization mallory;
        create table secret (a int, b text); insert into secret values (1, 'row-7716');
        select dp.protect('secret'); select dp.grant_budget('mallory', 10);
        grant select on secret to mallory; grant usage on schema mallory to dp_executor"""
    )
    database.sql("grant dp_owner to mallory")
    database.sql("revoke select on secret from mallory")
    database.sql(
        "create type mallory.en as enum ('x'); create table mallory.t (e mallory.en);"
        " insert into mallory.t values ('x'); create table mallory.p (e mallory.en);"
        " insert into mallory.p values ('x')",
        user="mallory",
    )


@pytest.fixture
def prepared(database: Any) -> Iterator[Any]:
    """The relations, for a test with the library loaded."""
    prepare(database)
    yield database
    database.sql("revoke dp_owner from mallory")


def attempts(connection: psycopg.Connection[Any]) -> Iterator[tuple[str, str]]:
    """Try everything that may cast, and yield what was said."""
    statements = [
        "select dp.set_domain('mallory.t', 'e', array['x'])",
        "select dp.set_domain('mallory.t', 'e', array['x']::mallory.en[])",
        "select dp.set_domain('mallory.t', 'e', 'mallory.p'::regclass, 'e')",
        "select * from dp.domain_members('mallory.t', 'e')",
    ]
    for question in QUESTIONS:
        quoted = psycopg.sql.quote(question)
        statements += [
            f"select * from dp.explain({quoted})",
            f"select * from dp.estimate({quoted})",
            f"select * from dp.query({quoted})",
        ]
    for statement in statements:
        try:
            said = str(connection.execute(statement).fetchall())
        except psycopg.Error as error:
            said = f"{error.sqlstate} {error} {error.diag.message_detail}"
        yield statement, said


def check(database: Any, way: str) -> None:
    """Nothing is said, and no one is notified as another than mallory."""
    with database.connect(user="mallory") as mallory:
        mallory.execute("listen leak")
        said: list[str] = []
        mallory.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        for statement, answer in attempts(mallory):
            assert "row-7716" not in answer, (way, statement, answer)
        told = [n.payload for n in mallory.notifies(timeout=0.05)]
        assert not [text for text in (*told, *said) if "row-7716" in text], way


@pytest.mark.parametrize("way", WAYS)
def test_a_cast_that_was_there_before(prepared: Any, way: str) -> None:
    prepared.sql(cast(way), user="mallory")
    prepared.sql("select dp.protect('mallory.t'), dp.declare_public('mallory.p')", user="mallory")
    check(prepared, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_cast_that_comes_after_declaration(prepared: Any, way: str) -> None:
    prepared.sql(
        "select dp.protect('mallory.t'), dp.declare_public('mallory.p');"
        " select dp.set_domain('mallory.t', 'e', 'mallory.p'::regclass, 'e')",
        user="mallory",
    )
    prepared.sql(cast(way), user="mallory")
    check(prepared, way)


def test_enums_without_casts_still_answer(prepared: Any) -> None:
    prepared.sql(
        "select dp.protect('mallory.t'), dp.declare_public('mallory.p');"
        " select dp.set_domain('mallory.t', 'e', array['x']::mallory.en[])",
        user="mallory",
    )
    with prepared.connect(user="mallory") as mallory:
        rows = mallory.execute("select e, dp_count(*) from mallory.t group by e").fetchall()
        assert [row[0] for row in rows] == ["x"]
        for values, message in ((["y"], "is not of type"), (["x", "x"], "occurs twice")):
            with pytest.raises(psycopg.Error, match=message) as caught:
                mallory.execute("select dp.set_domain('mallory.t', 'e', %s::text[])", [values])
            assert caught.value.sqlstate == "PD040"


def test_the_guard_sees_what_the_planner_would_put_into_a_query(prepared: Any) -> None:
    """Without the analyser's look: the executor itself may not run it."""
    prepared.sql(
        "create function mallory.g(int) returns int language sql as $$ select $1 + 1 $$",
        user="mallory",
    )
    prepared.sql("grant select on secret to dp_executor")
    with prepared.connect() as admin:
        admin.execute("set role dp_executor")
        with pytest.raises(psycopg.Error, match="runs code of its owner") as caught:
            admin.execute("select mallory.g(a) from secret")
        assert caught.value.sqlstate == "PD011"


def test_without_the_library_at_server_start(make_server: Any) -> None:
    server = make_server(shared_preload_libraries="''")
    database = server.create_database()
    prepare(database)
    database.sql("select dp.protect('mallory.t'), dp.declare_public('mallory.p')", user="mallory")
    for way in WAYS:
        database.sql(cast(way), user="mallory")
        check(database, way)
        pair = way.rsplit("-", 1)[0]
        source, target = (
            f"mallory.{name}" if name.startswith("en") else name for name in pair.split(" as ")
        )
        database.sql(
            f"drop cast ({source} as {target}); drop function mallory.f({source})", user="mallory"
        )
