"""The databases that benchmarks run on: made when they are missing."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from bench.queries import R6

_ROOT = Path(__file__).resolve().parent.parent
_TPCH = _ROOT / "demo" / "tpch"


def superuser() -> str:
    """Return a connection string for the private cluster's superuser."""
    if found := os.environ.get("DPSQL_DSN"):
        return found
    command = ["make", "-s", "dsn"]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def grant(dsn: str) -> None:
    """Let alice ask as often as the benchmark wants."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select dp.grant_budget('alice', epsilon => 100000, delta => 0.001)")
        connection.execute(
            "select dp.set_root_cap(format('%I.%I', schema_name, relation_name)::regclass,"
            " null, 0.001) from dp.relations where kind = 'protected'"
        )


def prepare_r6(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        if connection.execute("select to_regclass('r6')").fetchone() == (None,):
            connection.execute(R6)
            connection.execute("analyze r6")
        connection.execute(
            "select dp.protect('r6') where not exists"
            " (select from dp.relations where relation_name = 'r6')"
        )


def prepare_tpch(dsn: str, database: str, scale: float) -> None:
    """Make the database unless it is there, complete; install the extension that was built last."""
    where = make_conninfo(dsn, dbname=database)
    with psycopg.connect(dsn, autocommit=True) as connection:
        sql = "select shobj_description(oid, 'pg_database') from pg_database where datname = %s"
        if connection.execute(sql, [database]).fetchone() != ("complete",):
            connection.execute(f'drop database if exists "{database}" with (force)')
            connection.execute(f'create database "{database}"')
            _load_tpch(where, scale)
            connection.execute(f"comment on database \"{database}\" is 'complete'")
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("drop extension if exists dpsql cascade")
        connection.execute("create extension dpsql cascade")
        connection.execute((_TPCH / "protect.sql").read_text())


def _load_tpch(dsn: str, scale: float) -> None:
    from dpsql.client.tpch import generate

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((_TPCH / "tables.sql").read_text())
        with tempfile.TemporaryDirectory() as folder:
            for table, path in generate(Path(folder), scale):
                copy = f"copy {table} from stdin (format csv, delimiter '|')"
                with path.open("rb") as file, connection.cursor().copy(copy) as sink:
                    while block := file.read(1 << 20):
                        sink.write(block)
                path.unlink()
        connection.execute((_TPCH / "keys.sql").read_text())
        connection.execute("vacuum analyze")
