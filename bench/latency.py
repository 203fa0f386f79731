"""What an answer costs beside the counting: single tables, repeated questions, new sessions.

``python -m bench.latency [--rounds 20]``, on the cluster that ``make up`` started.  All are
interleaved; prints a table and, last, one JSON line.  *commit* is one durable insert of a session
that exists, which a charged answer cannot do without.  *repeated* is asked when the processes were
idle or busy with the other questions, *repeated_again* directly after it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import grant, superuser

Connection = psycopg.Connection[Any]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    dsn = make_conninfo(superuser(), dbname="tpch")
    grant(dsn)
    times: dict[str, list[float]] = {}
    with (
        psycopg.connect(dsn, autocommit=True) as owner,
        psycopg.connect(dsn, user="alice", autocommit=True) as alice,
    ):
        owner.execute("create table if not exists bench_commit (n int)")
        _ask(alice, "select dp_count(*) from orders where o_orderkey > 0")
        _ask(alice, "select dp_count(*) from customer")
        for k in range(rounds):
            steps: dict[str, Callable[[], object]] = {
                "raw": lambda k=k: _ask(
                    owner, f"select count(*) from orders where o_orderkey > {k}"
                ),
                "commit": lambda: owner.execute("insert into bench_commit values (1)"),
                "new_count": lambda k=k: _ask(
                    alice, f"select dp_count(*) from orders where o_orderkey > {k}"
                ),
                "repeated": lambda: _ask(alice, "select dp_count(*) from customer"),
                "repeated_again": lambda: _ask(alice, "select dp_count(*) from customer"),
                "new_session": lambda: _first(dsn),
                "raw_session": lambda: _first(dsn, "count(*)", "postgres"),
            }
            alice.execute("set dp.fresh = on")
            for name, step in steps.items():
                if name == "repeated":
                    alice.execute("set dp.fresh = off")
                start = time.perf_counter()
                step()
                times.setdefault(name, []).append((time.perf_counter() - start) * 1e3)
        owner.execute("drop table bench_commit")
    medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
    over = medians["new_count"] - medians["raw"] - medians["commit"]
    for name, value in medians.items():
        print(f"{name:14} {value:>9.2f} ms")
    print(f"a new count takes {over:.2f} ms more than the plain one and a commit")
    print(
        json.dumps(
            {"bench": "latency", "rows": [{"rounds": rounds, "over_ms": round(over, 2)} | medians]}
        )
    )


def _ask(connection: Connection, sql: str) -> Any:
    return connection.execute(sql).fetchall()


def _first(dsn: str, aggregate: str = "dp_count(*)", user: str = "alice") -> None:
    """Connect and ask once, computed anew."""
    with psycopg.connect(dsn, user=user, autocommit=True) as connection:
        if user == "alice":
            connection.execute("set dp.fresh = on")
        _ask(connection, f"select {aggregate} from customer")


if __name__ == "__main__":
    main()
