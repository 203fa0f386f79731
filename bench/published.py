"""The queries that R2T was published with, beside the errors that its authors report.

``python -m bench.published [--sf 1] [--repeat 20] [--queries Q3,Q5]``, on the cluster that
``make up`` started: epsilon 0.8, GS 10^6, the joins of TPC-H queries without GROUP BY as Dong et
al. (SIGMOD 2022, section 10) count them, one or two kinds of privacy units.  The error is the mean
of the absolute errors without the greatest and least fifth of the runs, as published; the
published mean is of 6 of 10 runs at scale factor 1.  Prints a table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import prepare_units, superuser

EPSILON = 0.8
LARGEST = 1_000_000
#: Name, privacy units, query, most results of a unit (GS over the bound), published error.
QUERIES: list[tuple[str, tuple[str, ...], str, int, float]] = [
    (
        "Q3",
        ("customer",),
        "select dp_count(*) from customer, orders, lineitem where c_custkey = o_custkey"
        " and l_orderkey = o_orderkey and o_orderdate < date '1995-03-15'",
        LARGEST,
        7339 / 2888656,
    ),
    (
        "Q5",
        ("customer", "supplier"),
        "select dp_count(*) from customer, orders, lineitem, supplier where c_custkey = o_custkey"
        " and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey",
        LARGEST,
        3902 / 239917,
    ),
    (
        "Q10",
        ("customer",),
        "select dp_count(*) from customer, orders where c_custkey = o_custkey",
        LARGEST,
        2615 / 1500000,
    ),
    (
        "Q11",
        ("supplier",),
        "select dp_sum(ps_supplycost * ps_availqty / 1000000, 0, 20)"
        " from partsupp, supplier where ps_suppkey = s_suppkey",
        LARGEST // 20,
        36438 / 2003609,
    ),
    (
        "Q12",
        ("orders",),
        "select dp_count(*) from orders, lineitem where o_orderkey = l_orderkey",
        LARGEST,
        1373 / 6001215,
    ),
    (
        "Q18",
        ("customer",),
        "select dp_sum(l_quantity, 0, 50) from customer, orders, lineitem"
        " where c_custkey = o_custkey and o_orderkey = l_orderkey",
        LARGEST // 50,
        201958 / 153078795,
    ),
    (
        "Q20",
        ("supplier",),
        "select dp_count(*) from supplier, lineitem where s_suppkey = l_suppkey",
        LARGEST,
        34726 / 6001215,
    ),
    (
        "Q21",
        ("supplier", "orders"),
        "select dp_count(*) from supplier, orders, lineitem"
        " where s_suppkey = l_suppkey and o_orderkey = l_orderkey",
        LARGEST,
        39262 / 6001215,
    ),
]
METHODS = ("quantile", "r2t")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="1")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--queries", default="")
    parser.add_argument("--methods", default=",".join(METHODS))
    arguments = parser.parse_args()
    database = f"bench_units_sf{arguments.sf.replace('.', '_')}"
    where = make_conninfo(superuser(), dbname=database)
    rows: list[dict[str, Any]] = []
    declared: tuple[str, ...] = ()
    for name, units, text, largest, published in QUERIES:
        if arguments.queries and name not in arguments.queries.split(","):
            continue
        if units != declared:
            prepare_units(superuser(), database, float(arguments.sf), units)
            declared = units
        for method in arguments.methods.split(","):
            row = _measure(where, text, largest, method, arguments.repeat)
            row = {"query": name, "units": "+".join(units), "method": method} | row
            row["published_relative_error"] = round(published, 6)
            print(" ".join(f"{value}" for value in row.values()), flush=True)
            rows.append(row)
    print(json.dumps({"bench": "published", "epsilon": EPSILON, "sf": arguments.sf, "rows": rows}))


def _measure(where: str, text: str, largest: int, method: str, repeat: int) -> dict[str, Any]:
    with (
        psycopg.connect(where, autocommit=True) as owner,
        psycopg.connect(where, user="alice", autocommit=True) as analyst,
    ):
        (truth,) = owner.execute(_plain(text)).fetchone() or (0,)  # type: ignore[call-overload]
        analyst.execute(
            f"set dp.epsilon = {EPSILON}; set dp.fresh = on; set dp.mechanism = {method};"
            f" set dp.max_contribution = {largest}"
        )
        errors, times = [], []
        for _ in range(repeat):
            start = time.perf_counter()
            try:
                (found,) = analyst.execute(text).fetchone()  # type: ignore[call-overload, misc]
            except psycopg.Error as error:
                return {"why": str(error).splitlines()[0]}
            times.append((time.perf_counter() - start) * 1e3)
            errors.append(abs(float(found) - float(truth)))
    kept = sorted(errors)[repeat // 5 : repeat - repeat // 5]
    return {
        "truth": float(truth),
        "warm_ms": round(statistics.median(times), 1),
        "mean_relative_error": round(statistics.fmean(kept) / float(truth), 6),
    }


def _plain(text: str) -> str:
    for bounds in (", 0, 20)", ", 0, 50)"):
        text = text.replace(bounds, ")")
    return text.replace("dp_", "")


if __name__ == "__main__":
    main()
