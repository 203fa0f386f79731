"""What a small question costs beside the plain one: TPC-H with customers as units.

``python -m bench.latency [--sf 0.1] [--rounds 20]``, on the cluster that ``make up`` started.  One
question after the other is asked in rounds: once, and its plain form in the session of a superuser,
with another constant each time.  *ms* is time on the clock, *cpu* processor time of the backends:
for a private question that of the asking backend and its service session
(``/proc/<pid>/schedstat``, Linux).  *over_cpu* is the difference of the medians.  *repeated* is a
stored answer, *commit* one durable insert, which a charged answer cannot do without.  Prints a
table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import prepare_units, superuser

Connection = psycopg.Connection[Any]

#: ``{k}`` is the number of the round.
FRESH = {
    "count": "select dp_count(*) from customer where c_custkey > {k}",
    "public join": "select dp_count(*) from customer join nation on c_nationkey = n_nationkey"
    " where c_custkey > {k}",
    "sum": "select dp_sum(c_acctbal) from customer where c_custkey > {k}",
    "undeclared groups": "select c_nationkey, dp_count(*) from customer where c_custkey > {k}"
    " group by c_nationkey",
    "distinct": "select dp_count(distinct o_clerk) from orders where o_orderkey > {k}",
    "join": "select dp_count(*) from customer join orders on o_custkey = c_custkey"
    " where o_orderkey > {k}",
}
REPEATED = "select dp_count(*) from customer"
REFUSED = "select dp_count(*) from customer where c_custkey > random()"


class Clock:
    """Time and processor time of what ran under a name, in ms."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[float, float]]] = {}

    def run(self, name: str, pids: Sequence[int], step: Callable[[], object]) -> None:
        """Run one step; ``pids`` are the backends that work for it."""
        cpu, start = _processor(pids), time.perf_counter()
        with suppress(psycopg.Error):
            step()
        taken = (time.perf_counter() - start) * 1e3
        self._found.setdefault(name, []).append((taken, _processor(pids) - cpu))

    def medians(self, name: str) -> tuple[float, float]:
        """Return the medians of both; 0 where nothing ran."""
        ms, cpu = zip(*self._found.get(name, [(0.0, 0.0)]), strict=True)
        return statistics.median(ms), statistics.median(cpu)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="0.1")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    database = f"bench_units_sf{arguments.sf.replace('.', '_')}"
    prepare_units(superuser(), database, float(arguments.sf), ("customer",))
    where = make_conninfo(superuser(), dbname=database)
    clock = Clock()
    with (
        psycopg.connect(where, autocommit=True) as owner,
        psycopg.connect(where, user="alice", autocommit=True) as alice,
    ):
        owner.execute("create table if not exists bench_commit (n int)")
        owner.execute("set max_parallel_workers_per_gather = 0")  # private questions have none
        for text in (REPEATED, *FRESH.values()):
            _ask(alice, text.format(k=0))
        own, others = [owner.info.backend_pid], _others(owner)
        rounds = range(1, arguments.rounds + 1)
        alice.execute("set dp.fresh = on")
        for name, text in FRESH.items():
            for k in rounds:
                sql = text.format(k=k)
                plain = sql.replace("dp_", "")
                clock.run(f"plain {name}", own, partial(_ask, owner, plain))
                clock.run(name, others, partial(_ask, alice, sql))
        alice.execute("set dp.fresh = off")
        for name, sql in (("repeated", REPEATED), ("refused", REFUSED)):
            for _ in rounds:
                clock.run(name, others, partial(_ask, alice, sql))
        for _ in rounds:
            insert = "insert into bench_commit values (1)"
            clock.run("commit", own, partial(owner.execute, insert))
            clock.run("new session", [], partial(_first, where, "alice", REPEATED))
            plain = REPEATED.replace("dp_", "")
            clock.run("plain new session", [], partial(_first, where, "postgres", plain))
        owner.execute("drop table bench_commit")
    rows = [_row(clock, name) for name in (*FRESH, "repeated", "refused", "new session", "commit")]
    print(f"{'':18}" + "".join(f"{column:>11}" for column in COLUMNS))
    for row in rows:
        print(f"{row['question']:18}" + "".join(f"{row[column]:>11.2f}" for column in COLUMNS))
    print(
        json.dumps(
            {"bench": "latency", "sf": arguments.sf, "rounds": arguments.rounds, "rows": rows}
        )
    )


COLUMNS = ("plain_ms", "ms", "plain_cpu", "cpu", "over_cpu")


def _row(clock: Clock, name: str) -> dict[str, Any]:
    (plain_ms, plain_cpu), (ms, cpu) = clock.medians(f"plain {name}"), clock.medians(name)
    values = (plain_ms, ms, plain_cpu, cpu, cpu - plain_cpu)
    return {"question": name} | {c: round(v, 2) for c, v in zip(COLUMNS, values, strict=True)}


def _others(owner: Connection) -> list[int]:
    """Return the other backends of clients: alice's and its service session."""
    sql = (
        "select pid from pg_stat_activity where datname = current_database()"
        " and backend_type = 'client backend' and pid <> pg_backend_pid()"
    )
    return [int(row[0]) for row in owner.execute(sql).fetchall()]


def _processor(pids: Sequence[int]) -> float:
    """Return the processor time of processes in ms."""
    files = [Path(f"/proc/{pid}/schedstat") for pid in pids]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e6


def _ask(connection: Connection, sql: str) -> Any:
    return connection.execute(sql).fetchall()


def _first(where: str, user: str, sql: str) -> None:
    """Connect and ask once, computed anew."""
    with psycopg.connect(where, user=user, autocommit=True) as connection:
        if user == "alice":
            connection.execute("set dp.fresh = on")
        _ask(connection, sql)


if __name__ == "__main__":
    main()
