"""Who may write, replace and see synthetic tables, and whose code runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from synthesising import read_plan, rows, store, write, writer

from tests.server.chained import chain, plan_of_chain


@pytest.fixture(autouse=True)
def mallory_stays_a_stranger(cluster: Any) -> Iterator[None]:
    """Take back, in a cluster that other tests share, what these grant to mallory."""
    yield
    with psycopg.connect(cluster.conninfo(dbname="postgres"), autocommit=True) as session:
        found = session.execute(
            "select format('revoke %I from mallory', r.roleid::regrole) from pg_auth_members as r"
            " where r.member = 'mallory'::regrole"
        )
        for (statement,) in found.fetchall():
            session.execute(statement)


def test_a_target_with_relations_is_refused_and_only_synthetic_ones_are_replaced(
    chained: Any,
) -> None:
    admin = chained.connect()
    plan = plan_of_chain(admin)
    session = writer(chained, "owner1")
    session.execute("create schema syn; create table syn.mine (a int)")
    job = store(chained, "owner1", "syn", plan, chain(), replace=True)
    with pytest.raises(psycopg.Error, match="has relations already") as raised:
        write(session, job)
    assert "syn.mine" in str(raised.value.diag.message_detail)
    session.execute("drop table syn.mine")
    write(session, job)
    first = store(chained, "owner1", "syn", plan, chain())
    with pytest.raises(psycopg.Error, match="replace => true"):
        write(session, first)
    second = store(chained, "owner1", "syn", plan, chain(people=50), replace=True)
    write(session, second)
    assert admin.execute("select count(*) from syn.person").fetchone() == (50,)
    # the schema was there before
    session.execute("select dp.drop_synthesis('syn')")
    assert admin.execute(
        "select count(*) from pg_class where relnamespace = 'syn'::regnamespace"
    ).fetchone() == (0,)
    assert chained.sql("select count(*) from dp.synthesis_table") == [(0,)]
    with pytest.raises(psycopg.Error, match="there is no synthesis syn of yours"):
        session.execute("select dp.drop_synthesis('syn')")
    third = store(chained, "owner1", "other", plan, chain())
    write(session, third)
    session.execute("select dp.drop_synthesis('other')")
    assert admin.execute("select to_regnamespace('other')").fetchone() == (None,)


def test_only_the_role_that_measured_goes_on(chained: Any) -> None:
    chained.sql("grant dp_analyst to mallory")
    plan = plan_of_chain(chained.connect())
    job = store(chained, "owner1", "syn", plan, chain())
    mallory = writer(chained, "mallory")
    with pytest.raises(psycopg.Error, match=f"there is no synthesis {job} of yours"):
        mallory.execute("select dp.synthesis_step(%s)", (job,))
    assert mallory.execute("select * from dp.syntheses").fetchall() == []
    for call in ("dp.synthesis_wrote(%s, 1, 5, 0, 5)", "dp.synthesis_moved(%s, 'done', 1, '{{}}')"):
        with pytest.raises(psycopg.Error, match="of yours"):
            mallory.execute(f"select {call.format()}", (job,))
    with pytest.raises(psycopg.Error, match="permission denied"):
        mallory.execute("select payload from dp.synthesis")


def test_a_definer_function_cannot_write_in_another_name(chained: Any) -> None:
    chained.sql("grant dp_owner to mallory")
    job = store(chained, "owner1", "syn", plan_of_chain(chained.connect()), chain())
    chained.sql("create schema trap authorization mallory; grant usage on schema trap to public")
    chained.sql(
        "create function trap.go(job bigint) returns boolean language sql security definer as 'select dp.synthesis_step(job)'",
        user="mallory",
    )
    session = writer(chained, "owner1")
    with pytest.raises(psycopg.Error, match="must be the role owner1"):
        session.execute("select trap.go(%s)", (job,))


def test_code_of_others_does_not_run_with_the_callers_rights(database: Any) -> None:
    database.sql(
        "grant dp_owner to owner1; create schema m authorization mallory; grant usage on schema m to public;"
        f"grant create on database {database.name} to owner1"
    )
    database.sql(
        "create function m.peep(int) returns boolean language plpgsql immutable as $$ begin"
        " if current_user = 'owner1' then raise exception 'ran as owner1'; end if; return true; end $$;"
        "create function m.one() returns int language plpgsql as $$ begin"
        " if current_user = 'owner1' then raise exception 'ran as owner1'; end if; return 1; end $$;"
        "create table m.t (id int primary key, a int check (m.peep(a)), b int default m.one());"
        "create index on m.t (m.peep(a)); create index on m.t (a) where m.peep(a); grant select on m.t to public;"
        "create domain m.checked as int check (m.peep(value)); create table m.u (id int primary key, a m.checked)",
        user="mallory",
    )
    admin = database.connect()
    plan = read_plan(admin, ["m.t"], {"m.t": ["a"]})
    write(
        writer(database, "owner1"), store(database, "owner1", "syn", plan, [rows(50, [["1", "2"]])])
    )
    assert admin.execute("select count(*), count(b) from syn.t").fetchone() == (50, 0)
    notes = database.sql("select notes from dp.synthesis")[0][0]
    assert len(notes) == 4
    plan = read_plan(admin, ["m.u"], {"m.u": ["a"]})
    job = store(database, "owner1", "syn2", plan, [rows(50, [["1", "2"]])])
    with pytest.raises(psycopg.Error, match="runs code of another role"):
        write(writer(database, "owner1"), job)


def test_a_caller_who_cannot_create_is_refused(chained: Any) -> None:
    chained.sql("grant dp_analyst to alice; grant select on all tables in schema public to alice")
    job = store(chained, "alice", "syn", plan_of_chain(chained.connect()), chain())
    with pytest.raises(psycopg.Error, match="permission denied to create the schema syn") as raised:
        write(writer(chained, "alice"), job)
    assert raised.value.sqlstate == "PD070"
    told = "CREATE SCHEMA syn; GRANT CREATE, USAGE ON SCHEMA syn TO alice;"
    assert told in (raised.value.diag.message_hint or "")
    chained.sql("revoke select on public.region from alice")
    chained.sql(told, user="owner1")  # what the hint says, and as it says it
    with pytest.raises(psycopg.Error, match=r"permission denied for table public\.region"):
        write(writer(chained, "alice"), job)


def test_owners_see_syntheses_of_what_they_own(chained: Any) -> None:
    store(chained, "owner1", "syn", plan_of_chain(chained.connect()), chain())
    chained.sql("grant dp_owner to mallory")
    shown = "select target, made_by::text, state, epsilon, cardinality(reads) from dp.syntheses"
    assert chained.sql(shown, user="owner1") == [("syn", "owner1", "measured", 1, 4)]
    assert chained.sql(shown, user="mallory") == []
    for table in ("person", "account", "booking", "member"):
        assert chained.sql(shown, user="mallory") == []
        chained.sql(f"alter table public.{table} owner to mallory")
    assert chained.sql(shown, user="mallory") == [("syn", "owner1", "measured", 1, 4)]
