"""The evaluation of "Sensitivity estimation for differentially private query processing", again.

``python -m bench.sensitivity [--parts epsilon,time,rate,scale] [--sf 0.1] [--scales 0.01,0.1]
[--rounds 5]``, on the cluster that ``make up`` started.  Writes SVG figures and, last, one JSON
line.
``noise_scale`` is the scale of the noise that a mechanism adds at this sensitivity (of
``calibrated``, which draws it, the median), ``median_error`` the median of the absolute noise,
``ms`` the time of the sensitivity alone; ``null`` where a method refuses, which ``why`` explains.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import prepare_r6, prepare_tpch, superuser
from bench.queries import FACEBOOK, TPCH, statement
from dpsql.core.mechanisms import calibrated, cauchy, laplace
from dpsql.core.rng import SystemNoise

EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
SAMPLING = ("sampling", "sampling_published", "sampling_estimate")
METHODS = ("elastic", "residual", *SAMPLING, "sketch", "sketch_published")
ESTIMATORS = 100_000
DELTA = Fraction(1, 10**7)
DRAWS = 201


@dataclass(frozen=True)
class Target:
    """A query with the database that it is asked in."""

    name: str
    data: str
    dsn: str
    query: tuple[str, str]


@dataclass(frozen=True)
class Mechanism:
    """A mechanism at one epsilon: where it wants the sensitivity, and what it then adds."""

    name: str
    beta: float
    plan: Any
    factor: float | None = None

    def noise(self, sensitivity: float) -> tuple[float, float]:
        """Return the scale of the noise and the median of its magnitude."""
        if self.factor is not None:  # Laplace as published: the median of |Lap(b)| is b ln 2
            return self.factor * sensitivity, self.factor * sensitivity * math.log(2)
        source = SystemNoise()
        exact = Fraction(sensitivity)
        releases = [self.plan.release([0], exact, source) for _ in range(DRAWS)]
        error = statistics.median(abs(r.values[0]) for r in releases)
        if self.name == "calibrated":
            return statistics.median(float(r.scale) for r in releases), error
        scale = self.plan.factor if self.name == "laplace" else 1 / self.plan.slope
        return float(scale) * sensitivity, error


def mechanisms(epsilon: float, private: int) -> Iterator[Mechanism]:
    """Yield the three mechanisms, and the Laplace formula as published."""
    exact = Fraction(str(epsilon))
    ours = laplace.plan_smooth(exact, DELTA)
    yield Mechanism("laplace", ours.beta, ours)
    beta = epsilon / (2 * math.log(2 / float(DELTA)))
    yield Mechanism("laplace_published", beta, None, 2 / epsilon)
    pure = cauchy.plan(exact)
    yield Mechanism("cauchy", pure.beta, pure)
    drawn = calibrated.plan(exact, DELTA, private - 1)
    yield Mechanism("calibrated", drawn.beta, drawn)


def main() -> None:
    """Measure, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="epsilon,time,rate,scale")
    parser.add_argument("--sf", default="0.1", help="TPC-H scale factor of the first three parts")
    parser.add_argument("--scales", default="0.01,0.05,0.1", help="scale factors of part scale")
    parser.add_argument("--queries", default="Q1,Q2,Q3,Q4,Q5,Q6,Q7")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    wanted = arguments.queries.split(",")
    targets = _targets(wanted, arguments.sf)
    rows: list[dict[str, Any]] = []
    if "epsilon" in parts:
        for target in targets:
            rows += _epsilon(target)
    if "time" in parts:
        for target in targets:
            rows += _time(target, arguments.rounds)
    if "rate" in parts:
        for target in targets:
            if target.name in ("Q1", "Q4"):
                rows += _rate(target, arguments.rounds)
    if "scale" in parts:
        for scale in arguments.scales.split(","):
            for target in _targets([n for n in wanted if n in TPCH], scale):
                rows += _scale(target)
    from bench.figures import draw

    draw(rows, arguments.figures)
    print(json.dumps({"bench": "sensitivity", "rows": rows}))


def _targets(wanted: list[str], scale: str) -> list[Target]:
    dsn = superuser()
    found = []
    if any(name in TPCH for name in wanted):
        database = f"bench_tpch_sf{scale.replace('.', '_')}"
        prepare_tpch(dsn, database, float(scale))
        where = make_conninfo(dsn, dbname=database)
        found += [Target(n, f"tpch sf {scale}", where, q) for n, q in TPCH.items() if n in wanted]
    if any(name in FACEBOOK for name in wanted):
        where = make_conninfo(dsn, dbname="facebook")
        prepare_r6(where)
        found += [Target(n, "ego-facebook", where, q) for n, q in FACEBOOK.items() if n in wanted]
    for target in found:
        _sketch(target)
    return found


def _sketch(target: Target) -> None:
    """Build sketches of a target's relations, where they can be built."""
    with psycopg.connect(target.dsn, autocommit=True) as connection:
        for relation in target.query[0].split(", "):
            connection.execute("select dp.collect_statistics(%s::regclass)", [relation])
        start = time.perf_counter()
        try:
            connection.execute("set maintenance_work_mem = '1GB'")
            text = statement(target.query, "dp_count(*)")
            connection.execute("select dp.create_sketch(%s, %s)", [text, ESTIMATORS])
        except psycopg.Error as error:
            print(f"{target.name}: no sketch: {error.diag.message_primary}", flush=True)
        else:
            seconds = time.perf_counter() - start
            print(f"{target.name}: sketches built in {seconds:.1f} s", flush=True)


def _epsilon(target: Target) -> Iterator[dict[str, Any]]:
    """Noise against epsilon (figures 5 and 6)."""
    with psycopg.connect(target.dsn, autocommit=True) as connection:
        truth = _truth(connection, target)
        for epsilon in EPSILONS:
            for mechanism in mechanisms(epsilon, _private(connection, target)):
                for method in METHODS:
                    if method in SAMPLING and mechanism.name != "laplace":
                        continue  # every point is a run of its own
                    row = _ask(connection, target, method, mechanism.beta)
                    yield _row("epsilon", target, epsilon, method, mechanism, row) | {
                        "truth": truth
                    }
        print(f"{target.name}: noise against epsilon done", flush=True)


def _time(target: Target, rounds: int) -> Iterator[dict[str, Any]]:
    """Time per query, methods in turn (figures 7 and 8); medians."""
    times: dict[str, list[float]] = {method: [] for method in METHODS}
    why: dict[str, str | None] = {}
    with psycopg.connect(target.dsn, autocommit=True) as connection:
        mechanism = next(mechanisms(0.8, _private(connection, target)))
        for _ in range(rounds + 1):  # the first one warms up
            for method in METHODS:
                row = _ask(connection, target, method, mechanism.beta)
                why[method] = row.get("why")
                if row["ms"] is not None:
                    times[method].append(row["ms"])
    for method, found in times.items():
        ms = round(statistics.median(found[1:]), 1) if len(found) > 1 else None
        print(f"{target.name} {method:20} {ms} ms", flush=True)
        row = {"sensitivity": None, "ms": ms, "why": why[method]}
        yield _row("time", target, 0.8, method, mechanism, row)


def _rate(target: Target, rounds: int) -> Iterator[dict[str, Any]]:
    """Sensitivity and noise against the sampling rate at epsilon 6.4 (figures 9, 10, 11)."""
    with psycopg.connect(target.dsn, autocommit=True) as connection:
        for mechanism in mechanisms(6.4, _private(connection, target)):
            for method in ("elastic", "residual"):
                row = _ask(connection, target, method, mechanism.beta)
                yield _row("rate", target, 6.4, method, mechanism, row) | {"rate": None}
            for rate in RATES:
                connection.execute(f"set dp.sampling_rate = {rate}")
                for method in SAMPLING:
                    asked = [
                        _ask(connection, target, method, mechanism.beta) for _ in range(rounds)
                    ]
                    asked.sort(key=lambda row: row["sensitivity"] or 0.0)
                    middle = asked[rounds // 2]
                    yield _row("rate", target, 6.4, method, mechanism, middle) | {"rate": rate}
    print(f"{target.name}: sampling rates done", flush=True)


def _scale(target: Target) -> Iterator[dict[str, Any]]:
    """Noise against the scale of the data (figure 12)."""
    with psycopg.connect(target.dsn, autocommit=True) as connection:
        mechanism = next(mechanisms(0.8, _private(connection, target)))
        truth = _truth(connection, target)
        for method in METHODS:
            row = _ask(connection, target, method, mechanism.beta)
            yield _row("scale", target, 0.8, method, mechanism, row) | {"truth": truth}


def _ask(
    connection: psycopg.Connection[Any], target: Target, method: str, beta: float
) -> dict[str, Any]:
    call = "select dp.sensitivity(%s, method => %s, beta => %s)"
    start = time.perf_counter()
    try:
        found = connection.execute(call, [statement(target.query, "dp_count(*)"), method, beta])
        row = found.fetchone()
    except psycopg.Error as error:
        return {"sensitivity": None, "ms": None, "why": error.diag.message_primary}
    ms = (time.perf_counter() - start) * 1e3
    return {"sensitivity": None if row is None else row[0], "ms": round(ms, 2)}


def _row(
    part: str,
    target: Target,
    epsilon: float,
    method: str,
    mechanism: Mechanism,
    asked: dict[str, Any],
) -> dict[str, Any]:
    scale = error = None
    if asked["sensitivity"] is not None:
        scale, error = mechanism.noise(max(asked["sensitivity"], 1.0))
    return {
        "part": part,
        "query": target.name,
        "data": target.data,
        "epsilon": epsilon,
        "method": method,
        "mechanism": mechanism.name,
        "noise_scale": scale,
        "median_error": error,
        **asked,
    }


def _truth(connection: psycopg.Connection[Any], target: Target) -> int | None:
    """Return the plain count; of Q4, which takes minutes to join, from its degrees."""
    if target.name == "Q4":
        return _path_count(connection)
    row = connection.execute(statement(target.query, "count(*)")).fetchone()
    return None if row is None else int(row[0])


def _path_count(connection: psycopg.Connection[Any]) -> int:
    """Count the paths edge by edge: how many end in each node."""
    sql = "select edge1_to as node, count(*)::numeric as n from edge1 group by 1"
    for i in range(2, 6):
        sql = (
            f"select e.edge{i}_to as node, sum(p.n) as n from edge{i} e"
            f" join ({sql}) p on p.node = e.edge{i}_from group by 1"
        )
    row = connection.execute(f"select sum(n) from ({sql}) p").fetchone()
    return 0 if row is None else int(row[0])


def _private(connection: psycopg.Connection[Any], target: Target) -> int:
    sql = "select count(*) from dp.relations where kind = 'protected' and relation_name = any (%s)"
    row = connection.execute(sql, [target.query[0].split(", ")]).fetchone()
    return 1 if row is None else int(row[0])


if __name__ == "__main__":
    main()
