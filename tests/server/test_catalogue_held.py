"""What would change the catalogue of a relation waits while a question reads the relation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.conftest import declare
from tests.server.in_service import in_service

pytestmark = pytest.mark.server

MADE = """
create schema mine authorization mallory;
grant dp_owner to mallory;
grant create on database {database} to mallory;
grant usage on schema mine to alice, dp_executor, owner1;
create role idle_reader;
"""
TABLES = """
create type mine.mood as enum ('sad', 'glad');
create type mine.spare as enum ('a');
create table mine.list (k int primary key, v int, m mine.mood default 'sad');
insert into mine.list select i, i from generate_series(1, 10) i;
create table mine.apart (k int not null, v int, m mine.mood);
create table mine.elsewhere (k int);
grant select on mine.list to dp_executor, alice;
select dp.declare_public('mine.list');
create function mine.f(mine.mood) returns text language sql as $$ select 'x' $$;
do $$ begin for i in 1..300 loop execute format('create table mine.many%s (a int)', i); end loop; end $$;
create function mine.t() returns trigger language plpgsql as $$ begin return new; end $$;
"""
QUESTION = "select dp_count(*) from client join mine.list on k = c_id where m = 'sad'"

#: What waits, and what of the same kind does not.
WAITING = {
    "index": "create index on mine.list (v)",
    "index, concurrently": "create index concurrently on mine.list (v)",
    "statistics": "create statistics mine.s on k, v from mine.list",
    "grant": "grant select on mine.list to idle_reader",
    "revoke": "revoke select on mine.list from dp_executor",
    "columns": "grant select (k) on mine.list to idle_reader",
    "child": "create table mine.child () inherits (mine.list)",
    "inherit": "alter table mine.apart inherit mine.list",
    "schema's name": "alter schema mine rename to yours",
    "schema's privileges": "revoke usage on schema mine from dp_executor",
    "label": "alter type mine.mood rename value 'sad' to 'bad'",
    "type's name": "alter type mine.mood rename to temper",
    "cast": "create cast (mine.mood as text) with function mine.f(mine.mood)",
    "all tables": "grant select on all tables in schema mine to idle_reader",
    "many tables": "do $$ begin for i in 1..300 loop execute format('grant select on mine.many%s to"
    " idle_reader', i); end loop; end $$",
    "declaration": "select dp.undeclare_public('mine.list')",
    "trigger": "create trigger t after insert on mine.list for each row execute function mine.t()",
}
FREE = {
    "another index": "create index on mine.elsewhere (k)",
    "a table of the schema": "create table mine.fresh (a int)",
    "another type": "alter type mine.spare rename to other",
    "rows elsewhere": "insert into mine.elsewhere values (11)",
    "analyze elsewhere": "analyze mine.elsewhere",
    "new tables": "do $$ begin for i in 1..30 loop execute format('create table mine.new%s (a int)',"
    " i); end loop; end $$",
}


@pytest.fixture
def lists(shop: Any) -> Any:
    shop.sql(MADE.format(database=shop.name))
    shop.sql(TABLES, user="mallory")
    yield shop
    shop.sql("drop owned by idle_reader; drop role idle_reader")


@contextmanager
def reading(database: Any, question: str = QUESTION) -> Iterator[list[Any]]:
    """Keep a question of alice's between two statements; its answer is in the list afterwards."""
    with database.connect() as session, database.connect() as gate:
        gate.execute("select pg_advisory_lock(77)")
        session.execute(
            in_service(
                """
                import dpsql.engine.answer as answer
                compute = answer.compute
                def waiting(quote, services):
                    services.database.execute("select pg_advisory_xact_lock(77) is null as x")
                    return compute(quote, services)
                answer.compute = waiting
                """
            )
        )
        session.execute("set session authorization alice")
        session.execute("set dp.fresh = on")
        found: list[Any] = []
        asking = threading.Thread(
            target=lambda: found.append(session.execute(question).fetchone()), daemon=True
        )
        asking.start()
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while asking.is_alive() and gate.execute(waits).fetchone() != (1,):
            time.sleep(0.01)
        try:
            yield found
        finally:
            gate.execute("select pg_advisory_unlock(77)")
            asking.join(60)
    assert len(found) == 1


def while_read(
    database: Any, statement: str, user: str = "mallory", question: str = QUESTION
) -> tuple[bool, Any]:
    """Run a statement of another session while alice's question stands between two statements.

    Returns whether it waited for the end of the question, and the answer.
    """
    with reading(database, question) as found, database.connect(user=user) as owner:
        owner.execute("set lock_timeout = '300ms'")
        try:
            owner.execute(statement)
            waited = False
        except psycopg.errors.LockNotAvailable:
            owner.execute("rollback")
            waited = True
    return waited, found[0]


@pytest.mark.parametrize("kind", WAITING)
def test_what_changes_a_relation_waits_for_its_reading(lists: Any, kind: str) -> None:
    assert while_read(lists, WAITING[kind]) == (True, (pytest.approx(10, abs=1000),))


@pytest.mark.parametrize("kind", FREE)
def test_what_changes_others_does_not_wait(lists: Any, kind: str) -> None:
    waited, answer = while_read(lists, FREE[kind])
    assert not waited
    assert answer is not None


#: Types that the text alone names, or a column whose type is in another schema than its table.
BY_TEXT = {
    "literal": "select dp_count(*) from client where case when c_kind = 'a' then 'sad'::mine.mood"
    " else 'glad'::mine.mood end >= 'sad'::mine.mood",
    "text": "select dp_count(*) from client where c_kind <> ('sad'::mine.mood)::text",
    "array": "select dp_count(*) from client where case when c_kind = 'a' then 'sad'::mine.mood"
    " else 'glad'::mine.mood end = any ('{sad,glad}'::mine.mood[])",
    "column": "select dp_count(*) from client join apart.list on k = c_id where m = 'sad'",
}
CHANGES = {
    "name": "alter type mine.mood rename to temper",
    "label": "alter type mine.mood rename value 'sad' to 'bad'",
    "schema": "alter type mine.mood set schema public",
    "drop": "drop type mine.mood cascade",
    "schema's name": "alter schema mine rename to yours",
    "schema's privileges": "revoke usage on schema mine from dp_executor",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("text", BY_TEXT)
def test_types_that_a_question_names_stay_as_they_are(lists: Any, text: str, change: str) -> None:
    """Rows decide whether a second statement looks for them: a count may not fit into bigint."""
    lists.sql(
        "create schema apart authorization mallory; grant usage on schema apart to alice, dp_executor;"
        " grant create on schema public to mallory"
    )
    lists.sql(
        "create table apart.list (k int primary key, m mine.mood);"
        " insert into apart.list select i, 'sad' from generate_series(1, 10) i;"
        " grant select on apart.list to dp_executor, alice; select dp.declare_public('apart.list')",
        user="mallory",
    )
    waited, answer = while_read(lists, CHANGES[change], question=BY_TEXT[text])
    assert waited
    assert answer is not None


def test_who_waits_for_all_questions_keeps_no_question_waiting(lists: Any) -> None:
    failed: list[str] = []

    def grant() -> None:
        with lists.connect("mallory") as session:
            session.execute("set lock_timeout = '50s'")
            try:
                session.execute(WAITING["many tables"])
            except psycopg.Error as error:
                failed.append(str(error))

    writer = threading.Thread(target=grant, daemon=True)
    with reading(lists):
        writer.start()
        writer.join(1)
        assert writer.is_alive()
        with lists.connect("alice") as other:
            other.execute("set statement_timeout = '20s'")
            other.execute("select dp_count(*) from client where c_id < 5")
        assert writer.is_alive()
    writer.join(60)
    assert not writer.is_alive()
    assert not failed


def test_a_prepared_transaction_keeps_no_question_waiting(make_server: Any) -> None:
    server = make_server(max_prepared_transactions="2")
    database = declare(server.create_database())
    database.sql("create schema mine authorization mallory; create role idle_reader")
    database.sql(TABLES.replace("select dp.declare_public('mine.list');", ""), user="mallory")
    with database.connect("mallory") as session:
        session.execute("begin")
        session.execute(WAITING["many tables"])
        with pytest.raises(psycopg.Error) as caught:
            session.execute("prepare transaction 'stuck'")
        assert caught.value.sqlstate == "0A000"
        session.execute("begin")
        session.execute("grant select on mine.list, mine.apart to idle_reader")
        session.execute("prepare transaction 'fine'")
    with database.connect("alice") as asker:
        asker.execute("set statement_timeout = '20s'")
        assert asker.execute("select dp_count(*) from client where c_id < 6").fetchone()
    database.sql("rollback prepared 'fine'", user="mallory")


@pytest.mark.parametrize(
    ("owner", "waits"), [("mallory", True), ("owner1", False), ("postgres", False)]
)
def test_who_else_runs_vacuum_waits(lists: Any, owner: str, waits: bool) -> None:
    """VACUUM of whoever owns the protected relations as well tells nobody else anything."""
    lists.sql(f"alter table mine.list owner to {owner}")
    assert while_read(lists, "vacuum mine.list", user=owner)[0] == waits
    assert while_read(lists, "insert into mine.list values (12, 12)", user=owner)[0] == waits
