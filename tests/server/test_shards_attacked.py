"""Ways around the parent: parts by name, parts that are changed, the same rows twice, rows that lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import silent
from tests.server.shards import READER, Shards, sharded

pytestmark = pytest.mark.server
QUESTION = "select dp_count(*) from visit"
BUDGET = "select dp.grant_budget('postgres', 1e7, 1), dp.grant_budget('alice', 1e7, 1);"
DECLARE = f"select dp.protect('visit'), dp.declare_shards('visit', written => 'coordinator'), dp.set_failure_limit('visit', 1000); {BUDGET}"
ROWS = 100


@pytest.fixture
def clinic(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as shards:
        shards.table(
            "visit",
            "v_id int not null, v_who int not null, v_amount bigint",
            "v_id",
            declare=DECLARE,
        )
        shards.near.sql(
            f"insert into visit select i, i % 20, i from generate_series(1, {ROWS}) i",
            user="owner1",
        )
        yield shards


def refused(database: Any, sql: str, user: str = "alice") -> tuple[str | None, str | None]:
    """Say it in vain; gives state and what is said in detail."""
    with database.connect(user) as session, pytest.raises(psycopg.Error) as caught:
        session.execute(sql)
    return caught.value.sqlstate, caught.value.diag.message_detail


def exactly(clinic: Shards, sql: str = QUESTION) -> int:
    with silent(clinic.near, "visit") as session:
        row = session.execute(sql).fetchone()
        assert row is not None
        return int(row[0])


def reason(clinic: Shards, relation: str = "visit") -> str | None:
    rows = clinic.near.sql(
        "select problem from dp.relations where relation_name = %s", relation, user="owner1"
    )
    return str(rows[0][0]) if rows[0][0] is not None else None


# --- the same rows twice ---------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["the same server", "a second name", "without a database"])
def test_a_part_that_is_another_part_again_is_refused(clinic: Shards, place: str) -> None:
    """One row of the shard would be two rows of the relation, and noise for one hides neither."""
    near, far = clinic.near, clinic.far[1]
    server = "shard1"
    if place != "the same server":
        server = "again"
        named = f", dbname '{far.name}'" if place == "a second name" else ""
        near.sql(
            "create server again foreign data wrapper postgres_fdw"
            f" options (host '{near.cluster.socket}', port '5432'{named});"
            f"create user mapping for dp_executor server again options (user '{READER}',"
            " password_required 'false'); grant usage on foreign server again to owner1"
        )
    near.sql(
        "create table twice (v_id int not null, v_who int not null, v_amount bigint)"
        " partition by list (v_who);"
        "create foreign table twice_0 partition of twice for values in (0)"
        " server shard1 options (table_name 'visit');"
        f"create foreign table twice_1 partition of twice for values in (1)"
        f" server {server} options (table_name 'visit');"
        "alter table twice owner to owner1; alter table twice_0 owner to owner1;"
        "alter table twice_1 owner to owner1; drop table visit"
    )
    near.sql(
        "select dp.protect('twice'), dp.declare_shards('twice', written => 'coordinator')",
        user="owner1",
    )
    assert (reason(clinic, "twice") or "").startswith(
        "its parts public.twice_0 and public.twice_1 are one table of another server"
    )
    assert refused(near, "select dp_count(*) from twice")[0] == "PD012"
    # by units, too: one reason less to look at
    near.sql("drop table twice")


def test_a_table_of_two_protected_relations_is_refused_in_both(clinic: Shards) -> None:
    """A join of them would be one of the table with itself, and count as one of two tables."""
    clinic.near.sql(
        "create foreign table also (v_id int not null, v_who int not null) server shard0"
        " options (schema_name 'public', table_name 'visit'); alter table also owner to owner1"
    )
    assert exactly(clinic) == ROWS
    clinic.near.sql("select dp.protect('also')", user="owner1")
    assert reason(clinic) == (
        "public.visit_0 is the same table of another server as public.also, which is protected by itself"
    )
    assert reason(clinic, "also") == (
        "public.also is the same table of another server as public.visit_0, which is protected by itself"
    )
    for relation in ("visit", "also"):
        assert refused(clinic.near, f"select dp_count(*) from {relation}")[0] == "PD012"
    clinic.near.sql("drop foreign table also")
    assert exactly(clinic) == ROWS


def test_a_part_that_leads_back_here_is_refused(clinic: Shards) -> None:
    """It could be another part, or the whole relation."""
    near = clinic.near
    near.sql(f"alter server shard1 options (set dbname '{near.name}')")
    assert reason(clinic) == "server shard1 of its part public.visit_1 leads back to this database"
    assert refused(near, QUESTION)[0] == "PD012"
    near.sql(f"alter server shard1 options (set dbname '{clinic.far[1].name}')")
    assert exactly(clinic) == ROWS


def test_an_option_that_makes_two_parts_one_is_seen_by_the_next_question(clinic: Shards) -> None:
    """The plan was made before, in the same session."""
    with silent(clinic.near, "visit") as session:
        assert session.execute(QUESTION).fetchone() == (ROWS,)
        clinic.near.sql(f"alter server shard1 options (set dbname '{clinic.far[0].name}')")
        with pytest.raises(psycopg.Error) as caught:
            session.execute(QUESTION)
        assert caught.value.sqlstate == "PD012"


@pytest.mark.parametrize(
    ("options", "mended"),
    [
        ("set host '{0},db2.example.com'", "ADD"),
        ("add target_session_attrs 'any', set host '{0},{0}'", "SET"),
        ("add target_session_attrs 'prefer-standby'", "SET"),
        ("add target_session_attrs 'standby'", "SET"),
    ],
)
def test_a_server_that_may_be_a_standby_is_refused(
    clinic: Shards, options: str, mended: str
) -> None:
    """It shows an earlier state than the other parts, whatever is locked here."""
    host = str(clinic.near.cluster.socket)
    clinic.near.sql(f"alter server shard1 options ({options.format(host)})")
    mend = f"ALTER SERVER shard1 OPTIONS ({mended} target_session_attrs 'primary');"
    assert reason(clinic) == (
        "server shard1 may be read from a standby, which is behind what was written; to mend by "
        + mend
    )
    assert refused(clinic.near, QUESTION)[0] == "PD012"
    clinic.near.sql(mend)
    assert reason(clinic) is None
    clinic.near.sql(f"alter server shard1 options (set host '{host}')")
    assert exactly(clinic) == ROWS


# --- around the parent -----------------------------------------------------------------------------


def test_nothing_of_a_part_is_told_by_its_own_name(clinic: Shards) -> None:
    near = clinic.near
    near.sql(
        "create view seen as select * from visit_1; alter view seen owner to owner1;"
        "grant select on seen to alice; grant create on schema public to alice;"
        "create function tell() returns trigger language plpgsql as 'begin return new; end'"
    )
    for sql, state in (
        ("select dp_count(*) from visit_1", "PD012"),
        ("select dp_count(*) from only visit", "PD011"),
        ("select dp_count(*) from seen", "PD012"),
        ("select dp_count(*) from visit tablesample system (50)", "PD011"),
        ("select * from visit_1", "42501"),
        ("copy visit_1 to stdout", "42501"),
        ("copy (select * from visit_1) to stdout", "42501"),
        ("explain (analyze) select * from visit_1", "42501"),
        ("explain select * from visit_1", "42501"),
        ("create table mine as table visit_1", "42501"),
        ("analyze visit_1", None),
        ("begin; lock table visit_1 in access share mode", "42809"),  # no foreign table can be
        ("create trigger t after insert on visit_1 for each row execute function tell()", "42501"),
        ("create table mine (like visit_1); alter table mine inherit visit_1", "42501"),
        ("alter table visit detach partition visit_1", "42501"),
        ("alter server shard1 options (set dbname 'postgres')", "42501"),
        ("create statistics more on v_id, v_who from visit_1", "42501"),
        ("begin; declare c cursor for select * from visit_1", "42501"),
    ):
        with near.connect("alice") as session:
            if state is None:
                session.execute(sql)  # a warning that it is skipped
            else:
                with pytest.raises(psycopg.Error) as caught:
                    session.execute(sql)
                assert caught.value.sqlstate == state, (sql, str(caught.value))
    assert near.sql("select reltuples from pg_class where relname = 'visit_1'") == [(-1,)]


def test_a_part_that_becomes_another_table_is_read_as_declared_or_not_at_all(
    clinic: Shards,
) -> None:
    """Between two questions of a session that has planned the first."""
    clinic.far[1].sql(
        f"create table larger (like visit); grant select on larger to {READER};"
        " insert into larger select i, i, i from generate_series(1, 1000) i"
    )
    left = clinic.far[0].sql("select count(*) from visit")[0][0]
    with silent(clinic.near, "visit") as session:
        assert session.execute(QUESTION).fetchone() == (ROWS,)
        clinic.near.sql("alter foreign table visit_1 options (set table_name 'larger')")
        assert session.execute(QUESTION).fetchone() == (left + 1000,)
        clinic.near.sql("alter foreign table visit_1 options (set table_name 'nothing')")
        with pytest.raises(psycopg.Error) as caught:
            session.execute(QUESTION)
        assert caught.value.sqlstate == "PD052"


def test_triggers_of_a_part_do_not_run_when_it_is_read(clinic: Shards) -> None:
    clinic.near.sql(
        "create function tell() returns trigger language plpgsql as"
        " $$ begin raise exception 'seen'; end $$;"
        "create trigger t before insert or update or delete on visit_1 for each row"
        " execute function tell()"
    )
    assert exactly(clinic) == ROWS


@pytest.mark.parametrize(
    ("opened", "hole"),
    [
        (
            "alter foreign table visit_1 options (add use_remote_estimate 'on')",
            ("shard", "public.visit_1", "that server", "low"),
        ),
        (
            "alter foreign table visit_1 owner to alice",
            ("owner", "public.visit_1", "alice", "medium"),
        ),
        (
            "create extension dblink; grant execute on function dblink(text) to alice",
            ("extension", "dblink", "alice", "high"),
        ),
        ("create extension dblink", ("extension", "dblink", "PUBLIC", "high")),
        (
            "create extension file_fdw; grant usage on foreign data wrapper file_fdw to alice",
            ("foreign-data wrapper", "file_fdw", "alice", "high"),
        ),
        (
            "grant usage on foreign server shard1 to alice",
            ("foreign server", "shard1", "alice", "high"),
        ),
        (
            "create user mapping for public server shard1 options (user 'x')",
            ("user mapping", "shard1", "PUBLIC", "critical"),
        ),
    ],
)
def test_lockdown_names_ways_to_a_shard_and_closes_them(
    clinic: Shards, opened: str, hole: tuple[str, ...]
) -> None:
    listed = "select hole, object, who, severity, statement from dp.check_lockdown()"
    before = {row[:4] for row in clinic.near.sql(listed)}
    clinic.near.sql(opened)
    found = {row[:4]: row[4] for row in clinic.near.sql(listed) if row[:4] not in before}
    assert hole in found, found
    clinic.near.sql(found[hole])
    assert hole not in {row[:4] for row in clinic.near.sql(listed)}


# --- rows that lie ---------------------------------------------------------------------------------


def test_rows_in_a_wrong_part_are_counted_by_what_they_are(clinic: Shards) -> None:
    """Bounds, CHECK and NOT NULL of a part are nobody's word: no statement leaves a row out for them."""
    clinic.near.sql("alter foreign table visit_1 add check (v_amount > 0), add check (v_who < 100)")
    clinic.far[1].sql("alter table visit alter v_who drop not null")
    # all of these belong elsewhere, or nowhere
    clinic.far[1].sql("insert into visit select v_id, null, -5 from generate_series(1, 30) v_id")
    for constraint_exclusion in ("partition", "on", "off"):
        for pruning in ("on", "off"):
            with silent(clinic.near, "visit") as session:
                session.execute(
                    f"set constraint_exclusion = {constraint_exclusion};"
                    f" set enable_partition_pruning = {pruning}"
                )
                found = [
                    session.execute(f"{QUESTION} where {condition}").fetchone()
                    for condition in ("true", "v_amount = -5", "v_who is null", "v_amount < 0")
                ]
                assert found == [(ROWS + 30,), (30,), (30,), (30,)], (constraint_exclusion, pruning)
                found = [
                    session.execute(f"{QUESTION} where v_id = {key}").fetchone()
                    for key in range(1, 6)
                ]
                assert found == [(2,)] * 5, (constraint_exclusion, pruning)
