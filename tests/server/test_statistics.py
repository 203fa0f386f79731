"""Statistics that live: taking, using, scheduling and forgetting them, and who may see any of it."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import psycopg
import pytest
from psycopg.types.string import TextLoader
from waiting import wait_until

from dpsql.core import sensitivity, stale
from dpsql.model import Boundary, JoinQuery, Shape
from dpsql.statistics.stored import Stored, load, unfiltered, wanted

JOIN = """select dp_count(*) from client join purchase on p_client = c_id
  join region on r_id = c_region where c_kind <> 'z' and r_name <> 'z'"""
WIDE = """select dp_count(*) from purchase a join purchase b on a.p_day = b.p_day
  join client on c_id = b.p_client join region on r_id = c_region
  where c_kind <> 'z' and r_name <> 'z'"""


class Direct:
    """`dpsql.ports.Database` over a connection to the test server."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        connection.adapters.register_loader("json", TextLoader)

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[object, ...]]:
        typed = re.sub(r"\$(\d+)", lambda m: f"{m[0]}::{parameters[int(m[1]) - 1][0]}", sql)
        cursor = psycopg.RawCursor(self.connection)
        return cursor.execute(typed, [v for _, v in parameters] or None).fetchall()

    def before_reading(self, relations: Any) -> None:
        pass

    def tick(self) -> None:
        pass


class Collector:
    """Statistics, queries and fresh counts of the shop, for its superuser."""

    def __init__(self, shop: Any) -> None:
        self.shop = shop
        self.admin = shop.connect()
        self.owner = shop.connect(user="owner1")

    def collect(self, *relations: str) -> None:
        for relation in relations:
            self.owner.execute(f"select dp.collect_statistics('{relation}')")
            self.owner.execute(f"select dp.refresh_statistics('{relation}')")

    def query(self, text: str) -> JoinQuery:
        from dpsql.query.pipeline import analyse

        (question,) = [analyse(_analysis(self.admin, text), _Catalog(self.admin))]
        return question.aggregates[0]

    def load(self, query: JoinQuery, method: str = "residual") -> Stored | None:
        needed = stale.required(query.shape(), stale.numbering(query), method)
        return load(query, needed, Direct(self.admin))


def _analysis(connection: Any, text: str) -> Any:
    return json.loads(
        connection.execute("select dp.analyze(dp.deparse(%s))", (text,)).fetchone()[0]
    )


def _Catalog(connection: Any) -> Any:
    from dpsql.server.catalog import SpiCatalog

    return SpiCatalog(Direct(connection))  # type: ignore[arg-type]


@pytest.fixture
def stats(shop: Any) -> Collector:
    return Collector(shop)


def count(stats: Collector, query: JoinQuery, method: str) -> dict[Boundary, int]:
    from dpsql.statistics.counts import count as exact

    needed = stale.required(query.shape(), stale.numbering(query), method)
    return exact(
        unfiltered(query), needed, Direct(stats.admin), answer=False, kernel="sql"
    ).boundaries


def test_frequencies_are_exact_and_cover_elastic_sensitivity(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    for text in (JOIN, WIDE):
        query = stats.query(text)
        found = stats.load(query, "elastic")
        assert found is not None
        assert found.values == count(stats, query, "elastic")
        assert set(found.shifts) == {0}


def test_frequencies_alone_do_not_give_boundaries_of_several_relations(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    assert stats.load(stats.query(WIDE), "residual") is None


@pytest.mark.parametrize("text", [JOIN, WIDE, WIDE + " and a.p_flag and r_name like 'r%%'"])
def test_a_kept_question_has_all_boundaries_of_one_snapshot(stats: Collector, text: str) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (text.replace("%%", "%"),))
    query = stats.query(text.replace("%%", "%"))
    assert stats.load(query) is None
    stats.owner.execute("select dp.refresh_statistics('client')")
    for method in ("residual", "elastic"):
        found = stats.load(query, method)
        assert found is not None
        assert found.values == count(stats, query, method)


def test_filtered_and_unfiltered_questions_share_statistics(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('purchase')")
    found = stats.load(stats.query(WIDE + " and a.p_amount > 5 and c_kind = 'a'"))
    assert found is not None
    assert found == stats.load(stats.query(WIDE))


def test_changes_shift_the_relation_that_changed_public_ones_too(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('region')")
    query = stats.query(WIDE)
    stats.admin.execute("insert into region values (5, 'five'), (6, 'six')")
    stats.admin.execute("update client set c_region = 5 where c_id <= 7")
    found = stats.load(query)
    assert found is not None
    by_name = {
        o.relation.name: found.shifts[n]
        for o, n in zip(query.occurrences, stale.numbering(query), strict=True)
    }
    assert by_name == {"purchase": 0, "client": 7} | ({"region": 2} if "region" in by_name else {})
    arguments = (query.shape(), stale.numbering(query), found.values)
    fresh = stale.bound(*arguments, (0,) * len(found.shifts), 2.0)
    assert stale.bound(*arguments, found.shifts, 2.0).exact >= fresh.exact
    now = sensitivity.bound(query.shape(), count(stats, query, "residual"), 1e3)
    assert stale.bound(*arguments, found.shifts, 1e3).exact >= now.exact * (1 - 1e-8)


def test_many_changes_are_still_used_since_their_amount_decides_nothing(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    query = stats.query(JOIN)
    stats.admin.execute("update purchase set p_amount = 0")
    stats.admin.execute(
        "insert into purchase select i, 1, 1, '2024-01-01' from generate_series(5000, 9999) i"
    )
    found = stats.load(query, "elastic")
    assert found is not None
    assert max(found.shifts) == 7000


@pytest.mark.parametrize(
    "statement",
    [
        "alter table client rename column c_region to c_place",
        "alter table client rename to person",
        "alter table client alter c_region type bigint",
        "alter table client disable trigger dpsql_update",
        "truncate purchase, client",
        "select dp.drop_statistics('client')",
        "select dp.unprotect('client')",
    ],
)
def test_statistics_of_an_altered_relation_are_not_used(stats: Collector, statement: str) -> None:
    stats.collect("client", "purchase", "region")
    query = stats.query(JOIN)
    assert stats.load(query, "elastic") is not None
    stats.admin.execute(statement)
    if "rename to" in statement:  # the same rows under another name
        assert stats.load(query, "elastic") is not None
    else:
        assert stats.load(query, "elastic") is None


def test_a_dropped_relation_leaves_nothing_that_is_used(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    query = stats.query(WIDE)
    stats.admin.execute("drop table purchase")
    assert stats.load(query, "elastic") is None
    stats.owner.execute("select dp.refresh_statistics('client')")
    with pytest.raises(psycopg.Error, match="does not exist"):
        stats.owner.execute("select dp.refresh_statistics('purchase')")
    assert stats.admin.execute(
        "select count(*) from dp.statistics where kind = 'boundary'"
    ).fetchone() == (0,)


def test_an_empty_table_and_all_null_keys_have_frequencies(stats: Collector) -> None:
    stats.admin.execute("create table n (a int, b text, c json)")
    stats.admin.execute("insert into n values (null, null), (null, null), (null, 'x')")
    stats.admin.execute("select dp.protect('n'); select dp.collect_statistics('n')")
    stats.admin.execute("select dp.refresh_statistics('n')")
    show = "select identity, value::int from dp.statistics where 'n' = any (relations) order by 1"
    oid = stats.admin.execute("select 'n'::regclass::oid::text").fetchone()[0]
    shown = "select replace(identity, %s, ''), value::int from dp.owned_statistics() where identity like %s order by identity collate \"C\""
    found = stats.admin.execute(shown, (oid, oid + "[%")).fetchall()
    assert found == [('["a"]', 0), ('["b"]', 1), ("[]", 3)]
    stats.admin.execute("delete from n")
    stats.admin.execute("select dp.refresh_statistics('n')")
    assert [v for _, v in stats.admin.execute(shown, (oid, oid + "[%")).fetchall()] == [0, 0, 0]
    assert stats.admin.execute(show).fetchall() == []  # its name is public.n


def test_the_view_shows_an_owner_his_own(stats: Collector) -> None:
    stats.collect("client")
    stats.admin.execute("create table other (a int); select dp.protect('other');"
                        " select dp.collect_statistics('other')")  # fmt: skip
    stats.admin.execute("select dp.refresh_statistics('other')")
    seen = stats.owner.execute("select distinct relations, changes from dp.statistics").fetchall()
    assert seen == [(["public.client"], 0)]
    assert stats.admin.execute(
        "select count(distinct relations) from dp.statistics"
    ).fetchone() == (2,)
    stats.admin.execute("alter table client disable trigger dpsql_insert")
    assert stats.owner.execute("select distinct changes from dp.statistics").fetchall() == [(None,)]


HIDDEN = [
    "select * from dp.statistics",
    "select * from dp.progress",
    "select * from dp.owned_statistics()",
    "select * from dp.statistic",
    "select * from dp.change",
    "select * from dp.changed_key",
    "select * from dp.measurement",
    "select * from dp.measured_relation",
    "select * from dp.kept_query",
    "insert into dp.change (relation, inserted, updated) values (1, 1, 1)",
    "select dp.statistics_shift(1, 'client'::regclass)",
    "select dp.measure_statistics('client'::regclass, '[]')",
    "select dp.refresh_statistics('client')",
    "select dp.collect_statistics('client')",
    "select dp.drop_statistics('client')",
    "select dp.keep_statistics('select dp_count(*) from client')",
    "select dp.schedule_refresh('client', '0 0 * * *')",
    "select dp_count(*) from dp.statistic",
]


@pytest.mark.parametrize("statement", HIDDEN)
def test_analysts_see_nothing(stats: Collector, statement: str) -> None:
    stats.collect("client")
    with pytest.raises(psycopg.Error) as caught:
        stats.shop.sql(statement, user="alice")
    assert caught.value.sqlstate in ("42501", "PD012")


def test_other_owners_may_not_refresh_nor_keep(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.admin.execute("grant dp_owner to mallory")
    mallory = stats.shop.connect(user="mallory")
    for call in (
        "dp.refresh_statistics('client')",
        "dp.collect_statistics('client')",
        "dp.drop_statistics('client')",
        "dp.schedule_refresh('client', '0 0 * * *')",
        "dp.keep_statistics('select dp_count(*) from client')",
    ):
        with pytest.raises(psycopg.Error) as caught:
            mallory.execute(f"select {call}")  # type: ignore[call-overload]
        assert caught.value.sqlstate == "PD070", call
    assert mallory.execute("select * from dp.statistics").fetchall() == []
    stats.admin.execute("revoke dp_owner from mallory")


def test_keeping_is_taken_back_and_refuses_what_has_no_boundaries(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    for text in ("select dp_count(*) from region", "select 1"):
        with pytest.raises(psycopg.Error) as caught:
            stats.owner.execute("select dp.keep_statistics(%s)", (text,))
        assert str(caught.value.sqlstate).startswith("PD01"), text
    for _ in range(2):
        stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('client')")
    assert stats.owner.execute(
        "select count(distinct kept_question) from dp.statistics"
    ).fetchone() == (1,)
    stats.owner.execute("select dp.unkeep_statistics(%s)", (WIDE,))
    assert stats.load(stats.query(WIDE)) is None
    with pytest.raises(psycopg.Error, match="no statistics are kept"):
        stats.owner.execute("select dp.unkeep_statistics(%s)", (WIDE,))


KEPT = "select query, relations, kept_by, taken_at is not null, problem from dp.kept_questions"


def test_a_kept_question_is_seen_before_it_is_refreshed(stats: Collector) -> None:
    stats.owner.execute("select dp.collect_statistics('client'), dp.collect_statistics('purchase')")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    ((text, relations, keeper, taken, problem),) = stats.owner.execute(KEPT).fetchall()
    assert "dp_count(*)" in text
    assert (sorted(relations), keeper, taken) == (
        [f"public.{r}" for r in ("client", "purchase", "region")],
        "owner1",
        False,
    )
    assert problem == "changes of public.region are not counted: SELECT dp.collect_statistics(...)"
    stats.owner.execute("select dp.collect_statistics('region')")
    assert stats.owner.execute(KEPT).fetchall()[0][4].startswith("no refresh of its relations")
    stats.owner.execute("select dp.refresh_statistics('client')")
    assert stats.owner.execute(KEPT).fetchall()[0][3:] == (True, None)
    stats.admin.execute("grant dp_owner to mallory")
    try:
        mallory = stats.shop.connect(user="mallory")
        assert mallory.execute(KEPT).fetchall() == []
        for argument in (text, 1):
            with pytest.raises(psycopg.Error) as caught:
                mallory.execute("select dp.unkeep_statistics(%s)", (argument,))
            assert caught.value.sqlstate in ("PD040", "PD070")
        assert len(stats.owner.execute(KEPT).fetchall()) == 1
    finally:
        stats.admin.execute("revoke dp_owner from mallory")
    with pytest.raises(psycopg.Error) as denied:
        stats.shop.sql(KEPT, user="alice")
    assert denied.value.sqlstate == "42501"


@pytest.mark.parametrize("by", ["number", "text"])
def test_a_question_that_means_nothing_any_more_is_taken_back(stats: Collector, by: str) -> None:
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    ((number, text),) = stats.owner.execute("select question, query from dp.kept_questions")
    stats.admin.execute("alter table region rename to elsewhere")
    with pytest.raises(psycopg.Error) as caught:
        stats.owner.execute("select dp.unkeep_statistics(%s)", (WIDE,))
    assert caught.value.sqlstate == "42P01"
    stats.owner.execute("select dp.unkeep_statistics(%s)", (number if by == "number" else text,))
    assert stats.owner.execute(KEPT).fetchall() == []
    for argument in (number, None):
        with pytest.raises(psycopg.Error) as missing:
            stats.owner.execute("select dp.unkeep_statistics(%s::integer)", (argument,))
        assert missing.value.sqlstate == "PD040"


def test_questions_of_dropped_relations_are_forgotten(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('client')")
    stats.owner.execute(
        "alter table client drop constraint client_c_region_fkey; drop table region"
    )
    assert "was dropped" in stats.owner.execute(KEPT).fetchall()[0][4]
    stats.owner.execute("select dp.refresh_statistics('client')")
    assert stats.owner.execute(KEPT).fetchall() == []
    assert stats.admin.execute("select count(*) from dp.kept_query").fetchone() == (0,)
    left = "select count(*) from dp.statistic where kept is not null"
    assert stats.admin.execute(left).fetchone() == (0,)


def test_a_kept_question_has_no_parameters(stats: Collector) -> None:
    with pytest.raises(psycopg.Error) as caught:
        psycopg.ClientCursor(stats.owner).execute(
            "select dp.keep_statistics('select dp_count(*) from client where c_id = $1')"
        )
    assert caught.value.diag.message_hint == "Write the value itself in the place of $1."


def test_dropping_statistics_takes_the_triggers_away(stats: Collector) -> None:
    stats.collect("client")
    stats.owner.execute("select dp.drop_statistics('client')")
    left = "select count(*) from pg_trigger where tgname like 'dpsql%'"
    assert stats.admin.execute(left).fetchone() == (0,)
    stats.admin.execute("update client set c_kind = 'a'")
    for table in ("change", "changed_key", "statistic", "measurement", "measured_relation"):
        assert stats.admin.execute(f"select count(*) from dp.{table}").fetchone() == (0,), table


def _slow(stats: Collector) -> None:
    """Make refreshing purchase wait: somebody holds a lock that counting needs."""
    stats.collect("client", "purchase")
    stats.admin.execute("insert into purchase values (9001, 1, 1, '2024-01-01')")


@pytest.mark.parametrize("how", ["cancel", "terminate", "kill"])
def test_an_interrupted_refresh_leaves_the_old_statistics(make_server: Any, how: str) -> None:
    from conftest import declare

    server = make_server()
    stats = Collector(declare(server.create_database()))
    _slow(stats)
    before = stats.admin.execute(
        "select * from dp.statistics order by relations, identity"
    ).fetchall()
    stats.admin.execute(
        "create or replace function public.slow() returns int language sql as 'select 1'"
    )
    busy = stats.shop.connect(autocommit=False)
    busy.execute("lock table purchase in access exclusive mode")
    victim = stats.shop.connect(user="owner1")
    pid = victim.info.backend_pid
    import threading

    failed: list[psycopg.Error] = []

    def refresh() -> None:
        try:
            victim.execute("select dp.refresh_statistics('purchase')")
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=refresh)
    thread.start()
    waits = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    wait_until(lambda: stats.admin.execute(waits, (pid,)).fetchone() == (1,))
    assert stats.owner.execute("select relation::text, phase from dp.progress").fetchall() == [
        ("purchase", "waiting for another refresh")
    ]
    if how == "cancel":
        stats.admin.execute("select pg_cancel_backend(%s)", (pid,))
    elif how == "terminate":
        stats.admin.execute("select pg_terminate_backend(%s)", (pid,))
    else:
        os.kill(pid, signal.SIGKILL)
    thread.join()
    assert len(failed) == 1
    busy.close()

    def recovered() -> bool:
        try:
            return bool(stats.shop.sql("select 1"))
        except psycopg.Error:
            return False

    def noticed() -> bool:  # a killed backend takes all others along
        try:
            stats.admin.execute("select 1")
        except psycopg.Error:
            return True
        return False

    if how == "kill":
        wait_until(noticed)
    wait_until(recovered)
    admin = stats.shop.connect()
    after = admin.execute("select * from dp.statistics order by relations, identity").fetchall()
    assert [row[:5] for row in after] == [row[:5] for row in before]
    assert {row[5] for row in after if row[1] == ["public.purchase"]} == {1}
    assert admin.execute("select * from dp.progress").fetchall() == []
    admin.execute("select dp.refresh_statistics('purchase')")
    stats.shop.close()


def test_concurrent_refreshes_wait_for_each_other(stats: Collector) -> None:
    import threading

    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    errors: list[Exception] = []

    def refresh(relation: str) -> None:
        try:
            mine = stats.shop.connect(user="owner1")
            for _ in range(3):
                mine.execute(f"select dp.refresh_statistics('{relation}')")
        except psycopg.Error as error:
            errors.append(error)

    threads = [
        threading.Thread(target=refresh, args=(r,))
        for r in ("client", "purchase", "client", "region")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stats.load(stats.query(WIDE)) is not None
    doubles = "select count(*) - count(distinct (relation, kept, identity)) from dp.statistic"
    assert stats.admin.execute(doubles).fetchone() == (0,)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_refresh_wants_the_latest_snapshot(stats: Collector, level: str) -> None:
    stats.collect("client")
    stats.owner.execute(f"begin isolation level {level}")
    with pytest.raises(psycopg.Error, match="cannot be refreshed in this transaction") as caught:
        stats.owner.execute("select dp.refresh_statistics('client')")
    assert caught.value.sqlstate == "PD040"


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


def test_wanted_covers_every_method_of_the_all_changing_shape(stats: Collector) -> None:
    query = stats.query(WIDE)
    shape, numbers = query.shape(), stale.numbering(query)
    assert isinstance(shape, Shape)
    both = wanted(query, ["residual", "elastic"])
    assert both >= stale.required(shape, numbers, "residual")
    assert both >= stale.required(shape, numbers, "elastic")
