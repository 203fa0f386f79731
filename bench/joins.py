"""Raw PostgreSQL against private join counts, cold and warm, interleaved in one run.

``python -m bench.joins [--sf 1] [--rounds 5] [--queries Q4,Q5]``, on the cluster that
``make up`` started.  Prints a table and, last, one JSON line.  *cold* is the first answer of a
new session, *warm* a later one of the same session that is computed again (``dp.fresh``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.queries import FACEBOOK, R6, TPCH, statement

LIMIT_S = 300
BETA = 0.02
_ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="1", help="TPC-H scale factors, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", default=",".join([*TPCH, *FACEBOOK]))
    arguments = parser.parse_args()
    wanted = arguments.queries.split(",")
    dsn = os.environ.get("DPSQL_DSN") or _make_dsn()
    rows = []
    if any(name in FACEBOOK for name in wanted):
        _prepare_r6(make_conninfo(dsn, dbname="facebook"))
        _grant(make_conninfo(dsn, dbname="facebook"))
    for scale in arguments.sf.split(",") if any(name in TPCH for name in wanted) else []:
        database = f"bench_tpch_sf{scale.replace('.', '_')}"
        _prepare_tpch(dsn, database, float(scale))
        _grant(make_conninfo(dsn, dbname=database))
        for name, query in TPCH.items():
            if name in wanted:
                where = make_conninfo(dsn, dbname=database)
                rows.append(_measure(where, name, f"tpch sf {scale}", query, arguments.rounds))
    for name, query in FACEBOOK.items():
        if name in wanted:
            where = make_conninfo(dsn, dbname="facebook")
            rows.append(_measure(where, name, "ego-facebook", query, arguments.rounds))
    print(json.dumps({"bench": "joins", "rows": rows}))


def _make_dsn() -> str:
    command = ["make", "-s", "dsn"]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _measure(dsn: str, name: str, data: str, query: tuple[str, str], rounds: int) -> dict[str, Any]:
    """Run raw, cold and warm in turn; medians."""
    raw: list[float | None] = []
    cold: list[float] = []
    warm: list[float] = []
    peak, answer = 0.0, None
    for _ in range(rounds):
        if None not in raw:
            raw.append(_raw(dsn, statement(query, "count(*)")))
        with psycopg.connect(dsn, user="alice", autocommit=True) as connection:
            connection.execute("set dp.fresh = on")
            with _Peak(connection.info.backend_pid) as watch:
                ms, answer = _private(connection, query)
                cold.append(ms)
                warm.append(_private(connection, query)[0])
            peak = max(peak, watch.mb)
    sensitivity = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        text = statement(query, "dp_count(*)")
        for method in ("elastic", "residual"):
            call = "select dp.sensitivity(%s, method => %s, beta => %s, use_keys => false)"
            row = connection.execute(call, [text, method, BETA]).fetchone()
            sensitivity[method] = None if row is None else row[0]
    times = [ms for ms in raw if ms is not None]
    result = {
        "query": name,
        "data": data,
        "raw_ms": None if None in raw else round(statistics.median(times), 1),
        "cold_ms": round(statistics.median(cold), 1),
        "warm_ms": round(statistics.median(warm), 1),
        "peak_mb": round(peak, 1),
        "answer": answer,
        "sensitivity": sensitivity,
    }
    shown = f"stopped after {LIMIT_S} s" if None in raw else f"{result['raw_ms']:.0f} ms"
    print(
        f"{name}  {data:14} raw {shown:>20}  cold {result['cold_ms']:>8.0f} ms"
        f"  warm {result['warm_ms']:>8.0f} ms  peak {peak:>5.0f} MB",
        flush=True,
    )
    return result


def _raw(dsn: str, sql: str) -> float | None:
    """Time the plain query in a new session; ``None`` when it takes too long."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"set statement_timeout = '{LIMIT_S}s'")
        start = time.perf_counter()
        try:
            connection.execute(sql).fetchall()
        except psycopg.errors.QueryCanceled:
            return None
        return (time.perf_counter() - start) * 1e3


def _private(connection: psycopg.Connection[Any], query: tuple[str, str]) -> tuple[float, Any]:
    start = time.perf_counter()
    row = connection.execute(statement(query, "dp_count(*)")).fetchone()
    return (time.perf_counter() - start) * 1e3, None if row is None else row[0]


class _Peak:
    """The largest private (anonymous) memory of a backend, sampled; 0 where /proc is closed."""

    def __init__(self, pid: int) -> None:
        self.status = Path(f"/proc/{pid}/status")
        self.mb = 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Peak:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.stop.wait(0.01):
            try:
                lines = self.status.read_text().splitlines()
            except OSError:
                return
            for line in lines:
                if line.startswith("RssAnon:"):
                    self.mb = max(self.mb, int(line.split()[1]) / 1024)


def _grant(dsn: str) -> None:
    """Let alice ask as often as the benchmark wants."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select dp.grant_budget('alice', epsilon => 100000, delta => 0.001)")
        connection.execute(
            "select dp.set_root_cap(format('%I.%I', schema_name, relation_name)::regclass,"
            " null, 0.001) from dp.relations where kind = 'protected'"
        )


def _prepare_r6(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        if connection.execute("select to_regclass('r6')").fetchone() == (None,):
            connection.execute(R6)
            connection.execute("select dp.protect('r6')")
            connection.execute("analyze r6")


def _prepare_tpch(dsn: str, database: str, scale: float) -> None:
    """Make the database unless it is there, complete."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        sql = "select shobj_description(oid, 'pg_database') from pg_database where datname = %s"
        if connection.execute(sql, [database]).fetchone() == ("complete",):
            return
        connection.execute(f'drop database if exists "{database}" with (force)')
        connection.execute(f'create database "{database}"')
    from dpsql.client.tpch import generate

    demo = _ROOT / "demo" / "tpch"
    with psycopg.connect(make_conninfo(dsn, dbname=database), autocommit=True) as connection:
        connection.execute("create extension dpsql cascade")
        connection.execute((demo / "tables.sql").read_text())
        with tempfile.TemporaryDirectory() as folder:
            for table, path in generate(Path(folder), scale):
                copy = f"copy {table} from stdin (format csv, delimiter '|')"
                with path.open("rb") as file, connection.cursor().copy(copy) as sink:
                    while block := file.read(1 << 20):
                        sink.write(block)
                path.unlink()
        connection.execute((demo / "keys.sql").read_text())
        connection.execute("vacuum analyze")
        connection.execute((demo / "protect.sql").read_text())
        connection.execute(f"comment on database \"{database}\" is 'complete'")


if __name__ == "__main__":
    main()
