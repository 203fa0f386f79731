"""Schedules of pg_cron itself, waited for: `make cron-suite`, two to three minutes.

The file's name keeps it out of `make test`, which must not wait for clocks or install packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from waiting import wait_until

from tests.conftest import Server, start_server
from tests.server.conftest import declare

pytestmark = pytest.mark.server

MINUTELY = "* * * * *"
OTHERS = "you have no schedule|must be owner|permission denied|could not find valid entry"
A_RUN = 75  # seconds in which a job of every minute has run
OWNERS = """
create role owner2 login; create role owner3 login; create role owner4 login; create role owners;
grant dp_owner to owner2, owner3, owner4, owners; grant owners to owner2;
create table public.third (t_id int primary key); alter table public.third owner to owner3;
create table public.fourth (f_id int primary key); alter table public.fourth owner to owner4;
create table public.shared (h_id int primary key); alter table public.shared owner to owners;
create table public.doomed (d_id int primary key); alter table public.doomed owner to owner1;
grant usage on schema cron to owner1, owner3, owners, alice;
select dp.declare_public(r.name) from unnest(array['third', 'fourth', 'shared', 'doomed']::regclass[]) as r(name);
"""


@dataclass
class Clock:
    """A shop whose database has pg_cron, the jobs in it and their runs."""

    shop: Any
    began: datetime
    oids: dict[str, int] = field(default_factory=dict)

    def schedule(self, relation: str, schedule: str, user: str = "owner1") -> None:
        self.shop.sql("select dp.schedule_refresh(%s, %s)", relation, schedule, user=user)

    def collect(self, relation: str, user: str = "owner1") -> None:
        self.shop.sql("select dp.collect_statistics(%s)", relation, user=user)
        ((self.oids[relation],),) = self.shop.sql("select %s::regclass::oid", relation)

    def jobs(self, user: str = "postgres") -> list[tuple[Any, ...]]:
        return self.shop.sql(
            "select jobid, jobname, schedule, username from cron.job order by jobid", user=user
        )

    def runs(self, relation: str) -> list[tuple[Any, ...]]:
        """Status, message and start of the finished runs for a relation, oldest first."""
        return self.shop.sql(
            """select status, return_message, start_time from cron.job_run_details
                where command = %s and status in ('succeeded', 'failed') order by runid""",
            f"select dp.refresh_statistics({self.oids[relation]}::oid::regclass)",
        )

    def taken(self, relation: str) -> datetime | None:
        ((taken,),) = self.shop.sql(
            """select max(m.taken_at) from dp.measurement as m
                 join dp.statistic as s on s.measurement = m.id where s.relation = %s""",
            self.oids[relation],
        )
        return taken


@pytest.fixture(scope="module")
def cron_server(installation: None) -> Iterator[Server]:
    # the shop's database is the first that this server makes
    server = start_server(
        shared_preload_libraries="'dpsql,pg_cron'",
        **{"cron.database_name": "test0", "cron.use_background_workers": "on"},
    )
    yield server
    server.remove()


@pytest.fixture(scope="module")
def shop(cron_server: Server) -> Any:
    shop = declare(cron_server.create_database())
    shop.sql("create extension pg_cron")
    shop.sql(OWNERS)
    return shop


@pytest.fixture(scope="module")
def clock(shop: Any) -> Clock:
    """All jobs, made at once and run at least once: one minute's wait for every test."""
    clock = Clock(shop, shop.sql("select now()")[0][0])
    for relation in ("client", "purchase", "region", "doomed"):
        clock.collect(relation)
        clock.schedule(relation, "0 3 1 1 *" if relation == "client" else MINUTELY)
    clock.collect("third", user="owner3")
    clock.schedule("third", MINUTELY, user="owner3")
    clock.schedule("client", " *  *\n* * * ")
    shop.sql("alter table purchase rename to sale; drop table doomed; revoke dp_owner from owner3")
    wait_until(lambda: all(clock.runs(relation) for relation in clock.oids), A_RUN)
    return clock


def refused(
    shop: Any, words: str, statement: str, *parameters: object, user: str = "owner1"
) -> Any:
    """The error of a statement, whose code and message match "PDnnn .* words"."""
    with pytest.raises(psycopg.Error) as caught:
        shop.sql(statement, *parameters, user=user)
    told = f"{caught.value.sqlstate} {caught.value.diag.message_primary}"
    assert re.search(words, told), told
    return caught.value.diag


def test_pg_cron_is_the_one_that_runs(shop: Any) -> None:
    assert shop.sql("select proname from pg_proc where proname = 'schedule' and prolang = 13")
    assert shop.sql("show cron.use_background_workers") == [("on",)]
    assert shop.sql("select rolsuper from pg_roles where rolname = 'owner1'") == [(False,)]


@pytest.mark.parametrize(
    "text", ["15 seconds", "@hourly", "@reboot", "0 3 $ * *", "0 3 * * mon", "* * * *", ""]
)
def test_what_pg_cron_or_we_do_not_know_is_refused_and_not_stored(shop: Any, text: str) -> None:
    before = shop.sql("select * from cron.job order by jobid")
    statement = "select dp.schedule_refresh('client', %s)"
    assert refused(shop, "PD040 .* is not a schedule", statement, text).message_detail
    assert shop.sql("select * from cron.job order by jobid") == before


@pytest.mark.parametrize(
    "text",
    ["*/15 * * * *", "0 3 * * 1-5", "0,30 8-18/2 1,15 * 0", " 5\t4 *\u2003* 7", "59 23 31 12 *",
     "00 00 01 01 00", "*/99 */99 */99 */99 */99", "0-59/1,5 0-23 1-31 1-12 0-7", "1\n2 3 4 5"],
)  # fmt: skip
def test_what_we_accept_pg_cron_accepts(shop: Any, text: str) -> None:
    with shop.connect(user="owner1", autocommit=False) as connection:
        connection.execute("select dp.schedule_refresh('client', %s)", (text,))
        connection.rollback()


def test_a_role_that_cannot_log_in_cannot_be_scheduled_as(shop: Any) -> None:
    before = shop.sql("select * from cron.job order by jobid")
    statement = f"set role owners; select dp.schedule_refresh('shared', '{MINUTELY}')"
    refused(shop, "PD040 role owners cannot log in", statement, user="owner2")
    assert shop.sql("select * from cron.job order by jobid") == before


def test_an_owner_without_usage_is_told_whom_to_ask(shop: Any) -> None:
    statement = f"select dp.schedule_refresh('fourth', '{MINUTELY}')"
    told = refused(shop, "PD070 permission denied for pg_cron", statement, user="owner4")
    assert "GRANT USAGE ON SCHEMA cron TO owner4" in told.message_hint


def test_other_databases_have_no_pg_cron_and_are_told_what_to_do(cron_server: Server) -> None:
    other = declare(cron_server.create_database())
    for call in (f"schedule_refresh('client', '{MINUTELY}')", "unschedule_refresh('client')"):
        told = refused(other, "PD040 .* pg_cron is not installed in this", f"select dp.{call}")
        assert "cron.database_name" in told.message_detail
        assert "CREATE EXTENSION pg_cron" in told.message_hint
    with pytest.raises(psycopg.Error, match="can only create extension in database test0"):
        other.sql("create extension pg_cron")


def test_the_job_refreshed_and_the_second_schedule_replaced_the_first(clock: Clock) -> None:
    status, message, _ = clock.runs("client")[0]
    assert status == "succeeded", message
    taken = clock.taken("client")
    assert taken is not None
    assert taken > clock.began
    name = f"dpsql refresh {clock.oids['client']}"
    assert [job[1:] for job in clock.jobs() if job[1] == name] == [(name, MINUTELY, "owner1")]
    assert clock.shop.sql(
        "select taken_at from dp.statistics where 'public.client' = any (relations)",
        user="owner1",
    )


def test_a_renamed_relation_is_refreshed_all_the_same(clock: Clock) -> None:
    status, message, _ = clock.runs("purchase")[0]
    assert status == "succeeded", message
    assert clock.taken("purchase") is not None


def test_the_job_of_a_dropped_relation_fails_until_it_is_taken_back_by_number(clock: Clock) -> None:
    oid = clock.oids["doomed"]
    status, message, _ = clock.runs("doomed")[0]
    assert status == "failed"
    assert f"relation {oid} does not exist" in message
    assert clock.shop.sql(
        "select return_message from cron.job_run_details where status = 'failed'", user="owner1"
    )
    clock.shop.sql(f"select dp.unschedule_refresh({oid})", user="owner1")
    assert f"dpsql refresh {oid}" not in [job[1] for job in clock.jobs()]


def test_the_job_of_somebody_who_is_no_owner_any_more_fails(clock: Clock) -> None:
    status, message, _ = clock.runs("third")[0]
    assert status == "failed"
    assert "permission denied" in message
    assert clock.taken("third") is None


@pytest.mark.parametrize("user", ["alice", "owner2"])
def test_others_cannot_see_or_change_the_job(clock: Clock, user: str) -> None:
    before = clock.jobs()
    ((job,),) = clock.shop.sql(
        "select jobid from cron.job where jobname = %s", f"dpsql refresh {clock.oids['region']}"
    )
    assert clock.jobs(user) == []
    assert clock.shop.sql("select * from cron.job_run_details", user=user) == []
    for statement in (
        "select dp.unschedule_refresh('region')",
        f"select dp.schedule_refresh('region', '{MINUTELY}')",
        f"select cron.unschedule({job})",
        f"select cron.unschedule('dpsql refresh {clock.oids['region']}'::name)",
        f"select cron.alter_job({job}, active => false)",
        f"update cron.job set active = false where jobid = {job}",
        f"delete from cron.job where jobid = {job}",
    ):
        refused(clock.shop, OTHERS, statement, user=user)
    assert clock.jobs() == before


def test_a_schedule_of_another_owner_stands_beside(clock: Clock) -> None:
    """Jobs are each role's own: a superuser's does not replace the owner's."""
    clock.schedule("region", "0 3 * * *", user="postgres")
    name = f"dpsql refresh {clock.oids['region']}"
    assert sorted(job[2:] for job in clock.jobs() if job[1] == name) == [
        (MINUTELY, "owner1"),
        ("0 3 * * *", "postgres"),
    ]
    clock.shop.sql("select dp.unschedule_refresh('region')")
    assert [job[2:] for job in clock.jobs() if job[1] == name] == [(MINUTELY, "owner1")]


def test_unscheduled_jobs_stop_while_others_go_on(clock: Clock) -> None:
    clock.shop.sql("select dp.unschedule_refresh('client')", user="owner1")
    ((stopped,),) = clock.shop.sql("select clock_timestamp()")
    refused(clock.shop, "PD040 you have no", "select dp.unschedule_refresh('client')")

    def ran_since(relation: str) -> bool:
        return any(
            start.timestamp() > stopped.timestamp() + 5 for *_, start in clock.runs(relation)
        )

    wait_until(lambda: ran_since("region") and ran_since("purchase"), A_RUN)
    assert not ran_since("client")
    assert not ran_since("doomed")


def test_sketches_are_built_by_the_clock_as_the_handbook_says(shop: Any, clock: Clock) -> None:
    handbook = (Path(__file__).parents[2] / "docs/owner.md").read_text()
    (command,) = re.findall(r"^SELECT cron\.schedule\(.*\);$", handbook, re.M)
    shop.sql(
        "set maintenance_work_mem = '1GB';"
        " select dp.create_sketch('select dp_count(*) from client a, client b"
        " where a.c_region = b.c_region', 100000)",
        user="owner1",
    )
    seed = shop.sql("select seed from dp.sketch_family")
    shop.sql(command.replace("0 4 * * 0", MINUTELY), user="owner1")
    runs = """select status, return_message from cron.job_run_details
               where command ~ 'rotate_sketch_seeds' and return_message ~ '^(SELECT|ERROR)'"""
    wait_until(lambda: bool(shop.sql(runs)), A_RUN)  # first it says that SET has succeeded
    assert shop.sql(runs)[0][0] == "succeeded", shop.sql(runs)
    wait_until(lambda: shop.sql("select seed from dp.sketch_family") != seed, 5)
    assert shop.sql("select valid from dp.sketches", user="owner1") == [(True,)]
    assert shop.sql("select cron.unschedule('dpsql sketches')", user="owner1") == [(True,)]
