"""Who writes a synthetic copy runs no code of others: swapped tables, casts, foreign schemas."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from synthesising import listed, read_plan, rows, store, write, writer

SWAP = """
create table public.person (p_id int primary key, p_kind text not null);
grant select on public.person to alice;
grant dp_analyst to alice;
create schema trap authorization mallory;
grant usage, create on schema trap to alice;
create schema mallory authorization mallory;
grant usage on schema mallory to alice;
"""
TRAP = [
    "create table mallory.heard (who text)",
    "grant insert on mallory.heard to public",
    "create function mallory.listen() returns trigger language plpgsql as"
    " $$ begin insert into mallory.heard values (current_user); return new; end $$",
    "drop table trap.person",
    "create table trap.person (p_id int, p_kind text)",
    "create trigger listens before insert on trap.person for each row execute function mallory.listen()",
    "grant all on trap.person to alice",
]


def heard(database: Any) -> list[str]:
    return [who for (who,) in database.sql("select who from mallory.heard")]


def test_a_table_that_was_swapped_is_not_written(database: Any) -> None:
    """The owner of the target schema may drop what is in it, and make something else of that name."""
    database.sql(SWAP)
    plan = read_plan(database.connect(), ["public.person"], {"public.person": ["p_kind"]})
    job = store(database, "alice", "trap", plan, [rows(20, [["a", "b"]])])
    session = writer(database, "alice")
    assert session.execute("select dp.synthesis_step(%s)", (job,)).fetchone() == (True,)
    with database.connect(user="mallory") as mallory:
        for statement in TRAP:
            mallory.execute(statement)
    with pytest.raises(psycopg.Error) as caught:
        write(session, job)
    assert "dropped, or replaced by others" in str(caught.value)
    assert heard(database) == []


def test_a_table_of_another_is_no_table_of_a_synthesis(database: Any) -> None:
    """It would be counted with its owner's rights.  Schemas are renamed in archives, too."""
    database.sql(SWAP)
    plan = read_plan(database.connect(), ["public.person"], {"public.person": ["p_kind"]})
    job = store(database, "alice", "archive", plan, [rows(20, [["a", "b"]])])
    database.sql("create schema shop; alter table public.person set schema shop")
    database.sql("grant usage on schema shop to alice; grant all on shop.person to alice")
    database.sql("alter schema shop rename to archive")
    with database.connect("alice") as alice:
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select * from dp.synthesis_report('archive')")
        assert "is not complete" in str(caught.value)
        begun = "select dp.synthesis_begun(%s, '{}', false, array[0], array['person']::name[])"
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(begun, (job,))
        assert caught.value.sqlstate == "PD070"
        database.sql(
            "insert into dp.synthesis_table (synthesis, place, schema_name, table_name, relation)"
            " values (%s, 0, 'archive', 'person', 'archive.person'::regclass)",
            job,
        )
        database.sql("update dp.synthesis set state = 'done' where id = %s", job)
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select * from dp.synthesis_report('archive')")
        assert caught.value.sqlstate == "PD010"
        assert "belong to another role" in str(caught.value)


def test_tables_are_still_those_of_a_maker_who_was_renamed(database: Any) -> None:
    database.sql(SWAP)
    for statement in (
        "create role maker login",
        "grant dp_analyst to maker",
        "grant usage, create on schema trap to maker",
        "grant select on public.person to maker",
    ):
        database.sql(statement)
    try:
        plan = read_plan(database.connect(), ["public.person"], {"public.person": ["p_kind"]})
        job = store(database, "maker", "trap", plan, [rows(20, [["a", "b"]])])
        own = "select own from dp.synthesis_tables(%s)"
        with writer(database, "maker") as session:
            write(session, job)
            assert session.execute(own, (job,)).fetchall() == [(True,)]
            database.sql("alter role maker rename to renamed_maker")
            assert session.execute(own, (job,)).fetchall() == [(True,)]
            database.sql("alter role renamed_maker rename to maker")
        database.sql("alter table trap.person owner to bob")
        with writer(database, "maker") as session:
            assert session.execute(own, (job,)).fetchall() == [(False,)]
    finally:
        database.sql("drop owned by maker")
        database.sql("drop role maker")


CASTS = """
grant dp_analyst to alice;
create schema mallory authorization mallory;
grant usage on schema mallory to alice;
grant create on database {database} to alice;
"""
TYPED = [
    "create table mallory.heard (who text)",
    "grant insert on mallory.heard to public",
    "create type mallory.en as enum ('x', 'y')",
    "create table mallory.kind (k mallory.en primary key)",
    "insert into mallory.kind values ('x'), ('y')",
    "grant select, references on mallory.kind to alice",
    "create table mallory.person (p_id int primary key, p_kind mallory.en not null references mallory.kind)",
]
VIEW = [
    "alter table mallory.kind rename to other",
    "create function mallory.tell(mallory.en) returns mallory.en language plpgsql as $$ begin"
    " insert into mallory.heard values (current_user); return $1; end $$",
    "create view mallory.kind as select mallory.tell(k) as k from mallory.other",
    "grant select on mallory.kind, mallory.other to alice",
]
CAST_BODIES = {
    "text as mallory.en": (
        "text",
        "mallory.en",
        "case $1 when 'x' then 'x'::mallory.en else 'y'::mallory.en end",
    ),
    "mallory.en as text": ("mallory.en", "text", "case when $1 = 'x' then 'x' else 'y' end"),
}


def typed(database: Any) -> int:
    """Let mallory own a type, a public table of it and what is copied; returns alice's job."""
    database.sql(CASTS.format(database=database.name))
    with database.connect(user="mallory") as mallory:
        for statement in TYPED:
            mallory.execute(statement)
    plan = read_plan(
        database.connect(), ["mallory.kind", "mallory.person"], {}, public=["mallory.kind"]
    )
    return store(database, "alice", "syn", plan, [listed(k=["x", "y"]), rows(20, [], [2])])


@pytest.mark.parametrize("way", CAST_BODIES)
def test_casts_of_others_are_not_run(database: Any, way: str) -> None:
    job = typed(database)
    session = writer(database, "alice")
    session.execute("select dp.synthesis_step(%s)", (job,))
    source, target, body = CAST_BODIES[way]
    with database.connect(user="mallory") as mallory:
        mallory.execute(
            f"create function mallory.f({source}) returns {target} language plpgsql as $$ begin"
            f" insert into mallory.heard values (current_user); return {body}; end $$"
        )
        mallory.execute(f"create cast ({way}) with function mallory.f({source})")
    with pytest.raises(psycopg.Error) as caught:
        write(session, job)
    assert "runs code of another role" in str(caught.value)
    assert heard(database) == []


def test_values_are_read_by_their_types_not_by_casts(database: Any) -> None:
    """Even the caller's own cast takes no part: what is written is what the type says."""
    job = typed(database)
    for source, target, body in CAST_BODIES.values():
        name = f"public.f_{source.rpartition('.')[2]}"
        database.sql(
            f"create function {name}({source}) returns {target} language plpgsql as $$ begin"
            f" insert into mallory.heard values (current_user); return {body}; end $$"
        )
        database.sql(f"create cast ({source} as {target}) with function {name}({source})")
    write(writer(database, "alice"), job)
    assert heard(database) == []
    assert database.sql("select count(*) from syn.person") == [(20,)]


def test_a_view_in_place_of_a_public_table_is_not_read(database: Any) -> None:
    """It would run its owner's functions with the rights of who writes."""
    job = typed(database)
    session = writer(database, "alice")
    session.execute("select dp.synthesis_step(%s)", (job,))
    with database.connect(user="mallory") as mallory:
        for statement in VIEW:
            mallory.execute(statement)
    with pytest.raises(psycopg.Error) as caught:
        write(session, job)
    assert "is not what it was" in str(caught.value)
    assert heard(database) == []
