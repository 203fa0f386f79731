"""What would change the catalogue of a relation waits while a question reads the relation."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

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
do $$ begin for i in 1..70 loop execute format('create table mine.many%s (a int)', i); end loop; end $$;
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
    "many tables": "do $$ begin for i in 1..70 loop execute format('grant select on mine.many%s to"
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


def while_read(database: Any, statement: str, user: str = "mallory") -> tuple[bool, Any]:
    """Run a statement of another session while alice's question stands between two statements.

    Returns whether it waited for the end of the question, and the answer.
    """
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
            target=lambda: found.append(session.execute(QUESTION).fetchone()), daemon=True
        )
        asking.start()
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while asking.is_alive() and gate.execute(waits).fetchone() != (1,):
            time.sleep(0.01)
        with database.connect(user=user) as owner:
            owner.execute("set lock_timeout = '300ms'")
            try:
                owner.execute(statement)
                waited = False
            except psycopg.errors.LockNotAvailable:
                owner.execute("rollback")
                waited = True
        gate.execute("select pg_advisory_unlock(77)")
        asking.join(60)
        assert len(found) == 1
    return waited, found[0]


@pytest.mark.parametrize("kind", WAITING)
def test_what_changes_a_relation_waits_for_its_reading(lists: Any, kind: str) -> None:
    assert while_read(lists, WAITING[kind]) == (True, (pytest.approx(10, abs=1000),))


@pytest.mark.parametrize("kind", FREE)
def test_what_changes_others_does_not_wait(lists: Any, kind: str) -> None:
    waited, answer = while_read(lists, FREE[kind])
    assert not waited
    assert answer is not None


@pytest.mark.parametrize(
    ("owner", "waits"), [("mallory", True), ("owner1", False), ("postgres", False)]
)
def test_who_else_runs_vacuum_waits(lists: Any, owner: str, waits: bool) -> None:
    """VACUUM of whoever owns the protected relations as well tells nobody else anything."""
    lists.sql(f"alter table mine.list owner to {owner}")
    assert while_read(lists, "vacuum mine.list", user=owner)[0] == waits
    assert while_read(lists, "insert into mine.list values (12, 12)", user=owner)[0] == waits
