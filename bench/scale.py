"""One server against shards: the same private counts, and what travels between servers.

``python -m bench.scale [--scale 0.1,1] [--shards 3] [--rounds 3] [--queries Q1,status]``, on the
cluster that ``make up`` started.  Beside it as many clusters without dpsql are made, and removed
in the end; ``orders`` and ``lineitem`` are spread over them by the hash of their order key, all
else stays on the coordinator.  Prints a table and, last, one JSON line.

*ms* and *single_ms* are medians of answers that are computed again, asked in turn; rows and bytes
are counted on the wire in a run that is not timed, *plain_rows* those of statements that aggregate
nothing.  *groups* are those that the shards' part of the answer's join has, *base_rows* the rows
that they hold of its relations; more groups than those may be needed for the sensitivity.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.data import grant, prepare_tpch, superuser
from bench.queries import TPCH, statement
from bench.wire import Wire
from dpsql.client.cluster import Cluster
from dpsql.client.layout import Layout

Row = dict[str, Any]
Connection = psycopg.Connection[Any]

_TPCH = Path(__file__).resolve().parent.parent / "demo" / "tpch"
_DATABASE = "bench_scale"
#: Relations on the shards, by the column whose hash tells the shard.
SPREAD = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
_LOCAL = ("region", "nation", "part", "supplier", "partsupp", "customer")
_BOTH = "orders join lineitem on l_orderkey = o_orderkey"

_ONE_KEY = "select o_orderstatus, {} from orders group by o_orderstatus"
_JOIN_KEY = f"select o_orderstatus, {{}} from {_BOTH} group by o_orderstatus"


@dataclass(frozen=True)
class Asked:
    """A statement, with ``{}`` for its aggregate, and what is grouped of what the shards hold."""

    text: str
    eliminated: str
    relations: tuple[str, ...]

    def written(self, aggregate: str) -> str:
        """Write the statement."""
        return self.text.format(aggregate)


ASKED = {
    "Q1": Asked(
        statement(TPCH["Q1"], "{}"),
        f"select distinct o_custkey, l_suppkey from {_BOTH}",
        ("orders", "lineitem"),
    ),
    "Q2": Asked(
        statement(TPCH["Q2"], "{}"),
        f"select distinct l_partkey, l_suppkey from {_BOTH}",
        ("orders", "lineitem"),
    ),
    "Q3": Asked(
        statement(TPCH["Q3"], "{}"),
        f"select distinct o_custkey, l_suppkey from {_BOTH}",
        ("orders", "lineitem"),
    ),
    "status": Asked(_ONE_KEY, "select distinct o_orderstatus from orders", ("orders",)),
    "joined_status": Asked(
        _JOIN_KEY, f"select distinct o_orderstatus from {_BOTH}", ("orders", "lineitem")
    ),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="0.1,1", help="TPC-H scale factors, with commas")
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", default=",".join(ASKED))
    parser.add_argument("--show", action="store_true", help="what is asked on the first shard")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made is removed
    dsn = superuser()
    rows: list[Row] = []
    for scale in arguments.scale.split(","):
        single = f"bench_tpch_sf{scale.replace('.', '_')}"
        prepare_tpch(dsn, single, float(scale))
        one = make_conninfo(dsn, dbname=single)
        _domains(one)
        with spread(dsn, one, arguments.shards) as shards:
            for name in arguments.queries.split(","):
                row = _measure(name, f"tpch sf {scale}", one, shards, arguments.rounds)
                print(_shown(row), flush=True)
                if arguments.show:
                    print(*(f"    {text}" for text in shards.wires[0].statements), sep="\n")
                rows.append(row)
    print(json.dumps({"bench": "scale", "rows": rows}))


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
def spread(dsn: str, single: str, number: int) -> Iterator[Shards]:
    """Spread a TPC-H database over clusters of their own; remove all of it in the end."""
    layout = Layout.discover()
    folder = Path(tempfile.mkdtemp(prefix="dpsql-scale-", dir="/tmp"))
    folder.chmod(0o755)
    where = make_conninfo(dsn, dbname=_DATABASE)
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
            listening.mkdir()
            wire = Wire(cluster.socket, listening)
            stack.callback(wire.close)
            wires.append(wire)
        stack.callback(_drop, dsn)
        _drop(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"create database {_DATABASE}")
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


def _drop(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"drop database if exists {_DATABASE} with (force)")


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
        target.execute("create extension postgres_fdw")
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
    target.execute(
        f"create user mapping for public server shard{n}"
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
        connection.execute("create extension dpsql cascade")
        connection.execute((_TPCH / "protect.sql").read_text())
    _domains(where)


def _domains(where: str) -> None:
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("select dp.set_domain('orders', 'o_orderstatus', array['F', 'O', 'P'])")
    grant(where)


def _measure(name: str, data: str, one: str, shards: Shards, rounds: int) -> Row:
    """Ask one server and the shards in turn; then count what travels."""
    asked = ASKED[name]
    times: dict[str, list[float]] = {one: [], shards.dsn: []}
    with ExitStack() as stack:
        sessions = {dsn: stack.enter_context(_alice(dsn)) for dsn in times}
        for number in range(rounds + 1):
            for dsn, session in sessions.items():
                start = time.perf_counter()
                session.execute(asked.written("dp_count(*)")).fetchall()
                if number:  # the first round opens connections to the shards
                    times[dsn].append((time.perf_counter() - start) * 1e3)
    with shards.counted(), _alice(shards.dsn) as session:
        for wire in shards.wires:
            wire.reset()
        session.execute(asked.written("dp_count(*)")).fetchall()
        shipped = sum(wire.rows for wire in shards.wires)
        received = sum(wire.bytes for wire in shards.wires)
        plain = sum(wire.plain for wire in shards.wires)
    return {
        "query": name,
        "data": data,
        "shards": len(shards.servers),
        "ms": round(statistics.median(times[shards.dsn]), 1),
        "single_ms": round(statistics.median(times[one]), 1),
        "rows_shipped": shipped,
        "bytes_shipped": received,
        "plain_rows": plain,
        "groups": _total(shards, [f"({asked.eliminated}) as g"]),
        "base_rows": _total(shards, asked.relations),
    }


@contextmanager
def _alice(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, user="alice", autocommit=True) as connection:
        connection.execute("set dp.fresh = on; set dp.statistics = live")
        yield connection


def _total(shards: Shards, sources: Sequence[str]) -> int:
    """Count rows of some sources on all shards."""
    found = 0
    for server in shards.servers:
        with psycopg.connect(server, autocommit=True) as shard:
            for source in sources:
                row = shard.execute(f"select count(*) from {source}").fetchone()
                found += row[0] if row else 0
    return found


def _shown(row: Row) -> str:
    return (
        f"{row['query']:13}  {row['data']:12}  {row['shards']} shards {row['ms']:>8.0f} ms"
        f"  one {row['single_ms']:>8.0f} ms  shipped {row['rows_shipped']:>9} rows"
        f" ({row['plain_rows']} plain) {row['bytes_shipped'] / 1e6:>8.1f} MB"
        f"  groups {row['groups']:>9}  base {row['base_rows']:>9}"
    )


if __name__ == "__main__":
    main()
