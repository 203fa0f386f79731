"""TPC-H spread over clusters of their own: loaded, declared, and removed in the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.data import grant
from bench.wire import Wire
from dpsql.client.cluster import Cluster
from dpsql.client.layout import Layout, own

Connection = psycopg.Connection[Any]

_TPCH = Path(__file__).resolve().parent.parent / "demo" / "tpch"
#: Relations on the shards, by the column whose hash tells the shard.
SPREAD = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
_LOCAL = ("region", "nation", "part", "supplier", "partsupp", "customer")


@dataclass(frozen=True)
class Shards:
    """The coordinator's database, its shards, and the wires to them."""

    dsn: str
    servers: tuple[str, ...]
    wires: tuple[Wire, ...]

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Let new sessions reach the shards over the wires."""
        hosts = [conninfo_to_dict(server)["host"] for server in self.servers]
        self._lead([str(wire.folder) for wire in self.wires])
        try:
            yield
        finally:
            self._lead(hosts)

    def _lead(self, hosts: Sequence[Any]) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for n, host in enumerate(hosts):
                alter = f"alter server shard{n} options (set host {{}})"
                connection.execute(sql.SQL(alter).format(sql.Literal(host)))


@contextmanager
def spread(
    dsn: str, single: str, number: int, *, database: str = "bench_scale"
) -> Iterator[Shards]:
    """Spread a TPC-H database over clusters of their own; remove all of it in the end."""
    layout = Layout.discover()
    folder = Path(tempfile.mkdtemp(prefix="dpsql-scale-", dir="/tmp"))
    folder.chmod(0o755)
    where = make_conninfo(dsn, dbname=database)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        servers, wires = [], []
        for n in range(number):
            cluster = _cluster(layout, folder / f"shard{n}")
            stack.callback(cluster.stop, "immediate")
            cluster.create(sync=False)
            cluster.start()
            servers.append(cluster.conninfo())
            listening = folder / f"wire{n}"
            own(listening)  # whoever reaches it is a superuser there
            wire = Wire(cluster.socket, listening)
            stack.callback(wire.close)
            wires.append(wire)
        stack.callback(_drop, dsn, database)
        _drop(dsn, database)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"create database {database}")
        _load(single, where, servers)
        _declare(where)
        yield Shards(where, tuple(servers), tuple(wires))


def _cluster(layout: Layout, folder: Path) -> Cluster:
    """Describe a shard: an ordinary server, nothing of dpsql in it; it is made anew if lost."""
    return Cluster(
        bin=layout.bin,
        data=folder / "data",
        socket=folder / "run",
        log=folder / "log" / "postgresql.log",
        settings={
            "shared_preload_libraries": "''",
            "shared_buffers": "512MB",
            "work_mem": "64MB",
            "max_wal_size": "4GB",
            "fsync": "off",
        },
    )


def _drop(dsn: str, database: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"drop database if exists {database} with (force)")


def _load(single: str, where: str, servers: Sequence[str]) -> None:
    """Copy the rows of one server to where they belong."""
    tables = (_TPCH / "tables.sql").read_text()
    with (
        psycopg.connect(single, autocommit=True) as source,
        psycopg.connect(where, autocommit=True) as target,
    ):
        target.execute(tables)
        for table in _LOCAL:
            _copy(source, f"select * from {table}", target, table)
        for statement_ in (_TPCH / "keys.sql").read_text().split(";"):
            if not any(name in statement_ for name in ("orders", "lineitem")):
                target.execute(statement_)
        source.execute("create temp table place (k bigint) partition by hash (k)")
        target.execute("create extension postgres_fdw; create extension dpsql cascade")
        for table, key in SPREAD.items():
            target.execute(f"alter table {table} rename to {table}_like")
            target.execute(f"create table {table} (like {table}_like) partition by hash ({key})")
            target.execute(f"drop table {table}_like")
        for n, server in enumerate(servers):
            with psycopg.connect(server, autocommit=True) as shard:
                _fill(source, shard, tables, n, len(servers))
            _attach(target, server, n, len(servers))
        target.execute("vacuum analyze")
        target.execute(f"analyze {', '.join(SPREAD)}")


def _fill(source: Connection, shard: Connection, tables: str, n: int, number: int) -> None:
    """Make one shard: plain tables with the rows whose hash leads here, and their keys."""
    for text in tables.split(";"):
        if any(f"create table {table} " in text for table in SPREAD):
            shard.execute(text)
    for table, key in SPREAD.items():
        here = f"satisfies_hash_partition('pg_temp.place'::regclass, {number}, {n}, {key})"
        _copy(source, f"select * from {table} where {here}", shard, table)
    shard.execute("alter table orders add primary key (o_orderkey)")
    shard.execute("alter table lineitem add primary key (l_orderkey, l_linenumber)")
    shard.execute("vacuum analyze")


def _attach(target: Connection, server: str, n: int, number: int) -> None:
    """Make the shard's tables partitions of the coordinator's."""
    given = conninfo_to_dict(server)
    create = (
        f"create server shard{n} foreign data wrapper postgres_fdw options (host {{}}, port '5432',"
        " dbname {}, async_capable 'true', fetch_size '10000')"
    )
    target.execute(sql.SQL(create).format(sql.Literal(given["host"]), sql.Literal(given["dbname"])))
    for role in ("dp_executor", "postgres"):  # who answers, and who loads
        target.execute(
            f"create user mapping for {role} server shard{n}"
            " options (user 'postgres', password_required 'false')"
        )
    for table in SPREAD:
        target.execute(
            f"create foreign table {table}_{n} partition of {table}"
            f" for values with (modulus {number}, remainder {n})"
            f" server shard{n} options (table_name '{table}')"
        )


def _copy(source: Connection, query: str, target: Connection, table: str) -> None:
    reading = f"copy ({query}) to stdout (format binary)"
    writing = f"copy {table} from stdin (format binary)"
    with source.cursor().copy(reading) as rows, target.cursor().copy(writing) as sink:
        for block in rows:
            sink.write(block)


def _declare(where: str) -> None:
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute((_TPCH / "protect.sql").read_text())
        for table in SPREAD:
            call = "select dp.declare_shards(%s::regclass, written => 'coordinator')"
            connection.execute(call, (table,))
    declare_domains(where)


def declare_domains(where: str) -> None:
    """Declare what the questions need, and let alice ask them."""
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("select dp.set_domain('orders', 'o_orderstatus', array['F', 'O', 'P'])")
    grant(where)
