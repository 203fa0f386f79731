"""What the evaluation of sensitivity methods measures with: queries, methods, mechanisms."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from bench.data import prepare_network, prepare_tpch, superuser
from bench.queries import FACEBOOK, TPCH, statement
from dpsql.core.mechanisms import calibrated, cauchy, laplace
from dpsql.core.rng import SystemNoise

Row = dict[str, Any]
Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Method:
    """How a method is asked for: dp.sensitivity's name, settings, and whether keys may help.

    The paper's methods know no keys.  TPC-H has many, and a sketch is built of what foreign keys
    leave of a join, so that without them there is none.  Statistics are live, but for sketches,
    and for elastic sensitivity where the paper computes maximum frequencies beforehand, too.
    """

    name: str
    filtered: bool = False
    keys: bool = False
    statistics: str = "live"


METHODS = {
    "elastic": Method("elastic"),
    "elastic_stored": Method("elastic", statistics="stored"),
    "residual": Method("residual"),
    "residual_keys": Method("residual", keys=True),
    "sampling": Method("sampling"),
    "sampling_published": Method("sampling_published"),
    "sampling_published_filtered": Method("sampling_published", filtered=True),
    "sampling_estimate": Method("sampling_estimate"),
    "sampling_estimate_filtered": Method("sampling_estimate", filtered=True),
    "sketch": Method("sketch"),
    "sketch_keys": Method("sketch", keys=True),
    "sketch_published": Method("sketch_published"),
}
SAMPLING = tuple(label for label in METHODS if label.startswith("sampling"))
ESTIMATORS = 100_000
#: Of Q8, whose relation of six million rows has three keys; norms do not depend on it.
FEW_ESTIMATORS = 1_000
DELTA = Fraction(1, 10**7)
#: Answers whose noise gives a median.
DRAWS = 201
#: A call that takes longer is stopped and reported so; a method is not asked again after this.
MOST_SECONDS = 300
ENOUGH_SECONDS = 12


@dataclass(frozen=True)
class Target:
    """A query with the database that it is asked in."""

    name: str
    data: str
    dsn: str
    query: tuple[str, str]

    def connect(self) -> Connection:
        """Open a session that gives up after `MOST_SECONDS`."""
        connection = psycopg.connect(self.dsn, autocommit=True)
        connection.execute(f"set statement_timeout = '{MOST_SECONDS}s'")
        return connection


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


def laplaces(epsilon: float, private: int, labels: Iterable[str]) -> dict[str, Mechanism]:
    """Return our Laplace mechanism for each method."""
    return {label: next(mechanisms(epsilon, private, label)) for label in labels}


def mechanisms(epsilon: float, private: int, label: str = "residual") -> Iterator[Mechanism]:
    """Yield the three mechanisms, and the Laplace formula as published.

    ``sampling`` may fail, and pays half of delta for it.
    """
    exact = Fraction(str(epsilon))
    delta = DELTA / 2 if label == "sampling" else DELTA
    ours = laplace.plan_smooth(exact, delta)
    yield Mechanism("laplace", ours.beta, ours)
    beta = epsilon / (2 * math.log(2 / float(delta)))
    yield Mechanism("laplace_published", beta, None, 2 / epsilon)
    pure = cauchy.plan(exact)
    yield Mechanism("cauchy", pure.beta, pure)
    drawn = calibrated.plan(exact, delta, private - 1)
    yield Mechanism("calibrated", drawn.beta, drawn)


def targets(wanted: list[str], scale: str) -> list[Target]:
    """Prepare databases, statistics and sketches of the wanted queries."""
    dsn = superuser()
    found = []
    if any(name in TPCH for name in wanted):
        database = f"bench_walks_sf{scale.replace('.', '_')}"
        prepare_tpch(dsn, database, float(scale), indexed=True)
        where = make_conninfo(dsn, dbname=database)
        found += [Target(n, f"tpch sf {scale}", where, q) for n, q in TPCH.items() if n in wanted]
    if any(name in FACEBOOK for name in wanted):
        where = prepare_network(dsn)
        found += [Target(n, "ego-facebook", where, q) for n, q in FACEBOOK.items() if n in wanted]
    for target in found:
        _sketch(target)
    return found


def _sketch(target: Target) -> None:
    """Take statistics of a target's relations, and build sketches where they can be built."""
    estimators = FEW_ESTIMATORS if target.name == "Q8" else ESTIMATORS
    with target.connect() as connection:
        for relation in target.query[0].split(", "):
            connection.execute("select dp.collect_statistics(%s::regclass)", [relation])
            connection.execute("select dp.refresh_statistics(%s::regclass)", [relation])
        start = time.perf_counter()
        try:
            connection.execute("set maintenance_work_mem = '1GB'")
            text = statement(target.query, "dp_count(*)")
            connection.execute("select dp.create_sketch(%s, %s)", [text, estimators])
        except psycopg.Error as error:
            print(f"{target.name}: no sketch: {error.diag.message_primary}", flush=True)
        else:
            seconds = time.perf_counter() - start
            print(f"{target.name}: sketches built in {seconds:.1f} s", flush=True)


def ask(connection: Connection, target: Target, label: str, beta: float) -> Row:
    """Return the smooth sensitivity and the milliseconds that it took, or why there is none."""
    method = METHODS[label]
    connection.execute(
        f"set dp.sampling_filter = {method.filtered}; set dp.statistics = {method.statistics};"
        f" set dp.delta = {float(DELTA)}"
    )
    call = "select dp.sensitivity(%s, method => %s, beta => %s, use_keys => %s)"
    text = statement(target.query, "dp_count(*)")
    start = time.perf_counter()
    try:
        found = connection.execute(call, [text, method.name, beta, method.keys])
        row = found.fetchone()
    except psycopg.errors.QueryCanceled:
        return {"sensitivity": None, "ms": None, "why": f"more than {MOST_SECONDS} s"}
    except psycopg.Error as error:
        return {"sensitivity": None, "ms": None, "why": error.diag.message_primary}
    ms = (time.perf_counter() - start) * 1e3
    return {"sensitivity": None if row is None else row[0], "ms": round(ms, 2)}


def medians(
    connection: Connection, target: Target, betas: dict[str, float], rounds: int
) -> dict[str, Row]:
    """Ask each method ``rounds`` times, in turn; medians of both figures.

    A method that has no answer, or has taken `ENOUGH_SECONDS`, is not asked again.
    """
    rows: dict[str, list[Row]] = {label: [] for label in betas}
    ask(connection, target, "residual", betas.get("residual", 0.1))  # warms up
    for _ in range(rounds):
        for label, beta in betas.items():
            spent = sum(row["ms"] or math.inf for row in rows[label]) / 1e3
            if spent < ENOUGH_SECONDS:
                rows[label].append(ask(connection, target, label, beta))
    return {label: middle(asked) for label, asked in rows.items()}


def middle(asked: list[Row]) -> Row:
    """Return the medians of repeated measurements, or the first that failed."""
    failed = [row for row in asked if row["ms"] is None]
    if failed:
        return failed[0]
    names = [name for name in ("sensitivity", "ms", "walks") if name in asked[0]]
    return {name: statistics.median(row[name] for row in asked) for name in names} | {
        "rounds": len(asked)
    }


def report(
    part: str, target: Target, epsilon: float, label: str, mechanism: Mechanism, asked: Row
) -> Row:
    """Put a measurement in the form of the benchmark's JSON line."""
    scale = error = None
    if asked["sensitivity"] is not None:
        scale, error = mechanism.noise(max(asked["sensitivity"], 1.0))
    return {
        "part": part,
        "query": target.name,
        "data": target.data,
        "epsilon": epsilon,
        "method": label,
        "mechanism": mechanism.name,
        "noise_scale": scale,
        "median_error": error,
        **asked,
    }


def truth(connection: Connection, target: Target) -> int | None:
    """Return the plain count; of Q4, which takes minutes to join, from its degrees."""
    if target.name == "Q4":
        return _path_count(connection)
    row = connection.execute(statement(target.query, "count(*)")).fetchone()
    return None if row is None else int(row[0])


def _path_count(connection: Connection) -> int:
    """Count the paths edge by edge: how many end in each node."""
    sql = "select edge1_to as node, count(*)::numeric as n from edge1 group by 1"
    for i in range(2, 6):
        sql = (
            f"select e.edge{i}_to as node, sum(p.n) as n from edge{i} e"
            f" join ({sql}) p on p.node = e.edge{i}_from group by 1"
        )
    row = connection.execute(f"select sum(n) from ({sql}) p").fetchone()
    return 0 if row is None else int(row[0])


def private(connection: Connection, target: Target) -> int:
    """Return how many protected relations a query has."""
    sql = "select count(*) from dp.relations where kind = 'protected' and relation_name = any (%s)"
    row = connection.execute(sql, [target.query[0].split(", ")]).fetchone()
    return 1 if row is None else int(row[0])
