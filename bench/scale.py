"""One server against shards: the same private counts, and what travels between servers.

``python -m bench.scale [--scale 0.1,1] [--shards 3] [--rounds 3] [--queries Q1,status]``, on the
cluster that ``make up`` started.  Beside it as many clusters without dpsql are made, and removed
in the end; ``orders`` and ``lineitem`` are spread over them by the hash of their order key, all
else stays on the coordinator.  Prints a table and, last, one JSON line.

*ms* and *single_ms* are medians of answers that are computed again, asked in turn; *cpu_ms* is the
coordinator's processor time, *shards_cpu_ms* that of all shards, in steps of 10 ms.  Rows and bytes
are counted on the wire in a run that is not timed, *plain_rows* those of statements that aggregate
nothing.  *groups* are those that the shards' part of the answer's join has, *base_rows* the rows
that they hold of its relations; more groups than those may be needed for the sensitivity.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import prepare_tpch, superuser
from bench.queries import TPCH, statement
from bench.spreading import Shards, declare_domains, spread

Row = dict[str, Any]
Connection = psycopg.Connection[Any]

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
        declare_domains(one)
        with spread(dsn, one, arguments.shards) as shards:
            for name in arguments.queries.split(","):
                row = _measure(name, f"tpch sf {scale}", one, shards, arguments.rounds)
                print(_shown(row), flush=True)
                if arguments.show:
                    print(*(f"    {text}" for text in shards.wires[0].statements), sep="\n")
                rows.append(row)
    print(json.dumps({"bench": "scale", "rows": rows}))


def _measure(name: str, data: str, one: str, shards: Shards, rounds: int) -> Row:
    """Ask one server and the shards in turn; then count what travels."""
    asked = ASKED[name]
    times: dict[str, list[float]] = {one: [], shards.dsn: []}
    spent: dict[str, list[list[float]]] = {one: [], shards.dsn: []}
    watched = [Processes(dsn) for dsn in (shards.dsn, *shards.servers)]
    with ExitStack() as stack:
        sessions = {dsn: stack.enter_context(_alice(dsn)) for dsn in times}
        for number in range(rounds + 1):
            for dsn, session in sessions.items():
                before = [server.ms() for server in watched]
                start = time.perf_counter()
                session.execute(asked.written("dp_count(*)")).fetchall()
                if number:  # the first round opens connections to the shards
                    times[dsn].append((time.perf_counter() - start) * 1e3)
                    after = (server.ms() for server in watched)
                    spent[dsn].append([b - a for a, b in zip(before, after, strict=True)])
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
        "cpu_ms": statistics.median(used[0] for used in spent[shards.dsn]),
        "shards_cpu_ms": statistics.median(sum(used[1:]) for used in spent[shards.dsn]),
        "single_cpu_ms": statistics.median(used[0] for used in spent[one]),
        "rows_shipped": shipped,
        "bytes_shipped": received,
        "plain_rows": plain,
        "groups": _total(shards, [f"({asked.eliminated}) as g"]),
        "base_rows": _total(shards, asked.relations),
    }


class Processes:
    """Processor time of all processes of a server, which other work disturbs least."""

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            row = connection.execute("show data_directory").fetchone()
        self.pid = int((Path(str(row and row[0])) / "postmaster.pid").read_text().split()[0])

    def ms(self) -> float:
        """Return what they used, those that have ended included."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        ticks = sum(_ticks(self.pid, 4)) + sum(sum(_ticks(int(pid), 2)) for pid in children)
        return ticks * 1e3 / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int, fields: int) -> list[int]:
    """Read user and system time; with four ``fields`` those of children that ended, too."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [int(n) for n in stat[11 : 11 + fields]]


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
        f"  one {row['single_ms']:>8.0f} ms"
        f"  cpu {row['cpu_ms']:.0f} + {row['shards_cpu_ms']:.0f}, {row['single_cpu_ms']:.0f} ms"
        f"  shipped {row['rows_shipped']:>9} rows"
        f" ({row['plain_rows']} plain) {row['bytes_shipped'] / 1e6:>8.1f} MB"
        f"  groups {row['groups']:>9}  base {row['base_rows']:>9}"
    )


if __name__ == "__main__":
    main()
