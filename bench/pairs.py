"""Counts over TPC-H whose results belong to two privacy units of different kinds.

``python -m bench.pairs [--sf 1] [--repeat 20] [--epsilons 0.8] [--queries q5,...]
[--methods quantile,r2t] [--largest 1000000] [--seconds 600]``: the joins of query 5 with customers
and suppliers as units and of query 21 with suppliers and orders, as R2T's authors counted them
(Dong and others, SIGMOD 2022).  Rows as those of `bench.graphs`.
"""

from __future__ import annotations

import argparse
import json
from itertools import product

from psycopg.conninfo import make_conninfo

from bench.data import install, load_tpch, make, superuser
from bench.graphs import measure

QUERIES = {
    "q5": (
        ("customer", "supplier"),
        "select dp_count(*) from customer, orders, lineitem, supplier where c_custkey = o_custkey"
        " and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey",
    ),
    "q21": (
        ("supplier", "orders"),
        "select dp_count(*) from supplier, lineitem, orders where s_suppkey = l_suppkey"
        " and o_orderkey = l_orderkey",
    ),
}
KEYS = {"customer": "c_custkey", "supplier": "s_suppkey", "orders": "o_orderkey"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="1")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--epsilons", default="0.8")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--methods", default="quantile,r2t")
    parser.add_argument("--largest", type=int, default=10**6, help="dp.max_contribution, GS")
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.queries.split(","):
        units, text = QUERIES[name]
        where = _prepare(superuser(), arguments.sf, units)
        asked = product(arguments.methods.split(","), arguments.epsilons.split(","))
        for method, epsilon in asked:
            row = {"query": name, "data": f"tpch sf {arguments.sf}", "units": "+".join(units)}
            row |= measure(where, text, method, float(epsilon), arguments)
            print(" ".join(f"{value}" for value in row.values()), flush=True)
            rows.append(row)
    print(json.dumps({"bench": "pairs", "largest": arguments.largest, "rows": rows}))


def _prepare(dsn: str, scale: str, units: tuple[str, ...]) -> str:
    database = f"bench_pairs_sf{scale.replace('.', '_')}"
    where = make_conninfo(dsn, dbname=database)
    make(dsn, database, lambda: load_tpch(where, float(scale), indexed=False))
    install(
        where,
        "".join(
            f"select dp.protect('{unit}', privacy_unit => '{KEYS[unit]}', delta => 0.001);"
            for unit in units
        )
        + "select dp.declare_public(c.oid) from pg_class c"
        " where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and not exists"
        " (select from dp.relations r where r.relation_name = c.relname);"
        "select dp.grant_budget('alice', epsilon => 1000000, delta => 0.001)",
    )
    return where


if __name__ == "__main__":
    main()
