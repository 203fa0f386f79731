"""Releases through the server: how long from the call to the table, and how far it is off.

``python -m bench.releases [--scale 1] [--adult DIR] [--only lineitem,adult]``, on the cluster that
``make up`` started.  *lineitem*: CUBE over five attributes, interleaved with the raw GROUP BY CUBE,
five times each.  *adult*: all three-way marginals of Adult at epsilon 1 and delta 1e-9, once for
each mechanism; ``error`` is the mean over the marginals of sum |x - x'| / N.  Prints a table and,
last, one JSON line.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import grant, install, make, prepare_tpch, superuser

Connection = psycopg.Connection[Any]

KEYS = {
    "l_returnflag": "array['A','N','R']",
    "l_linestatus": "array['F','O']",
    "l_shipmode": "array['REG AIR','AIR','RAIL','SHIP','TRUCK','MAIL','FOB']",
    "l_shipinstruct": "array['DELIVER IN PERSON','COLLECT COD','NONE','TAKE BACK RETURN']",
    "l_linenumber": "1, 7",
}
ROUNDS = 5
#: Mechanism, post-processing.
ADULT = [
    ("residual_planner", "none"),
    ("aim", "none"),
    ("aim", "non_negative"),
    ("pairs", "non_negative"),
    ("pairs", "integral"),
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--adult", type=Path, default=Path("../shared/data/adult_mbi"))
    parser.add_argument("--only", default="lineitem,adult")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if "lineitem" in arguments.only:
        rows += lineitem(arguments.scale)
    if "adult" in arguments.only:
        rows += adult(arguments.adult)
    print(json.dumps({"bench": "releases", "rows": rows}))


def lineitem(scale: float) -> list[dict[str, Any]]:
    """Release a CUBE over lineitem, and count it plainly."""
    database = f"bench_tpch_sf{scale:g}".replace(".", "_")
    prepare_tpch(superuser(), database, scale)
    where = make_conninfo(superuser(), dbname=database)
    grant(where)
    keys = ", ".join(KEYS)
    with (
        psycopg.connect(where, autocommit=True) as owner,
        psycopg.connect(where, user="alice", autocommit=True) as alice,
    ):
        for key, domain in KEYS.items():
            owner.execute(f"select dp.set_domain('lineitem', '{key}', {domain})")
        alice.execute("set dp.fresh = on")
        times: dict[str, list[float]] = {"raw": [], "release": []}
        for k in range(ROUNDS):
            raw = f"select {keys}, count(*) from lineitem group by cube ({keys})"
            times["raw"].append(timed(owner, f"create temp table raw{k} as {raw}"))
            text = f"select {keys}, dp_count(*) from lineitem group by cube ({keys})"
            release = f"select dp.release('bench{k}', $$ {text} $$, 1, 1e-9)"
            times["release"].append(timed(alice, release))
            alice.execute(f"select dp.drop_release('bench{k}')")
        lines = owner.execute("select count(*) from lineitem").fetchone()
    medians = {name: statistics.median(found) for name, found in times.items()}
    row = {
        "data": "lineitem",
        "rows": lines[0] if lines else 0,
        "raw_s": round(medians["raw"], 2),
        "release_s": round(medians["release"], 2),
        "ratio": round(medians["release"] / medians["raw"], 3),
    }
    print(" ".join(f"{value}" for value in row.values()), flush=True)
    return [row]


def adult(folder: Path) -> list[dict[str, Any]]:
    """Release all three-way marginals of Adult by several mechanisms."""
    sizes = json.loads((folder / "adult-domain.json").read_text())
    names = [name.replace("-", "_").replace(">", "_").lower() for name in sizes]

    def load() -> None:
        with psycopg.connect(make_conninfo(superuser(), dbname="bench_adult")) as owner:
            listed = ", ".join(f"{name} smallint not null" for name in names)
            owner.execute(f"create table adult ({listed})")
            with (
                gzip.open(folder / "adult.csv.gz", "rb") as source,
                owner.cursor().copy("copy adult from stdin csv header") as target,
            ):
                target.write(source.read())

    make(superuser(), "bench_adult", load)
    where = make_conninfo(superuser(), dbname="bench_adult")
    domains = (
        f"select dp.set_domain('adult', '{name}', 0, {size - 1});"
        for name, size in zip(names, sizes.values(), strict=True)
    )
    install(where, f"select dp.protect('adult'); {''.join(domains)}")
    grant(where)
    listed = ", ".join(names)
    sets = ", ".join(f"({', '.join(c)})" for c in itertools.combinations(names, 3))
    code = " || ',' || ".join(f"coalesce({name}::text, '')" for name in names)
    rows = []
    with (
        psycopg.connect(where, autocommit=True) as owner,
        psycopg.connect(where, user="alice", autocommit=True) as alice,
    ):
        owner.execute(
            f"create temp table truth as select grouping({listed})::bigint as g, {code} as k,"
            f" count(*) as n from adult group by grouping sets ({sets})"
        )
        alice.execute("set dp.fresh = on")
        for mechanism, postprocess in ADULT:
            text = f"select {listed}, dp_count(*) from adult group by grouping sets ({sets})"
            seconds = timed(
                alice,
                f"select dp.release('bench', $$ {text} $$, 1, 1e-9, '{mechanism}',"
                f" '{postprocess}')",
            )
            found = owner.execute(
                'with released as (select "grouping"::bigint as g, value,'
                f" {code} as k from dpv.bench where value <> 0)"
                " select avg(e) / (select count(*) from adult) from (select g, sum(abs("
                "coalesce(value, 0) - coalesce(n, 0))) as e from truth full join released"
                " using (g, k) group by g) as s"
            ).fetchone()
            alice.execute("select dp.drop_release('bench')")
            row = {
                "data": "adult",
                "mechanism": mechanism,
                "postprocess": postprocess,
                "seconds": round(seconds, 1),
                "error": round(float(found[0]), 4) if found else None,
            }
            print(" ".join(f"{value}" for value in row.values()), flush=True)
            rows.append(row)
    return rows


def timed(connection: Connection, statement: str) -> float:
    """Run a statement; seconds."""
    start = time.perf_counter()
    connection.execute(statement)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
