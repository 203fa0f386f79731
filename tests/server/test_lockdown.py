"""What dp.lockdown closes stays closed, on every way to ask."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import psycopg
import psycopg.conninfo
import pytest

from tests.server.conftest import declare
from tests.server.locking import CODE, MORE, SECRET, told

TABLES = "('client', 'purchase', 'client_pkey', 'purchase_pkey')"
MINE = f"from pg_class where relname in {TABLES} and relnamespace = 'public'::regnamespace"

# Each tells the two databases apart while nothing is locked.
TELLING = [
    f"select reltuples, relpages, relallvisible {MINE} order by relname",
    f"select * from (select reltuples as r {MINE}) as s order by r",
    f"with c as (select * {MINE}) select sum(reltuples) from c",
    f"select (select c.reltuples + max(d.relpages) from pg_class as d where d.oid = c.oid) from pg_class as c where c.oid in (select oid {MINE}) order by relname",
    f"select l.r from pg_class as c, lateral (select c.reltuples as r) as l where c.oid in (select oid {MINE}) order by relname",
    f"select count(*) {MINE} and reltuples > 3000",
    f"select relname {MINE} order by reltuples > 3000 desc, relname limit 1",
    f"select max(reltuples) over (), rank() over (order by relpages) {MINE} order by 1, 2",
    f"select count(*), reltuples {MINE} group by reltuples having reltuples > 3000 order by 2",
    f"select reltuples {MINE} union select relpages {MINE} order by 1",
    f"select reltuples from pg_class as a join pg_class as b using (reltuples, oid) where oid in (select oid {MINE}) order by 1",
    "select count(*) from pg_class as a natural join (select oid, reltuples from pg_class where reltuples > 3000) as b",
    f"select to_jsonb(c) -> 'reltuples' from (select * {MINE}) as c order by 1",
    f"select array_agg(c.reltuples order by relname) from pg_class as c where c.oid in (select oid {MINE})",
    f"select case when exists (select 1 {MINE} and reltuples > 3000) then 'large' end",
    "select n_live_tup from pg_stat_user_tables where relname = 'purchase' and schemaname = 'public'",
    "select n_live_tup from pg_stat_all_tables where relid = 'public.purchase'::regclass",
    "select pg_stat_get_live_tuples('public.purchase'::regclass)",
    "select * from pg_stat_get_live_tuples('public.purchase'::regclass)",
    "select pg_relation_size('public.purchase')",
    "select pg_relation_size('public.purchase', 'main')",
    "select * from pg_relation_size('public.purchase')",
    "select sum(s) from pg_indexes_size('public.purchase') as s",
    "select pg_table_size('public.purchase'), pg_indexes_size('public.purchase')",
    "select pg_size_pretty(pg_total_relation_size('public.purchase'))",
    "select pg_database_size(current_database()), pg_database_size(oid) from pg_database where datname = current_database()",
    "select count from public.amounts",
    "select count from public.kept",
    "select count(*) from public.purchase",
    "select histogram_bounds::text from pg_stats where tablename = 'purchase' and attname = 'p_id'",
    "explain select * from public.purchase",
    "select last_value from pg_sequences where sequencename = 'ticket_t_id_seq'",
    "with r as (insert into mal.seen select reltuples from pg_class where oid = 'public.purchase'::regclass returning a)"
    " select a from r",
    f"update mal.one set a = reltuples {MINE.replace('where', 'where relname = $$purchase$$ and')} returning a, reltuples",
    "merge into mal.one as o using pg_class as c on c.oid = 'public.purchase'::regclass"
    " when matched and c.reltuples > 3000 then update set a = c.relpages when not matched then insert values (c.reltuples);"
    "select a from mal.one",
    "delete from mal.seen using pg_class as c where c.oid = 'public.purchase'::regclass and c.reltuples > 3000"
    " returning c.reltuples",
    "with recursive c(r, n) as (select reltuples, 1 from pg_class where oid = 'public.purchase'::regclass union all"
    " select c.r + p.reltuples, c.n + 1 from c, pg_class as p where c.n < 3 and p.oid = 'public.purchase'::regclass)"
    " select max(r) from c",
    f"select reltuples, grouping(reltuples), count(*) {MINE} group by rollup (reltuples) order by 1, 2, 3",
    f"select distinct on (reltuples) reltuples, relname {MINE} order by reltuples, relname",
    "select s from generate_series(1, (select reltuples::int / 1000 from pg_class where oid = 'public.purchase'::regclass)) as s",
    "select x from pg_class as c, lateral unnest(array[c.reltuples, c.relpages]) as x where c.oid = 'public.purchase'::regclass",
    "insert into mal.ruled values (1); select max(a) from mal.seen where a > 0",
    "select a from mal.guarded",
    "select avg(reltuples) from mal.of_alice",
    "select mal.of_alice()",
    "select mal.asks_of_alice()",
]

# These are closed, too; whether they tell the two apart depends on what else the server does.
CLOSED = [
    "select c from pg_class as c where relname = 'purchase'",
    "select row_to_json(c) from pg_class as c where relname = 'purchase'",
    "select c::text from pg_class as c where relname = 'purchase'",
    "select count(c) from pg_class as c",
    "copy pg_class (reltuples) to stdout",
    "select reltuples from pg_catalog.pg_class where oid = 'public.purchase'::regclass for share of pg_class",
    "select * from pg_locks",
    "select * from pg_prepared_xacts",
    "select * from pg_prepared_statements",
    "select * from pg_cursors",
    "select pg_current_wal_lsn()",
    "select pg_current_wal_insert_lsn()",
    "select pg_control_checkpoint()",
    "select pg_control_recovery()",
    "select pg_logical_emit_message(false, 'a', 'b')",
    "select pg_logical_emit_message(true, 'a', 'b'::bytea)",
    "select pg_notification_queue_usage()",
    "select * from pg_stat_wal",
    "select * from pg_replication_slots",
    "select * from pg_largeobject_metadata",
    "select count(*) from pg_shdepend where classid = 'pg_largeobject'::regclass",
    "select * from pg_stat_statements",
    "select * from pg_stat_statements_info",
    "select get_raw_page('public.purchase', 0)",
    "select * from pg_statistic",
    "select * from pg_statistic_ext_data",
    "select * from pg_ls_waldir()",
    "select * from pg_ls_tmpdir()",
    "select pg_stat_file('base')",
    "select pg_read_file('postgresql.conf')",
    "select lo_import('/etc/passwd')",
    "copy (select 1) to program 'true'",
    "create temporary table purchase (a int)",
    "create table public.purchases (a int)",
    "create function public.now() returns int language sql as 'select 1'",
    "select * from pg_create_logical_replication_slot('s', 'test_decoding')",
    "explain analyze select * from public.purchase",
    "explain select * from public.amounts",
    "select nextval('public.ticket_t_id_seq')",
    "select * from table_to_xml('public.purchase', true, false, '')",
    "select * from query_to_xml('select reltuples, c from pg_class as c', true, false, '')",
]

# Statistics that are read but tell nothing.
UNKNOWN = [
    "select sum(n_live_tup), sum(n_tup_ins), sum(seq_tup_read), sum(n_mod_since_analyze) from pg_stat_user_tables",
    "select sum(heap_blks_read), sum(heap_blks_hit) from pg_statio_user_tables",
    "select sum(idx_tup_read) from pg_stat_user_indexes",
    "select sum(seq_tup_read), sum(idx_tup_fetch) from pg_stat_xact_user_tables",
    "select sum(tup_returned), sum(temp_bytes), sum(xact_commit), sum(blks_hit) from pg_stat_database",
    "select sum(calls) from pg_stat_user_functions",
    "select buffers_alloc, maxwritten_clean from pg_stat_bgwriter",
    "select pg_stat_get_db_tuples_inserted((select oid from pg_database where datname = current_database()))",
]


@pytest.fixture(scope="module")
def pair(server: Any) -> Iterator[Any]:
    """Two shops of which the second has more purchases, locked down, and what alice was told of each before."""
    shops, before = [], []
    for rows in (0, SECRET):
        shop = declare(server.create_database())
        shop.sql(MORE)
        shop.sql(CODE, user="alice")
        shop.sql(
            f"insert into public.purchase select 10000 + i, 1 + i % 200, i, '2024-01-01', true from generate_series(1, {rows}) i;"
            f"insert into public.ticket (t_text) select 'x' from generate_series(1, 10 + {rows}) i;"
            "refresh materialized view public.kept; select pg_stat_force_next_flush()"
        )
        shop.sql("vacuum analyze")
        before.append({statement: told(shop, statement) for statement in TELLING})
        shop.sql("select * from dp.lockdown(); truncate mal.seen; update mal.one set a = 1")
        shops.append(shop)
    yield shops, before
    for shop in shops:
        server.drop_database(shop)


@pytest.fixture(scope="module")
def locked(pair: Any) -> Any:
    return pair[0][1]


@pytest.mark.parametrize("statement", TELLING)
def test_what_told_the_number_of_rows_tells_nothing(pair: Any, statement: str) -> None:
    shops, (fewer, more) = pair
    assert fewer[statement] != more[statement], "the test asks for nothing"
    after = [told(shop, statement) for shop in shops]
    assert after[0] == after[1]


@pytest.mark.parametrize("statement", CLOSED)
def test_what_could_tell_is_refused(locked: Any, statement: str) -> None:
    if statement.startswith("select pg_control_checkpoint"):
        statement = "select * from pg_control_checkpoint()"
    assert told(locked, statement) == "42501"


@pytest.mark.parametrize("statement", UNKNOWN)
def test_statistics_read_as_unknown(locked: Any, statement: str) -> None:
    with locked.connect(user="alice") as alice:
        rows = alice.execute(statement).fetchall()
    assert {value for row in rows for value in row} <= {None}


def test_a_plan_of_somebody_else_is_checked_again(locked: Any) -> None:
    """A statement that its owner planned reads the number; run by the analyst it is refused, not answered."""
    admin = locked.connect()
    admin.execute("prepare size as select pg_relation_size('public.purchase')")
    admin.execute(
        "prepare rows as select reltuples from pg_class where oid = 'public.purchase'::regclass"
    )
    admin.execute("set plan_cache_mode = force_generic_plan")
    for name in ("size", "rows"):
        assert admin.execute(f"execute {name}").fetchone()[0] > SECRET
        admin.execute("set role alice")
        try:
            assert admin.execute(f"execute {name}").fetchone()[0] in (None, -1)
        except psycopg.errors.InsufficientPrivilege:
            pass
        finally:
            admin.execute("reset role")


def test_a_prepared_statement_is_masked_each_time_and_for_each_role(locked: Any) -> None:
    with locked.connect() as session:
        texts = (
            "select reltuples from pg_class where oid = %s::text::regclass",
            "select pg_relation_size(%s::text::regclass)",
        )
        for role, expected in (("alice", (-1, None)), ("owner1", None), ("alice", (-1, None))):
            session.execute(f"set role {role}")
            for place, text in enumerate(texts):
                for _ in range(7):
                    (found,) = session.execute(text, ["public.purchase"], prepare=True).fetchone()
                    if expected:
                        assert found == expected[place]
                    else:
                        assert found > SECRET
                session.execute("deallocate all")
                session._prepared.clear()
            session.execute("reset role")


def test_a_call_without_a_statement_is_refused(locked: Any) -> None:
    """A function that is called where no plan is made meets the privilege: a column's default and a CHECK."""
    with locked.connect(user="alice") as alice:
        alice.execute(
            "create table mal.caught (a int, size bigint default pg_relation_size('public.purchase'),"
            " check (pg_relation_size('public.purchase') > a))"
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            alice.execute("insert into mal.caught (a) values (1)")
        alice.execute("drop table mal.caught")


def called(database: Any, user: str, function: int, argument: bytes) -> bytes:
    """What the server says to a call by the protocol's message, without any SQL."""
    where = psycopg.conninfo.conninfo_to_dict(database.conninfo(user))
    names = b"user\0%s\0database\0%s\0\0" % (user.encode(), database.name.encode())
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(f"{where['host']}/.s.PGSQL.{where['port']}")
        client.sendall(struct.pack("!ii", 8 + len(names), 196608) + names)
        arguments = struct.pack("!hhhi", 1, 0, 1, len(argument)) + argument + struct.pack("!h", 0)
        client.sendall(b"F" + struct.pack("!ii", 8 + len(arguments), function) + arguments)
        client.sendall(b"X" + struct.pack("!i", 4))
        said = b""
        while part := client.recv(65536):
            said += part
    return said


def test_a_call_by_the_protocol_is_refused(locked: Any) -> None:
    for name in ("pg_total_relation_size(regclass)", "pg_table_size(regclass)"):
        ((function, size),) = locked.sql(
            f"select '{name}'::regprocedure::oid, {name.replace('regclass', chr(39) + 'public.purchase' + chr(39))}::text"
        )
        assert size.encode() in called(locked, "postgres", function, b"public.purchase")
        said = called(locked, "alice", function, b"public.purchase")
        assert b"C42501\0" in said
        assert size.encode() not in said


def test_views_of_others_keep_what_their_owner_may_read(locked: Any) -> None:
    """The mask is the reader's: a view reads pg_class as its owner, but calls functions as its reader."""
    locked.sql(
        "create view public.rows as select reltuples, pg_relation_size(oid) as size from pg_class"
        " where oid = 'public.region'::regclass; grant select on public.rows to alice"
    )
    assert locked.sql("select * from public.rows", user="alice") == [(4.0, None)]
    assert locked.sql("select size > 0 from public.rows") == [(True,)]
    locked.sql("drop view public.rows")


def test_administrators_and_questions_see_what_they_saw(pair: Any) -> None:
    locked = pair[0][1]
    for role in ("postgres", "owner1"):
        rows = locked.sql(
            "select reltuples, pg_relation_size(oid) > 0 from pg_class where oid = 'public.purchase'::regclass",
            user=role,
        )
        assert rows == [(2000 + SECRET, True)]
        live = (
            "select n_live_tup from pg_stat_user_tables where relid = 'public.purchase'::regclass"
        )
        assert locked.sql(live, user=role) == [(2000 + SECRET,)]
    with locked.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 10; set dp.delta = 1e-6")
        # the noise is above 100 with a probability below exp(-1000)
        (answer,) = alice.execute("select dp_count(*) from public.purchase").fetchone()  # type: ignore[misc]
        assert abs(answer - 2000 - SECRET) < 100
        joined = "select dp_count(*) from public.purchase join public.client on c_id = p_client"
        for method in ("residual", "elastic"):
            alice.execute(f"set dp.method = {method}")
            assert alice.execute(joined).fetchone() is not None
        assert alice.execute("select * from dp.progress").fetchall() == []
        assert alice.execute(
            "select * from dp.explain('select dp_count(*) from public.purchase')"
        ).fetchall()


def test_nothing_is_left_that_lockdown_could_close(locked: Any) -> None:
    left = locked.sql("select hole, object, who, statement from dp.check_lockdown()")
    assert [row for row in left if "dp.lockdown" in row[3]] == []
    here = {
        "sequence",
        "relation privilege",
        "column privilege",
        "view",
        "materialized view",
        "shadowing",
    }
    assert [row for row in left if row[0] in here] == []
