"""The databases that benchmarks run on: made when they are missing."""

from __future__ import annotations

import gzip
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from bench.queries import R6

_ROOT = Path(__file__).resolve().parent.parent
_TPCH = _ROOT / "demo" / "tpch"
_NETWORK = _ROOT / "demo" / "facebook"

_FOREIGN_KEYS = {
    "nation": ("n_regionkey",),
    "supplier": ("s_nationkey",),
    "partsupp": ("ps_suppkey",),
    "customer": ("c_nationkey",),
    "orders": ("o_custkey",),
    "lineitem": ("l_partkey, l_suppkey", "l_suppkey"),
}


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


def prepare_tpch(dsn: str, database: str, scale: float, *, indexed: bool = False) -> None:
    """Make the database unless it is there, complete; install the extension that was built last.

    ``indexed``: with an index for every foreign key, as random walks want them.
    """
    where = make_conninfo(dsn, dbname=database)
    make(dsn, database, lambda: load_tpch(where, scale, indexed=indexed))
    install(where, (_TPCH / "protect.sql").read_text())


#: Names of privacy units in TPC-H.
UNITS = {"customer": "c_custkey", "supplier": "s_suppkey", "orders": "o_orderkey"}


def prepare_units(dsn: str, database: str, scale: float, units: Sequence[str]) -> None:
    """Make TPC-H with some kinds of privacy units; what does not belong to one is public."""
    where = make_conninfo(dsn, dbname=database)
    make(dsn, database, lambda: load_tpch(where, scale, indexed=False))
    protect = "".join(
        f"select dp.protect('{unit}', privacy_unit => '{UNITS[unit]}', delta => 0.001);"
        for unit in units
    )
    install(
        where,
        f"{protect}"
        "select dp.declare_public(c.oid) from pg_class c"
        " where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and not exists"
        " (select from dp.relations r where r.relation_name = c.relname);"
        "select dp.set_domain('lineitem', 'l_returnflag', array['A', 'N', 'R']),"
        " dp.set_domain('lineitem', 'l_linestatus', array['F', 'O']);"
        "select dp.grant_budget('alice', epsilon => 1000000, delta => 0.001)",
    )


def prepare_network(dsn: str) -> str:
    """Make the ego-network with its triangles, every join column indexed; return where it is."""
    database = "bench_walks_network"
    where = make_conninfo(dsn, dbname=database)
    make(dsn, database, lambda: _load_network(where))
    install(
        where,
        "select dp.protect(format('edge%s', i)::regclass) from generate_series(1, 5) as i;"
        "select dp.protect('r6')",
    )
    return where


def make(dsn: str, database: str, load: Callable[[], None]) -> None:
    """Create and fill a database, or leave it alone when it is complete."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        sql = "select shobj_description(oid, 'pg_database') from pg_database where datname = %s"
        if connection.execute(sql, [database]).fetchone() != ("complete",):
            connection.execute(f'drop database if exists "{database}" with (force)')
            connection.execute(f'create database "{database}"')
            load()
            connection.execute(f"comment on database \"{database}\" is 'complete'")


def install(where: str, declarations: str) -> None:
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("drop extension if exists dpsql cascade")
        connection.execute("create extension dpsql cascade")
        connection.execute(declarations)


def _load_network(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((_NETWORK / "tables.sql").read_text())
        for i in range(1, 6):
            copy = f"copy edge{i} from stdin (format csv, delimiter '|')"
            path = _ROOT / "demo" / "data" / f"edge{i}.csv.gz"
            with gzip.open(path) as file, connection.cursor().copy(copy) as sink:
                while block := file.read(1 << 20):
                    sink.write(block)
        connection.execute((_NETWORK / "keys.sql").read_text())
        connection.execute(R6)
        for columns in ("a, b", "b, c", "c, a"):
            connection.execute(f"create index on r6 ({columns})")
        connection.execute("vacuum analyze")


def load_tpch(dsn: str, scale: float, *, indexed: bool) -> None:
    """Generate TPC-H into a new database, with its keys and current planner statistics."""
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
        if indexed:
            for table, columns in _FOREIGN_KEYS.items():
                for column in columns:
                    connection.execute(f"create index on {table} ({column})")
        connection.execute("vacuum analyze")
