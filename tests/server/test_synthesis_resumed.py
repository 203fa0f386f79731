"""Synthetic tables are written in parts: after a crash, a cancel or a dump the same rows follow."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from synthesising import store, write, writer
from test_dump_restore import dump_and_restore

from tests.server.chained import chain, contents, plan_of_chain


@pytest.mark.parametrize("after", [2, 7, 30])
def test_what_is_resumed_after_a_crash_is_the_same(chained: Any, after: int) -> None:
    admin = chained.connect()
    plan = plan_of_chain(admin)
    generated = chain(people=12_000, accounts=6000, bookings=60_000, members=9000)
    whole = store(chained, "owner1", "whole", plan, generated)
    steps = write(writer(chained, "owner1"), whole)
    assert steps > after
    expected = contents(admin, "whole")
    job = store(chained, "owner1", "syn", plan, generated)
    broken = writer(chained, "owner1")
    for _ in range(after):
        assert broken.execute("select dp.synthesis_step(%s)", (job,)).fetchone() == (True,)
    broken.execute("begin")
    assert broken.execute("select dp.synthesis_step(%s)", (job,)).fetchone() == (True,)
    pid = broken.info.backend_pid
    admin.execute("select pg_terminate_backend(%s, 60000)", (pid,))
    with pytest.raises(psycopg.OperationalError):
        broken.execute("commit")
    assert steps - after == write(writer(chained, "owner1"), job)
    found = contents(admin, "syn")
    assert {k.partition(".")[2]: v for k, v in found.items()} == {
        k.partition(".")[2]: v for k, v in expected.items()
    }


def test_rows_are_generated_once_a_session(chained: Any) -> None:
    job = store(chained, "owner1", "syn", plan_of_chain(chained.connect()), chain())
    session = writer(chained, "owner1")
    write(session, job)
    session.execute("reset session authorization")
    session.execute(
        "do language plpython3u $$ if GD['generated'] != 1: raise Exception(GD['generated']) $$"
    )


def test_a_procedure_writes_all_and_goes_on_after_a_cancel(chained: Any) -> None:
    plan = plan_of_chain(chained.connect())
    job = store(chained, "owner1", "syn", plan, chain(people=20_000, bookings=200_000))
    session = writer(chained, "owner1")
    cancelled = 0
    for milliseconds in (50 * 1.5**n for n in range(40)):
        session.execute(f"set statement_timeout = {int(milliseconds)}")
        try:
            session.execute("call dp.write_synthesis(%s)", (job,))
            break
        except psycopg.errors.QueryCanceled:
            cancelled += 1
    assert cancelled > 0
    found = chained.sql("select state, rows, rows_written from dp.syntheses")
    assert found == [("done", 221_100, 221_100)]
    assert chained.sql("select count(*), count(distinct b_id) from syn.booking") == [
        (200_000, 200_000)
    ]


def test_a_dump_keeps_what_was_measured_and_how_far_it_is(server: Any, chained: Any) -> None:
    plan = plan_of_chain(chained.connect())
    job = store(chained, "owner1", "syn", plan, chain())
    session = writer(chained, "owner1")
    for _ in range(4):
        session.execute("select dp.synthesis_step(%s)", (job,))
    copy = dump_and_restore(server, chained, "c")
    try:
        copy.sql("select dp.acknowledge_restore('a copy')")
        write(writer(copy, "owner1"), job)
        write(session, job)
        assert contents(copy.connect(), "syn") == contents(chained.connect(), "syn")
        copy.sql("select dp.drop_synthesis('syn')", user="owner1")
    finally:
        server.drop_database(copy)


def test_the_same_rows_are_written_whatever_became_of_a_public_table(chained: Any) -> None:
    admin = chained.connect()
    plan = plan_of_chain(admin)
    generated = chain()
    job = store(chained, "owner1", "syn", plan, generated)
    session = writer(chained, "owner1")
    for _ in range(2):
        session.execute("select dp.synthesis_step(%s)", (job,))
    admin.execute("delete from public.region where r_id = 3")
    admin.execute("insert into public.region select i, 'region ' || i from generate_series(6, 9) i")
    with pytest.raises(psycopg.Error, match="that the synthesis refers to are gone") as raised:
        write(writer(chained, "owner1"), job)
    assert raised.value.diag.message_detail == "One of 1: r_id = 3."
    assert f"CALL dp.write_synthesis({job}); pays nothing" in str(raised.value.diag.message_hint)
    admin.execute("insert into public.region values (3, 'new')")
    write(writer(chained, "owner1"), job)
    found = admin.execute("select distinct p_region from syn.person order by 1").fetchall()
    assert [region for (region,) in found] == [1, 2, 3, 4, 5]


def test_an_error_of_the_server_is_told_and_the_rest_can_be_written(chained: Any) -> None:
    """A trigger of the caller's own, which runs with his rights, refuses rows."""
    job = store(chained, "owner1", "syn", plan_of_chain(chained.connect()), chain())
    session = writer(chained, "owner1")
    session.execute("select dp.synthesis_step(%s)", (job,))
    session.execute(
        "create function syn.no() returns trigger language plpgsql as $$ begin"
        " raise exception 'refused as %, with %', current_user, current_setting('search_path'); end $$;"
        "create trigger no before insert on syn.person execute function syn.no()"
    )
    with pytest.raises(psycopg.Error, match="could not be written") as raised:
        write(session, job)
    assert raised.value.sqlstate == "PD010"
    assert "refused as owner1, with pg_catalog, pg_temp" in str(raised.value.diag.message_detail)
    session.execute("drop trigger no on syn.person")
    write(session, job)
    assert chained.sql("select count(*) from syn.person") == [(300,)]


def test_what_an_earlier_version_measured_is_refused_where_it_refers_to_public_rows(
    chained: Any,
) -> None:
    """Which rows its links mean was not kept with it."""
    generated = [None, *chain()[1:]]
    job = store(chained, "owner1", "syn", plan_of_chain(chained.connect()), generated)
    with pytest.raises(psycopg.Error, match="measured by an earlier version") as raised:
        write(writer(chained, "owner1"), job)
    assert raised.value.sqlstate == "PD010"
