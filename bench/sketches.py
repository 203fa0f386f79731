"""What sketches cost: building them, and bounding by them, whatever the size of the data.

``python -m bench.sketches [--estimators 100000] [--sizes 55000,550000] [--rounds 20]``, on the
cluster that ``make up`` started.  Each size is a chain of three relations; the middle one has two
keys over 4,039 values.  Prints a table and, last, one JSON line:
``build_s`` and ``build_mb`` are those of all three relations, ``sketch_ms`` and ``elastic_ms`` the
time of ``dp.sensitivity`` from what is stored (elastic: from stored maximum frequencies),
``written_ms`` the former after ``--written`` single-row statements, ``summed_ms`` after the next
refresh of any relation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import superuser
from bench.memory import Peak

Connection = psycopg.Connection[Any]
TABLES = ("sk_first", "sk_middle", "sk_last")
QUERY = "select dp_count(*) from sk_first f, sk_middle m, sk_last l where f.a = m.a and m.b = l.b"
BETA = 0.05


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--estimators", type=int, default=100_000)
    parser.add_argument("--sizes", default="55000,550000")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--written", type=int, default=200_000)
    arguments = parser.parse_args()
    rows = []
    where = make_conninfo(superuser(), dbname="facebook")
    for size in arguments.sizes.split(","):
        with psycopg.connect(where, autocommit=True) as owner:
            try:
                rows.append(_measure(owner, int(size), arguments))
            finally:
                for table in TABLES:
                    owner.execute(f"drop table if exists {table}")
    print(json.dumps({"bench": "sketches", "rows": rows}))


def _measure(owner: Connection, size: int, arguments: argparse.Namespace) -> dict[str, object]:
    _prepare(owner, size)
    owner.execute("set maintenance_work_mem = '512MB'")
    with Peak(owner.info.backend_pid) as peak:
        start = time.perf_counter()
        owner.execute("select dp.create_sketch(%s, %s)", [QUERY, arguments.estimators])
        seconds = time.perf_counter() - start
    found: dict[str, object] = {
        "relation_rows": size,
        "estimators": arguments.estimators,
        "build_s": round(seconds, 2),
        "build_mb": round(peak.mb),
    }
    methods = ("sketch", "sketch_published", "elastic")
    found |= _ask(owner, methods, arguments.rounds)
    owner.execute(
        f"do $$ begin for i in 1 .. {arguments.written} loop"  # type: ignore[arg-type]
        " insert into sk_middle values (i % 4039, i % 4039); end loop; end $$"
    )
    found["written_ms"] = _ask(owner, ("sketch",), arguments.rounds)["sketch_ms"]
    owner.execute("select dp.refresh_statistics('sk_first')")
    found["summed_ms"] = _ask(owner, ("sketch",), arguments.rounds)["sketch_ms"]
    for name, value in found.items():
        print(f"{name:22} {value}", flush=True)
    return found


def _prepare(owner: Connection, size: int) -> None:
    for table, columns in zip(TABLES, (("a",), ("a", "b"), ("b",)), strict=True):
        owner.execute(f"drop table if exists {table}")  # type: ignore[arg-type]
        # squares of uniform numbers: some keys are far more frequent than others
        values = ", ".join(f"floor(4039 * random() ^ 2)::int as {c}" for c in columns)
        owner.execute(f"create table {table} as select {values} from generate_series(1, {size})")  # type: ignore[arg-type]
        owner.execute(f"analyze {table}")  # type: ignore[arg-type]
        owner.execute(f"select dp.protect('{table}'), dp.collect_statistics('{table}')")  # type: ignore[arg-type]
        owner.execute(f"select dp.refresh_statistics('{table}')")  # type: ignore[arg-type]


def _ask(owner: Connection, methods: tuple[str, ...], rounds: int) -> dict[str, float]:
    """Time each method in turn, after a first time."""
    owner.execute("set dp.statistics = auto")
    times: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for method in methods:
            start = time.perf_counter()
            owner.execute(
                "select dp.sensitivity(%s, method => %s, beta => %s)", [QUERY, method, BETA]
            )
            if number:
                times.setdefault(method, []).append((time.perf_counter() - start) * 1e3)
    return {f"{method}_ms": round(statistics.median(t), 2) for method, t in times.items()}


if __name__ == "__main__":
    main()
