"""Raw PostgreSQL against private join counts, cold and warm, interleaved in one run.

``python -m bench.joins [--sf 1] [--rounds 5] [--queries Q4,Q5]``, on the cluster that
``make up`` started.  Prints a table and, last, one JSON line.  *cold* is the first answer of a
new session, *warm* a later one of the same session that is computed again (``dp.fresh``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import grant, prepare_r6, prepare_tpch, superuser
from bench.memory import Peak
from bench.queries import FACEBOOK, TPCH, statement

LIMIT_S = 300
BETA = 0.02


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="1", help="TPC-H scale factors, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--raw-rounds", type=int, help="fewer, of the plain query (Q4: minutes)")
    parser.add_argument("--queries", default=",".join([*TPCH, *FACEBOOK]))
    arguments = parser.parse_args()
    wanted = arguments.queries.split(",")
    rounds = (arguments.rounds, arguments.raw_rounds or arguments.rounds)
    dsn = superuser()
    rows = []
    if any(name in FACEBOOK for name in wanted):
        prepare_r6(make_conninfo(dsn, dbname="facebook"))
        grant(make_conninfo(dsn, dbname="facebook"))
    for scale in arguments.sf.split(",") if any(name in TPCH for name in wanted) else []:
        database = f"bench_tpch_sf{scale.replace('.', '_')}"
        prepare_tpch(dsn, database, float(scale))
        grant(make_conninfo(dsn, dbname=database))
        for name, query in TPCH.items():
            if name in wanted:
                where = make_conninfo(dsn, dbname=database)
                rows.append(_measure(where, name, f"tpch sf {scale}", query, *rounds))
    for name, query in FACEBOOK.items():
        if name in wanted:
            where = make_conninfo(dsn, dbname="facebook")
            rows.append(_measure(where, name, "ego-facebook", query, *rounds))
    print(json.dumps({"bench": "joins", "rows": rows}))


def _measure(
    dsn: str, name: str, data: str, query: tuple[str, str], rounds: int, raw_rounds: int
) -> dict[str, Any]:
    """Run raw, cold and warm in turn; medians.  Warm is with stored statistics, as kept before."""
    raw: list[float | None] = []
    cold: list[float] = []
    warm: list[float] = []
    stored: list[float] = []
    answer = None
    _keep(dsn, query)
    for number in range(rounds):
        if None not in raw and number < raw_rounds:
            raw.append(_raw(dsn, statement(query, "count(*)")))
        with psycopg.connect(dsn, user="alice", autocommit=True) as connection:
            connection.execute("set dp.fresh = on; set dp.statistics = live")
            ms, answer = _private(connection, query)
            cold.append(ms)
            warm.append(_private(connection, query)[0])
            connection.execute("set dp.statistics = auto")
            _private(connection, query)
            stored.append(_private(connection, query)[0])
    sensitivity = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        text = statement(query, "dp_count(*)")
        for method in ("elastic", "residual"):
            call = "select dp.sensitivity(%s, method => %s, beta => %s, use_keys => false)"
            row = connection.execute(call, [text, method, BETA]).fetchone()
            sensitivity[method] = None if row is None else row[0]
    peak = _peak(dsn, statement(query, "dp_count(*)"), "alice")
    raw_peak = None if None in raw else _peak(dsn, statement(query, "count(*)"))
    times = [ms for ms in raw if ms is not None]
    result = {
        "query": name,
        "data": data,
        "raw_ms": None if None in raw else round(statistics.median(times), 1),
        "cold_ms": round(statistics.median(cold), 1),
        "warm_ms": round(statistics.median(stored), 1),
        "warm_live_ms": round(statistics.median(warm), 1),
        "peak_mb": peak,
        "raw_peak_mb": raw_peak,
        "answer": answer,
        "sensitivity": sensitivity,
    }
    shown = f"stopped after {LIMIT_S} s" if None in raw else f"{result['raw_ms']:.0f} ms"
    print(
        f"{name}  {data:14} raw {shown:>20}  cold {result['cold_ms']:>8.0f} ms"
        f"  warm {result['warm_ms']:>8.0f} ms (live {result['warm_live_ms']:.0f})"
        f"  peak {peak:>5.0f} MB (raw {'?' if raw_peak is None else format(raw_peak, '.0f')})",
        flush=True,
    )
    return result


def _keep(dsn: str, query: tuple[str, str]) -> None:
    """Store the statistics that a question needs, as its owner would."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        relations = query[0].split(", ")
        for relation in relations:
            owner.execute("select dp.collect_statistics(%s::regclass)", [relation])
        owner.execute("select dp.keep_statistics(%s)", [statement(query, "dp_count(*)")])
        for relation in relations:
            owner.execute("select dp.refresh_statistics(%s::regclass)", [relation])


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


def _peak(dsn: str, sql: str, user: str | None = None) -> float:
    """Return the peak memory (MB) of a new session and its workers, in a run that is not timed."""
    who = make_conninfo(dsn, user=user) if user else dsn
    with psycopg.connect(who, autocommit=True) as connection:
        if user:
            connection.execute("set dp.fresh = on")
        with Peak(connection.info.backend_pid) as watch:
            connection.execute(sql).fetchall()
    return round(watch.mb, 1)


def _private(connection: psycopg.Connection[Any], query: tuple[str, str]) -> tuple[float, Any]:
    start = time.perf_counter()
    row = connection.execute(statement(query, "dp_count(*)")).fetchone()
    return (time.perf_counter() - start) * 1e3, None if row is None else row[0]


if __name__ == "__main__":
    main()
