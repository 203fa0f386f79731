"""Node-private counts in a graph: edges, paths of two edges, triangles.

``python -m bench.graphs [--repeat 20] [--epsilons 0.8,1] [--queries edges,...]
[--methods quantile,r2t] [--largest 1000000] [--seconds 600]``, on the cluster that
``make up`` started and the ego network of ``../shared/data/facebook_combined``.  A node is a
privacy unit, an edge belongs to both of its ends, so a path or a triangle belongs to three units.
*raw* is PostgreSQL's own count, *cold* the first answer of a new session, *warm* a later one of
the same session that is computed again; the error is relative to the exact count.  A query's
repetitions stop after ``--seconds``; a row tells how many there were.  Prints each row and, last,
one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import install, make, superuser

DATABASE = "bench_graphs"
DATA = (
    Path(__file__).resolve().parents[2]
    / "shared"
    / "data"
    / "facebook_combined"
    / "facebook_combined.txt"
)
QUERIES = {
    "edges": "select dp_count(*) from node r1, node r2, edge where r1.id = from_id"
    " and r2.id = to_id and r1.id < r2.id",
    "two-paths": "select dp_count(*) from node r1, node r2, node r3, edge e1, edge e2"
    " where e1.to_id = e2.from_id and r1.id = e1.from_id and r2.id = e2.from_id"
    " and r3.id = e2.to_id and r1.id < r3.id",
    "triangles": "select dp_count(*) from node r1, node r2, node r3, edge e1, edge e2, edge e3"
    " where r1.id = e1.from_id and r2.id = e1.to_id and r2.id = e2.from_id and r3.id = e2.to_id"
    " and r3.id = e3.to_id and r1.id = e3.from_id and r1.id < r2.id and r2.id < r3.id",
}
COLD = 3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--epsilons", default="0.8,1")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--methods", default="quantile,r2t")
    parser.add_argument("--largest", type=int, default=10**6, help="dp.max_contribution, GS")
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    where = _prepare(superuser())
    rows = []
    for name in arguments.queries.split(","):
        asked = product(arguments.methods.split(","), arguments.epsilons.split(","))
        for method, epsilon in asked:
            row = {"query": name, "data": "facebook_combined"}
            row |= measure(where, QUERIES[name], method, float(epsilon), arguments)
            print(" ".join(f"{value}" for value in row.values()), flush=True)
            rows.append(row)
    print(json.dumps({"bench": "graphs", "largest": arguments.largest, "rows": rows}))


def _prepare(dsn: str) -> str:
    where = make_conninfo(dsn, dbname=DATABASE)
    make(dsn, DATABASE, lambda: _load(where))
    install(
        where,
        "select dp.protect('node', privacy_unit => 'id', delta => 0.001);"
        "select dp.grant_budget('alice', epsilon => 1000000, delta => 0.001)",
    )
    return where


def _load(where: str) -> None:
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("create table node (id integer primary key)")
        connection.execute("create table edge (from_id integer not null, to_id integer not null)")
        with (
            connection.cursor() as cursor,
            cursor.copy("copy edge from stdin with (delimiter ' ')") as copy,
        ):
            copy.write(DATA.read_text())
        connection.execute("insert into edge select to_id, from_id from edge")
        connection.execute("insert into node select distinct from_id from edge")
        connection.execute(
            "alter table edge add primary key (from_id, to_id),"
            " add foreign key (from_id) references node, add foreign key (to_id) references node"
        )
        connection.execute("vacuum analyze")


def measure(
    where: str, text: str, method: str, epsilon: float, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Ask again and again; return times in ms and the median error."""
    times: dict[str, list[float]] = {"raw": [], "cold": [], "warm": []}
    errors = []
    with (
        psycopg.connect(where, autocommit=True) as owner,
        psycopg.connect(where, user="alice", autocommit=True) as warm,
    ):
        _set(warm, method, epsilon, arguments.largest)
        begin = time.perf_counter()
        for number in range(arguments.repeat):
            if number < COLD:
                ms, truth = _time(owner, text.replace("dp_count", "count"))
                times["raw"].append(ms)
                with psycopg.connect(where, user="alice", autocommit=True) as cold:
                    _set(cold, method, epsilon, arguments.largest)
                    ms, value = _time(cold, text)
                times["cold"].append(ms)
                errors.append(abs(value - truth) / truth)
            ms, value = _time(warm, text)
            times["warm"].append(ms)
            errors.append(abs(value - truth) / truth)
            if time.perf_counter() - begin > arguments.seconds:
                break
        spent = warm.execute("select epsilon from dp.ledger order by id desc limit 1").fetchone()
    median = {f"{name}_ms": round(statistics.median(found), 1) for name, found in times.items()}
    return {
        "epsilon": epsilon,
        "method": method,
        **median,
        "median_relative_error": round(statistics.median(errors), 5),
        "spent_epsilon": None if spent is None else float(spent[0]),
        "answers": len(errors),
        "count": truth,
    }


def _set(connection: psycopg.Connection[Any], method: str, epsilon: float, largest: int) -> None:
    connection.execute(f"set dp.epsilon = {epsilon}; set dp.fresh = on")
    connection.execute(f"set dp.mechanism = {method}")
    connection.execute(f"set dp.max_contribution = {largest}")


def _time(connection: psycopg.Connection[Any], text: str) -> tuple[float, int]:
    start = time.perf_counter()
    ((value,),) = connection.execute(text).fetchall()  # type: ignore[call-overload]
    return (time.perf_counter() - start) * 1e3, int(value)


if __name__ == "__main__":
    main()
