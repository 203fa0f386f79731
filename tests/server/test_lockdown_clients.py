"""What clients read of the catalogue stays readable after dp.lockdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.conftest import declare
from tests.server.locking import CODE, MORE, run


@pytest.fixture(scope="module")
def locked(server: Any) -> Iterator[Any]:
    shop = declare(server.create_database())
    shop.sql(MORE)
    shop.sql(CODE, user="alice")
    shop.sql("vacuum analyze")
    shop.sql("select * from dp.lockdown()")
    yield shop
    server.drop_database(shop)


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
    assert done.stdout.count("\t2024-01-01\tt") >= 20


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
