"""What counting changes costs: the same writes with its triggers and without.

``python -m bench.changes [--millions 6] [--rounds 5]``, on the cluster that ``make up`` started.
Two tables are written in turn; the times are the backend's own processor time, which other work
on the machine disturbs least, and the wall clock's.  Prints a table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import superuser

Connection = psycopg.Connection[Any]
TABLES = ("plain", "counted")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = int(arguments.millions * 1_000_000)
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with psycopg.connect(make_conninfo(superuser(), dbname="tpch"), autocommit=True) as owner:
        try:
            data = _prepare(owner, rows)
            for number in range(arguments.rounds + 1):
                for table in TABLES if number % 2 else reversed(TABLES):
                    for name, spent in _writes(owner, table, data):
                        if number:  # the first round warms up
                            times.setdefault((name, table), []).append(spent)
        finally:
            for table in (*TABLES, "bench_source"):
                owner.execute(f"drop table if exists {table}")
    result: dict[str, object] = {"rows": rows, "rounds": arguments.rounds}
    for name in dict.fromkeys(name for name, _ in times):
        result |= _compare(name, *(times[name, table] for table in TABLES))
    print(json.dumps({"bench": "changes", "rows": [result]}))


def _prepare(owner: Connection, rows: int) -> bytes:
    """Make both tables and the text that is loaded; returns the text."""
    for table in TABLES:
        owner.execute(f"drop table if exists {table}")
        owner.execute(f"create table {table} (k bigint, a int, b int, c text)")
    owner.execute("select dp.protect('counted'), dp.collect_statistics('counted')")
    query = (
        "copy (select i, i % 1000, i % 77777, 'row ' || i % 100"
        f" from generate_series(1, {rows}) i) to stdout"
    )
    with owner.cursor().copy(query) as copy:  # type: ignore[arg-type]
        return b"".join(bytes(part) for part in copy)


def _writes(owner: Connection, table: str, data: bytes) -> list[tuple[str, tuple[float, float]]]:
    """Load, then write single rows; each with its processor and wall seconds."""
    owner.execute(f"truncate {table}")
    owner.execute("checkpoint")
    found = []
    start = _clock(owner)
    with owner.cursor().copy(f"copy {table} from stdin") as copy:  # type: ignore[arg-type]
        for at in range(0, len(data), 1 << 20):
            copy.write(data[at : at + (1 << 20)])
    found.append(("copy", _since(owner, start)))
    start = _clock(owner)
    owner.execute(f"insert into {table} select * from {table} limit 1000000")  # type: ignore[arg-type]
    found.append(("insert_select", _since(owner, start)))
    start = _clock(owner)
    owner.execute(
        f"do $$ begin for i in 1 .. 10000 loop insert into {table} values (i, i, i, ''); "  # type: ignore[arg-type]
        "end loop; end $$"
    )
    found.append(("single_inserts", _since(owner, start)))
    return found


def _clock(owner: Connection) -> tuple[float, float]:
    """Processor seconds of the backend, and the wall clock."""
    spent = Path(f"/proc/{owner.info.backend_pid}/schedstat").read_text().split()[0]
    return int(spent) / 1e9, time.perf_counter()


def _since(owner: Connection, start: tuple[float, float]) -> tuple[float, float]:
    now = _clock(owner)
    return now[0] - start[0], now[1] - start[1]


def _compare(
    name: str, plain: list[tuple[float, float]], counted: list[tuple[float, float]]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for at, clock in enumerate(("cpu", "wall")):
        before, after = (statistics.median(t[at] for t in times) for times in (plain, counted))
        more = 100 * (after / before - 1)
        print(f"{name:15} {clock:5} {before:>8.2f} s {after:>8.2f} s {more:>+7.1f} %")
        found |= {
            f"{name}_{clock}_s": round(before, 3),
            f"{name}_{clock}_counted_s": round(after, 3),
            f"{name}_{clock}_percent": round(more, 1),
        }
    return found


if __name__ == "__main__":
    main()
