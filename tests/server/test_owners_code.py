"""Code of a relation's owner must not run in the executor's name while a question is planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.in_service import after_the_charge, value_in_service

pytestmark = pytest.mark.server

QUESTION = "select dp_count(*) from client, mallory.t where c_id = a and a + 1 > 0 and b = 3"

# Reads what only the executor may, and tells: the message reaches whoever asks, or the log.
SPY = """
create function mallory.f(x int) returns int immutable language plpgsql as $$
declare
    n bigint;
begin
    if current_user in ('dp_executor', 'postgres') then
        execute 'select count(*) from public.client' into n;
        raise exception 'stolen: % counts % rows', current_user, n;
    end if;
    return x;
end $$;
create function mallory.less(int, int) returns boolean immutable language sql as $$
    select $1 < $2 $$;
create operator mallory.<<< (function = mallory.less, leftarg = int, rightarg = int);
create domain mallory.d as int check (mallory.f(value) > 0);
"""

CODE = {
    "index expression": "create index on mallory.t ((a + mallory.f(1)))",
    "index predicate": "create index on mallory.t (a) where b > mallory.f(1)",
    "index of a child": """create table mallory.child () inherits (mallory.t);
        create index on mallory.child ((a + mallory.f(1)))""",
    "check": "alter table mallory.t add check (a + mallory.f(1) > b - 1000000)",
    "statistics": "create statistics mallory.s on (a + mallory.f(1)), b from mallory.t",
    "operator": "create index on mallory.t ((a operator(mallory.<<<) 3))",
    "domain": "create index on mallory.t (((a + '1'::mallory.d)))",
}


@pytest.fixture
def shared(shop: Any) -> Iterator[Any]:
    """The shop, and a public table of another owner."""
    shop.sql("create schema mallory authorization mallory; grant dp_owner to mallory")
    shop.sql("grant usage on schema mallory to alice")
    shop.sql(SPY + "create table mallory.t (a int, b int)", user="mallory")
    shop.sql("insert into mallory.t select i, 3 from generate_series(1, 100) i", user="mallory")
    yield shop
    shop.sql("revoke dp_owner from mallory")


def refused(database: Any, sql: str, user: str, state: str) -> psycopg.Error:
    with database.connect(user=user) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(sql)
    assert "stolen" not in str(caught.value)
    assert caught.value.sqlstate == state, caught.value
    return caught.value


@pytest.mark.parametrize("kind", CODE)
@pytest.mark.parametrize("function", ["declare_public", "protect"])
def test_a_relation_that_brings_code_is_not_declared(shared: Any, kind: str, function: str) -> None:
    shared.sql(CODE[kind], user="mallory")
    error = refused(shared, f"select dp.{function}('mallory.t')", "mallory", "PD040")
    assert "depends on" in str(error.diag.message_primary)
    assert "role mallory" in str(error.diag.message_primary)
    assert "superuser" in str(error.diag.message_hint)


@pytest.mark.parametrize("kind", CODE)
def test_code_that_comes_later_does_not_run(shared: Any, kind: str) -> None:
    shared.sql("select dp.declare_public('mallory.t')", user="mallory")
    with shared.connect(user="alice") as alice:
        assert alice.execute(QUESTION).fetchone() is not None
        shared.sql(CODE[kind], user="mallory")
        for statement in (
            QUESTION,  # planned before: the cached plan must be given up
            QUESTION.replace("1 > 0", "1 > -1"),
            "select * from dp.explain($$" + QUESTION + "$$)",
            "select * from dp.estimate($$" + QUESTION + "$$)",
        ):
            with pytest.raises(psycopg.Error) as caught:
                alice.execute(statement)
            assert "stolen" not in str(caught.value)
            assert caught.value.sqlstate == "PD012"
            assert "depends on" in str(caught.value.diag.message_detail)


@pytest.mark.parametrize("kind", ["index expression", "index predicate", "statistics"])
def test_code_cannot_come_between_the_charge_and_the_answer(shared: Any, kind: str) -> None:
    shared.sql("select dp.declare_public('mallory.t')", user="mallory")
    with shared.connect() as session:
        session.execute(after_the_charge(shared.conninfo("mallory"), CODE[kind]))
        session.execute("set session authorization alice")
        assert session.execute(QUESTION).fetchone() is not None
        session.execute("reset session authorization")
        waited = session.execute("select " + value_in_service('return GD["after"]')).fetchone()
    assert waited == ("[True]",)


@pytest.mark.parametrize("role", ["postgres", "dp_executor"])
def test_the_library_refuses_what_nobody_looked_at(shared: Any, role: str) -> None:
    """An index made between look and use: planning runs its code, but not as dp_executor.

    The superuser's session shows that the code does run; otherwise the tests above could not fail.
    """
    shared.sql(
        "grant usage on schema mallory to dp_executor; grant select on mallory.t to dp_executor"
    )
    for kind in ("index expression", "index predicate", "statistics"):
        shared.sql(CODE[kind], user="mallory")
        with shared.connect() as connection:
            connection.execute(f"set role {role}")
            expected = "stolen" if role == "postgres" else "runs code of its owner"
            with pytest.raises(psycopg.Error, match=expected):
                connection.execute("select count(*) from mallory.t where b = 3")


def test_partition_keys_bring_code_too(shared: Any) -> None:
    shared.sql(
        "create table mallory.p (a int, b int) partition by range ((a + mallory.f(1)));"
        "create table mallory.p1 partition of mallory.p for values from (0) to (1000)",
        user="mallory",
    )
    error = refused(shared, "select dp.declare_public('mallory.p')", "mallory", "PD040")
    assert "table mallory.p depends on function mallory.f(integer)" in str(
        error.diag.message_primary
    )


def test_code_behind_an_operator_class_counts(shared: Any) -> None:
    shared.sql(
        "create function mallory.compare(int, int) returns int immutable language sql"
        " as $$ select $1 - $2 $$",
        user="mallory",
    )
    shared.sql(
        "create operator class public.odd for type int using btree as operator 1 <, operator 2 <=,"
        " operator 3 =, operator 4 >=, operator 5 >, function 1 mallory.compare(int, int);"
        "create index on mallory.t (a public.odd)"
    )
    error = refused(shared, "select dp.declare_public('mallory.t')", "mallory", "PD040")
    assert "mallory.compare" in str(error.diag.message_primary)


def test_code_that_a_superuser_owns_is_welcome(shared: Any) -> None:
    shared.sql("create function public.g(int) returns int immutable language sql as 'select $1'")
    shared.sql(
        "create index on mallory.t ((a + public.g(1)));"
        "alter table mallory.t add check (abs(a) < 1000000)",
        user="mallory",
    )
    shared.sql("select dp.declare_public('mallory.t')", user="mallory")
    with shared.connect(user="alice") as alice:
        assert alice.execute(QUESTION).fetchone() is not None
        shared.sql("alter function public.g(int) owner to mallory")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(QUESTION)
    assert caught.value.sqlstate == "PD012"
