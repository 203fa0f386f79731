"""What dp.lockdown closes stays closed, what clients read of the catalogue stays readable, and dp.unlock undoes it."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import psycopg.conninfo
import pytest

from tests.server.conftest import declare

# How many purchases more the second database has: whoever tells the two apart has learnt it.
SECRET = 4321
TABLES = "('client', 'purchase', 'client_pkey', 'purchase_pkey')"
MINE = f"from pg_class where relname in {TABLES} and relnamespace = 'public'::regnamespace"
MORE = """
create table public.ticket (t_id serial primary key, t_text text);
create extension pg_stat_statements;
create extension pageinspect;
create view public.amounts as select count(*) from public.purchase;
create materialized view public.kept as select count(*) from public.purchase;
grant select on public.amounts, public.kept to public;
grant select on public.purchase to alice;
grant usage on sequence public.ticket_t_id_seq to public;
select dp.protect('public.ticket');
create schema mal authorization alice;
grant execute on function public.pg_stat_statements_reset(oid, oid, bigint) to mallory;
"""

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
    "select pg_notification_queue_usage()",
    "select * from pg_stat_wal",
    "select * from pg_replication_slots",
    "select * from pg_largeobject_metadata",
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
    "select buffers_alloc, buffers_checkpoint from pg_stat_bgwriter",
    "select pg_stat_get_db_tuples_inserted((select oid from pg_database where datname = current_database()))",
]

CODE = """
create table mal.seen (a real);
create table mal.one as select 1::real as a;
create table mal.ruled (a real);
create rule more as on insert to mal.ruled do also
    insert into mal.seen select c.reltuples from pg_class as c where c.oid = 'public.purchase'::regclass;
create table mal.guarded as select 1 as a;
alter table mal.guarded enable row level security, force row level security;
create policy large on mal.guarded using ((select reltuples from pg_class where oid = 'public.purchase'::regclass) > 3000);
create view mal.of_alice as select relname, reltuples from pg_class where oid = 'public.purchase'::regclass;
create function mal.of_alice() returns real language sql as
    $$ select reltuples from pg_class where oid = 'public.purchase'::regclass $$;
create function mal.asks_of_alice() returns bigint language plpgsql as
    $$ begin return pg_relation_size('public.purchase') + (select relpages from pg_class where oid = 'public.purchase'::regclass); end $$;
"""


def told(database: Any, statement: str) -> str:
    """What alice is told: the rows, or the state of the refusal."""
    with database.connect(user="alice") as alice:
        try:
            cursor = alice.execute(statement)
            while cursor.nextset():
                pass
            return str(cursor.fetchall() if cursor.description else "done")
        except psycopg.Error as error:
            return str(error.sqlstate)


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
            "refresh materialized view public.kept"
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


# What clients send while they look around, most of it word for word.
CLIENTS = {
    "JDBC, indexes": """
        SELECT ct.relname AS TABLE_NAME, i.indisunique, ci.relname AS INDEX_NAME, ci.reltuples AS CARDINALITY, ci.relpages AS PAGES,
               pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS FILTER_CONDITION
          FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
          JOIN pg_catalog.pg_index i ON (ct.oid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
         WHERE ct.relname = 'purchase'""",
    "DBeaver, tables": """
        SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,
               pg_catalog.pg_get_partkeydef(c.oid) as partition_key
          FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind not in ('i', 'I', 'c')""",
    "Metabase, tables": """
        SELECT n.nspname AS schema, c.relname AS name, CASE WHEN c.reltuples < 0 THEN NULL ELSE CAST(c.reltuples AS BIGINT) END
               AS estimated_row_count, c.relkind, d.description
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON c.relnamespace = n.oid
          LEFT JOIN pg_catalog.pg_description d ON c.oid = d.objoid AND d.objsubid = 0
         WHERE n.nspname = 'public' AND c.relkind in ('r', 'p', 'v', 'f', 'm')""",
    "pgAdmin, table": """
        SELECT rel.oid, rel.relname AS name, rel.reltablespace AS spcoid, pg_catalog.pg_get_userbyid(rel.relowner) AS relowner,
               pg_catalog.array_to_string(rel.relacl::text[], ', ') as acl, rel.relhasindex, rel.relkind, rel.reltuples::bigint AS rows_cnt,
               rel.xmin, rel.tableoid, substring(pg_catalog.array_to_string(rel.reloptions, ',') FROM 'fillfactor=([0-9]*)') AS fillfactor
          FROM pg_catalog.pg_class rel WHERE rel.relkind IN ('r', 's', 't', 'p') AND rel.relnamespace = 'public'::regnamespace""",
    "pgAdmin, statistics": """
        SELECT relname, n_tup_ins, n_live_tup, last_vacuum, pg_catalog.pg_size_pretty(pg_catalog.pg_relation_size(relid)) AS size
          FROM pg_catalog.pg_stat_all_tables WHERE schemaname = 'public' ORDER BY relname""",
    "pgAdmin, dashboard": """
        SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity), (SELECT sum(xact_commit) FROM pg_catalog.pg_stat_database)""",
    "Superset, sizes": """
        SELECT table_name, pg_catalog.pg_total_relation_size(format('%I.%I', table_schema, table_name)::regclass)
          FROM information_schema.tables WHERE table_schema = 'dpv'""",
    "Grafana, columns": """
        SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
         WHERE table_schema = 'dpv'""",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_clients_read_of_the_catalogue_stays_readable(locked: Any, client: str) -> None:
    assert locked.sql(CLIENTS[client], user="alice")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PGOPTIONS": "", "LC_ALL": "C.UTF-8"}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)


META = r"\d \d+ \dt+ \di+ \dm+ \dv+ \ds+ \df \df+ \l \l+ \dn+ \du+ \dp \db+ \dT+ \dx \dd \dRp \dFp \do \dC \dy \det"


@pytest.mark.parametrize(
    "command", [*META.split(), r"\d+ public.purchase", r"\d public.purchase_pkey", r"\dv+ dpv.*"]
)
def test_psql_describes(locked: Any, server: Any, command: str) -> None:
    psql = str(server.cluster.bin / "psql")
    done = run(psql, "-X", "-v", "ON_ERROR_STOP=1", "-d", locked.conninfo("alice"), "-c", command)
    assert (done.returncode, done.stderr) == (0, "")
    if "purchase" in command or command in (r"\dt+", r"\d"):
        assert "purchase" in done.stdout
    assert " kB" not in done.stdout
    assert " bytes" not in done.stdout


def test_sqlalchemy_reflects(locked: Any) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(locked.conninfo("alice"))
    )
    try:
        inspector = sqlalchemy.inspect(engine)
        assert {"client", "purchase", "region"} <= set(inspector.get_table_names())
        assert "purchase" in inspector.get_view_names(schema="dpv")
        assert inspector.get_pk_constraint("purchase")["constrained_columns"] == ["p_id"]
        metadata = sqlalchemy.MetaData()
        metadata.reflect(engine, schema="public", views=True)
        purchase = metadata.tables["public.purchase"]
        assert {key.column.table.name for key in purchase.foreign_keys} == {"client"}
        metadata.reflect(engine, schema="dpv", views=True)
        assert "dpv.purchase" in metadata.tables
    finally:
        engine.dispose()


def test_the_owner_dumps(locked: Any, server: Any) -> None:
    pg_dump = str(server.cluster.bin / "pg_dump")
    done = run(
        pg_dump, "-d", locked.conninfo("owner1"), "-t", "public.purchase", "-t", "public.client"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\t2024-01-01\tt") >= SECRET


def test_an_analyst_dumps_what_is_his_own(locked: Any, server: Any) -> None:
    done = run(
        str(server.cluster.bin / "pg_dump"),
        "-d",
        locked.conninfo("alice"),
        "-n",
        "mal",
        "-T",
        "mal.guarded",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "CREATE VIEW mal.of_alice" in done.stdout


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


ACLS = """
select 'function', p.oid::regprocedure::text, a::text
  from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where p.pronamespace = 'pg_catalog'::regnamespace
union all
select 'relation', c.oid::regclass::text, a::text from pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
 where c.relkind in ('r', 'v', 'm')
union all
select 'sequence', c.oid::regclass::text, a::text from pg_class c, aclexplode(coalesce(c.relacl, acldefault('s', c.relowner))) a
 where c.relkind = 'S'
union all
select 'column', t.attrelid::regclass || '.' || t.attname, a::text from pg_attribute t, aclexplode(t.attacl) a
union all
select 'schema', n.nspname, a::text from pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
union all
select 'extension', p.oid::regprocedure::text, a::text
  from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where p.pronamespace = 'public'::regnamespace
union all
select 'database', '', a::text from pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
 where d.datname = current_database()
"""


def test_unlock_puts_back_exactly_what_was(shop: Any) -> None:
    shop.sql(MORE)
    shop.sql(
        "grant update (p_amount) on public.purchase to alice; grant create on schema public to public"
    )
    shop.sql("grant select on public.client to alice with grant option")
    before = sorted(shop.sql(ACLS))
    done = dict(shop.sql("select * from dp.lockdown()"))
    assert done["relations"] == 5
    assert done["sequences"] == 1
    assert done["statistics"] > 80
    assert done["sizes"] == 9
    locked = sorted(shop.sql(ACLS))
    assert locked != before
    assert shop.sql("select * from dp.lockdown()") == []
    assert sorted(shop.sql(ACLS)) == locked
    # what comes to be needed later is done by calling it again, and undone with the rest
    shop.sql(
        "grant select on public.region, public.ticket to alice; grant execute on function pg_lock_status() to public"
    )
    before = sorted(
        {*before, *(row for row in shop.sql(ACLS) if row[1] in ("region", "ticket")), *before}
    )
    assert dict(shop.sql("select * from dp.lockdown()")) == {"locks": 1, "relations": 1}
    shop.sql("select * from dp.unlock()")
    assert sorted(shop.sql(ACLS)) == before
    assert shop.sql("select * from dp.unlock()") == []
    assert shop.sql("select count(*) from dp.lockdown_change") == [(0,)]


def test_an_owner_locks_what_he_owns(shop: Any) -> None:
    shop.sql("create table public.other (a int); select dp.protect('public.other')")
    shop.sql("grant select on public.purchase, public.client, public.other to alice, mallory")
    seen: list[Any] = []
    with shop.connect(user="owner1") as owner:
        owner.add_notice_handler(lambda notice: seen.append(notice.message_primary))
        rows = owner.execute(
            "select * from dp.lockdown(array['public.purchase']::regclass[])"
        ).fetchall()
        assert rows == [("relations", 1)]
        assert seen == ["the catalogue is left as it is"]
        assert told(shop, "select * from public.purchase") == "42501"
        assert told(shop, "select 1 from public.client limit 1") == "[(1,)]"
        assert owner.execute("select * from dp.lockdown()").fetchall() == [("relations", 1)]
        assert told(shop, "select 1 from public.client limit 1") == "42501"
        # the application's role is no analyst, and the other table is the superuser's
        assert shop.sql("select 1 from public.purchase limit 1", user="mallory") == [(1,)]
        assert told(shop, "select * from public.other") == "[]"
        shop.sql("select * from dp.lockdown()")
        seen.clear()
        assert owner.execute("select * from dp.unlock()").fetchall() == [("relations", 2)]
        assert len(seen) == 1
        assert seen[0].endswith("changes are left as they are")
    assert told(shop, "select 1 from public.purchase limit 1") == "[(1,)]"
    assert told(shop, "select * from public.other") == "42501"


def test_the_databases_owner_locks_it(shop: Any) -> None:
    shop.sql(f"alter database {shop.name} owner to owner1; grant create on schema public to public")
    assert dict(shop.sql("select * from dp.lockdown()", user="owner1")) == {"shadowing": 2}
    assert told(shop, "create temporary table t (a int)") == "42501"
    assert told(shop, "create table public.t (a int)") == "42501"
    assert dict(shop.sql("select * from dp.unlock()", user="owner1")) == {"shadowing": 2}
    assert told(shop, "create temporary table t (a int)") == "done"
    assert told(shop, "create table public.t (a int)") == "done"


def test_a_dropped_relation_hinders_no_unlock_and_another_of_its_name_gets_nothing(
    shop: Any,
) -> None:
    shop.sql("create table public.other (a int); select dp.protect('public.other')")
    shop.sql("grant select on public.other to alice; select * from dp.lockdown()")
    shop.sql("drop table public.other; create table public.other (a int)")
    shop.sql("select * from dp.unlock()")
    assert told(shop, "select * from public.other") == "42501"
    assert told(shop, "select count(*) > 0 from pg_locks") == "[(True,)]"


def test_what_an_analyst_passed_on_is_taken_with_it(shop: Any) -> None:
    shop.sql("grant select (p_id), select on public.purchase to alice with grant option")
    shop.sql("grant select (p_id), select on public.purchase to mallory", user="alice")
    assert dict(shop.sql("select * from dp.lockdown()"))["relations"] == 4
    assert shop.sql("select 1 from dp.check_lockdown() where object like 'public.purchase%'") == []
    shop.sql("select * from dp.unlock()")
    held = "select has_table_privilege(r, 'public.purchase', p) from unnest(array['alice', 'mallory']) as r, unnest(array['select', 'select with grant option']) as p"
    assert [row[0] for row in shop.sql(held)] == [True, True, True, False]


def test_an_unprotected_relation_is_refused(shop: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        shop.sql("select * from dp.lockdown(array['public.region']::regclass[])")
    assert caught.value.sqlstate == "PD040"
    assert caught.value.diag.message_primary == "relation public.region is not protected"


def test_a_restored_database_is_locked_and_can_unlock_itself(shop: Any, server: Any) -> None:
    shop.sql("grant select on public.purchase to alice; select * from dp.lockdown()")
    bin = server.cluster.bin
    dump = server.folder / "locked.dump"
    done = run(str(bin / "pg_dump"), "-Fc", "-f", str(dump), "-d", shop.conninfo())
    assert (done.returncode, done.stderr) == (0, "")
    copy = type(shop)(server.cluster, shop.name + "_copy")
    shop.sql(f"create database {copy.name} template template0")
    try:
        done = run(str(bin / "pg_restore"), "-d", copy.conninfo(), str(dump))
        assert (done.returncode, done.stderr) == (0, "")
        assert told(copy, "select pg_relation_size('public.purchase')") == "[(None,)]"
        assert told(copy, "select c from pg_class as c") == "42501"
        copy.sql("select * from dp.unlock()")
        assert told(copy, "select pg_relation_size('public.purchase') > 0") == "[(True,)]"
        assert told(copy, "select count(c) > 0 from pg_class as c") == "[(True,)]"
        assert told(copy, "select 1 from public.purchase limit 1") == "[(1,)]"
    finally:
        copy.close()
        server.drop_database(copy)


def test_without_the_library_sizes_are_refused(make_server: Any) -> None:
    shop = declare(make_server(shared_preload_libraries="''").create_database())
    seen: list[Any] = []
    admin = shop.connect()
    admin.add_notice_handler(lambda notice: seen.append(notice.message_primary))
    admin.execute("select * from dp.lockdown()")
    assert seen == [
        "the library dpsql is not loaded at server start: sizes are refused instead of being hidden"
    ]
    for column in ("pg_relation_size(oid)", "reltuples", "pg_stat_get_live_tuples(oid)"):
        assert told(shop, f"select {column} from pg_class where relname = 'purchase'") == "42501"
    assert told(shop, "select count(relname) > 0 from pg_class") == "[(True,)]"
    shop.close()
