"""Schedules of refreshes: what is said without pg_cron, and what a schedule is."""

from __future__ import annotations

import psycopg
import pytest

from tests.server.collecting import Collector


def test_a_schedule_without_pg_cron_says_what_to_do(stats: Collector) -> None:
    for call in (
        "dp.schedule_refresh('client', '*/15 * * * *')",
        "dp.unschedule_refresh('client')",
    ):
        with pytest.raises(psycopg.Error, match="pg_cron is not installed") as caught:
            stats.owner.execute(f"select {call}")  # type: ignore[call-overload]
        assert caught.value.sqlstate == "PD040"
        assert "CREATE EXTENSION pg_cron" in str(caught.value.diag.message_hint)


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
     "*/0 * * * *", "5-1 * * * *", "a * * * *", "@hourly", "30 seconds", "1/5 * * * *", "1,,2 * * * *",
     "*; drop table client * * *", "-1 * * * *"],
)  # fmt: skip
def test_a_bad_schedule_is_refused_with_its_field(stats: Collector, text: str) -> None:
    with pytest.raises(psycopg.Error, match="is not a schedule") as caught:
        stats.owner.execute("select dp.schedule_refresh('client', %s)", (text,))
    assert caught.value.sqlstate == "PD040"
    assert caught.value.diag.message_detail


def test_a_schedule_must_not_be_null(stats: Collector) -> None:
    with pytest.raises(psycopg.Error) as caught:
        stats.owner.execute("select dp.schedule_refresh('client', null)")
    assert caught.value.sqlstate == "PD040"
    assert caught.value.diag.message_primary == 'parameter "schedule" must not be null'


@pytest.mark.parametrize(
    "text", ["*/15 * * * *", "0 3 * * 1-5", "0,30 8-18/2 1,15 * 0", " 5  4 * * 7 ", "59 23 31 12 *"]
)
def test_good_schedules_pass(stats: Collector, text: str) -> None:
    stats.owner.execute("select dp.require_cron_text(%s)", (text,))


CRON = """
create schema cron;
create table cron.job (jobid bigserial, schedule text, command text, jobname text,
                       username text default current_user, unique (jobname, username));
create function cron.schedule(job_name text, schedule text, command text) returns bigint
  language sql as $$ insert into cron.job (jobname, schedule, command) values ($1, $2, $3)
    on conflict (jobname, username) do update set schedule = $2, command = $3 returning jobid $$;
create function cron.unschedule(job_name text) returns boolean
  language sql as $$ with d as (delete from cron.job where jobname = $1 and username = current_user
    returning 1) select exists (select from d) $$;
grant usage on schema cron to owner1;
grant all on cron.job to owner1;
grant usage on cron.job_jobid_seq to owner1;
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
  values (999999, 'pg_cron', 10, 'cron'::regnamespace, false, '1.4');
"""


def test_a_schedule_is_a_job_of_the_caller_that_refreshes(stats: Collector) -> None:
    """Against what pg_cron 1.4 offers; `make cron-suite` has the extension itself."""
    stats.collect("client")
    stats.admin.execute(CRON)
    for text in ("0 3 * * *", " */15  *\n*\t* * "):
        stats.owner.execute("select dp.schedule_refresh('client', %s)", (text,))
    ((schedule, command, user),) = stats.admin.execute(
        "select schedule, command, username from cron.job"
    ).fetchall()
    assert (schedule, user) == ("*/15 * * * *", "owner1")
    before = stats.admin.execute("select max(taken_at) from dp.measurement").fetchone()
    stats.owner.execute(command)
    assert stats.admin.execute("select max(taken_at) from dp.measurement").fetchone() > before
    stats.owner.execute("select dp.unschedule_refresh('client')")
    assert stats.admin.execute("select count(*) from cron.job").fetchone() == (0,)
    with pytest.raises(psycopg.Error, match="you have no schedule"):
        stats.owner.execute("select dp.unschedule_refresh('client')")
