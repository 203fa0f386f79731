"""The demo databases: load, protect, and show a session.

``facebook`` and ``tpch`` protect single rows, ``customers`` a customer with all orders.

A database's comment tells what it holds.  It is written last, so a load that was interrupted is
repeated, and a finished one is not.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql

from dpsql._version import __version__
from dpsql.client import tpch
from dpsql.client.cluster import SERVER_ENVIRONMENT, Cluster
from dpsql.client.layout import Layout, SetupError

OWNER = "steward"
ANALYST = "alice"
EDGES = ("edge1", "edge2", "edge3", "edge4", "edge5")
DEFAULT_SCALE_FACTOR = 0.1
NAMES = ("facebook", "tpch", "customers")
CUSTOMERS = "TPC-H with customers as units at scale factor 0.05"

Connection = psycopg.Connection[Any]


class Readable(Protocol):
    """A binary stream."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""
        ...


def load(layout: Layout, cluster: Cluster, scale_factor: float | None = None) -> None:
    """Make the databases unless they are there and current.

    Parameters
    ----------
    scale_factor : float, optional
        TPC-H's; ``None`` keeps what is loaded, and is 0.1 if nothing is.
    """
    script = _prepare(layout, cluster)
    _load_database(layout, cluster, "facebook", "ego-Facebook", script)
    kept = _mark(cluster, "tpch")[0]
    if scale_factor is not None or not kept.startswith("TPC-H"):
        kept = f"TPC-H at scale factor {scale_factor or DEFAULT_SCALE_FACTOR:g}"
    _load_database(layout, cluster, "tpch", kept, script)
    _load_database(layout, cluster, "customers", CUSTOMERS, script)


def load_customers(layout: Layout, cluster: Cluster) -> None:
    """Make the database ``customers`` alone, unless it is there and current."""
    _load_database(layout, cluster, "customers", CUSTOMERS, _prepare(layout, cluster))


def show(layout: Layout, cluster: Cluster) -> None:
    """Print the analyst's session in each database, and how to go on.

    Raises
    ------
    SetupError
        If a statement fails.
    """
    commands = {name: f"psql '{cluster.conninfo(dbname=name, user=ANALYST)}'" for name in NAMES}
    for name, command in commands.items():
        print(f"\n======== {command}\n", flush=True)
        _psql(layout, cluster, name, ANALYST, layout.clone / "demo" / name / "session.sql")
    print("\n======== To go on yourself, as the analyst:\n")
    print("\n".join(commands.values()))
    print(
        "\nAs the owner of the data: the same with user="
        + OWNER
        + ". `make down` stops the server."
    )


def _prepare(layout: Layout, cluster: Cluster) -> str:
    """Make the roles; return the digest of the script that the databases must have."""
    _make_roles(cluster)
    return _script_digest(layout)


def _make_roles(cluster: Cluster) -> None:
    with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
        for role in (OWNER, ANALYST):
            known = connection.execute("select 1 from pg_roles where rolname = %s", [role])
            if known.fetchone() is None:
                connection.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))


def _load_database(layout: Layout, cluster: Cluster, name: str, content: str, script: str) -> None:
    """Bring one database to ``content``, its extension to the installed script."""
    has_content, has_script = _mark(cluster, name)
    if (has_content, has_script) == (content, script):
        return
    if has_content != content:
        print(f"dpsql: loading database {name}: {content}", flush=True)
        _recreate(cluster, name)
        with psycopg.connect(cluster.conninfo(dbname=name)) as connection:
            _fill(layout, connection, name, content)
    with psycopg.connect(cluster.conninfo(dbname=name), autocommit=True) as connection:
        if has_content == content:
            print(f"dpsql: installing the extension anew in {name}, with an empty ledger")
        connection.execute("drop extension if exists dpsql cascade")
        connection.execute("create extension dpsql cascade")
        connection.execute(f"grant dp_owner to {OWNER}")
    with psycopg.connect(cluster.conninfo(dbname=name, user=OWNER)) as connection:
        connection.execute((layout.clone / "demo" / name / "protect.sql").read_bytes())
    with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
        connection.execute(
            sql.SQL("comment on database {} is {}").format(
                sql.Identifier(name), sql.Literal(f"{content} | {script}")
            )
        )


def _mark(cluster: Cluster, name: str) -> tuple[str, str]:
    """Return what the database's comment says it holds: (content, digest of the script)."""
    with psycopg.connect(cluster.conninfo()) as connection:
        row = connection.execute(
            "select shobj_description(oid, 'pg_database') from pg_database where datname = %s",
            [name],
        ).fetchone()
    content, _, script = (row[0] if row and row[0] else "").partition(" | ")
    return content, script


def _recreate(cluster: Cluster, name: str) -> None:
    identifier = sql.Identifier(name)
    with psycopg.connect(cluster.conninfo(), autocommit=True) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(identifier))
        connection.execute(
            sql.SQL("create database {} owner {}").format(identifier, sql.Identifier(OWNER))
        )


def _fill(layout: Layout, connection: Connection, name: str, content: str) -> None:
    """Create and fill the tables as their owner, in one transaction."""
    folder = layout.clone / "demo" / ("facebook" if name == "facebook" else "tpch")
    connection.execute(f"set local role {OWNER}")
    connection.execute((folder / "tables.sql").read_bytes())
    if name == "facebook":
        for table in EDGES:
            with gzip.open(layout.clone / "demo" / "data" / f"{table}.csv.gz") as stream:
                _copy(connection, table, stream)
    else:
        with _scratch(layout) as scratch:
            for table, path in tpch.generate(scratch, float(content.rsplit(" ", 1)[1])):
                with path.open("rb") as stream:
                    _copy(connection, table, stream)
                path.unlink()
    connection.execute((folder / "keys.sql").read_bytes())


def _copy(connection: Connection, table: str, stream: Readable) -> None:
    statement = sql.SQL("copy {} from stdin (format csv, delimiter '|')")
    with (
        connection.cursor() as cursor,
        cursor.copy(statement.format(sql.Identifier(table))) as copy,
    ):
        while block := stream.read(1 << 20):
            copy.write(block)


@contextmanager
def _scratch(layout: Layout) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="load-", dir=layout.home))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _script_digest(layout: Layout) -> str:
    script = layout.home / "build" / f"dpsql--{__version__}.sql"
    return hashlib.sha256(script.read_bytes()).hexdigest()[:16]


def _psql(layout: Layout, cluster: Cluster, database: str, user: str, script: Path) -> None:
    done = subprocess.run(
        [
            layout.bin / "psql",
            *("-X", "-a", "-v", "ON_ERROR_STOP=1", "-P", "pager=off", "-f", script),
            cluster.conninfo(dbname=database, user=user),
        ],
        env=SERVER_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise SetupError(f"a statement of {script} failed; see above")
