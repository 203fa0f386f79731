"""Counts and sums over privacy units: error and time on TPC-H, beside the plain query.

``python -m bench.units [--sf 1] [--repeat 20] [--epsilon 1] [--units customer,supplier]
[--queries q01,q06] [--methods quantile,r2t]``, on the
cluster that ``make up`` started.  The queries are the forms of TPC-H in ``bench/tpch/``;
relations that do not belong to the unit are public.  *cold* is the first answer of a new session,
*warm* a later one of the same session that is computed again; the error is the median over groups
and repetitions, relative to the plain number, and 1 for a group that is not shown.  A method that
cannot answer leaves a row that says why.  Prints a table and, last, one JSON line.
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

from bench.data import prepare_units, superuser

Connection = psycopg.Connection[Any]
QUERIES = Path(__file__).resolve().parent / "tpch"
METHODS = ("quantile", "r2t")
COLD = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="1")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--units", default="customer,supplier")
    parser.add_argument("--queries", default="")
    parser.add_argument("--methods", default=",".join(METHODS))
    arguments = parser.parse_args()
    rows = []
    for unit in arguments.units.split(","):
        database = f"bench_units_sf{arguments.sf.replace('.', '_')}"
        prepare_units(superuser(), database, float(arguments.sf), (unit,))
        where = make_conninfo(superuser(), dbname=database)
        for path in sorted(QUERIES.glob("*.sql")):
            if arguments.queries and path.stem not in arguments.queries.split(","):
                continue
            for row in _measure(where, path.read_text(), arguments):
                row = {"query": path.stem, "data": f"tpch sf {arguments.sf}", "unit": unit} | row
                print(" ".join(f"{value}" for value in row.values()), flush=True)
                rows.append(row)
    print(json.dumps({"bench": "units", "rows": rows}))


def _measure(where: str, text: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    plain = text.replace("dp_", "")
    found = []
    with (
        psycopg.connect(where, autocommit=True) as owner,
        psycopg.connect(where, user="alice", autocommit=True) as warm,
    ):
        width = _width(text)
        truth = {row[:-width]: row[-width:] for row in owner.execute(plain).fetchall()}
        _set(warm, arguments.epsilon)
        for method in arguments.methods.split(","):
            errors: list[float] = []
            times: dict[str, list[float]] = {"raw": [], "cold": [], "warm": []}
            try:
                warm.execute(f"set dp.mechanism = {method}")
                warm.execute(text)
            except psycopg.Error as error:
                found.append({"method": method, "why": str(error).splitlines()[0]})
                continue
            for number in range(arguments.repeat):
                if number < COLD:
                    times["raw"].append(_time(owner, plain)[0])
                    with psycopg.connect(where, user="alice", autocommit=True) as cold:
                        _set(cold, arguments.epsilon)
                        cold.execute(f"set dp.mechanism = {method}")
                        times["cold"].append(_time(cold, text)[0])
                ms, rows = _time(warm, text)
                times["warm"].append(ms)
                errors += _errors(rows, truth, width)
            spent = warm.execute(
                "select epsilon from dp.ledger order by id desc limit 1"
            ).fetchone()
            found.append(
                {
                    "epsilon": arguments.epsilon,
                    "method": method,
                    "groups": len(truth),
                    "repetitions": arguments.repeat,
                    "raw_ms": round(statistics.median(times["raw"]), 1),
                    "cold_ms": round(statistics.median(times["cold"]), 1),
                    "warm_ms": round(statistics.median(times["warm"]), 1),
                    "median_relative_error": round(statistics.median(errors), 6),
                    "worst_relative_error": round(max(errors), 6),
                    "spent_epsilon": None if spent is None else float(spent[0]),
                }
            )
    return found


def _width(text: str) -> int:
    """Return the number of aggregates in the select list: they come last."""
    return text.count("dp_")


def _set(connection: Connection, epsilon: float) -> None:
    connection.execute(f"set dp.epsilon = {epsilon}; set dp.fresh = on")


def _time(connection: Connection, text: str) -> tuple[float, list[Any]]:
    start = time.perf_counter()
    rows = connection.execute(text).fetchall()  # type: ignore[call-overload]
    return (time.perf_counter() - start) * 1e3, rows


def _errors(rows: list[Any], truth: dict[Any, Any], width: int) -> list[float]:
    """Return the relative error of every number that is not 0; of a group not shown it is 1."""
    shown = {row[:-width]: row[-width:] for row in rows}
    return [
        abs(float(noisy) / float(exact) - 1)
        for group, numbers in truth.items()
        for noisy, exact in zip(shown.get(group, (0,) * width), numbers, strict=True)
        if exact
    ]


if __name__ == "__main__":
    main()
