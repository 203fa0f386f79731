"""AIM and post-processing on all 3-way marginals: error against time.

``python -m bench.aim --data FOLDER [--name adult] [--epsilons 0.1,1,10] [--seeds 3] [--draw FILE]``

FOLDER holds ``NAME.csv.gz``, integers from 0 with a line of names, and ``NAME-domain.json``, the
number of levels of each.  No cluster is needed: counts come from the file, noise from numpy,
so that seconds are those of counting in numpy and of the mathematics: choosing, measuring,
reconstructing, post-processing, and making every table once.

The error is the mean over all 3-way marginals of ``|x - estimate|_1 / N``, with the true N, which
no mechanism is told (mbi prints half of that).  Budgets are (epsilon, 1e-9).
Prints a row as it is found and, last, one JSON line.

AIM+PGM takes minutes, so that it runs when it is asked for, with the budget of two rounds for each
attribute and a model of 5 MB: ``--mechanisms AIM+GReM,AIM+PGM --epsilons 1 --seeds 1`` measures how
many times faster AIM+GReM is, each with its own reconstruction.

``--parts tables`` measures rows of synthetic tables, as ``dp.synthesize`` draws them:
``--methods`` names their mechanisms.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpsql.synthesis.table_rows import METHODS, table_mechanism, table_rows
from dpsql.workload.aim import Schedule, aim
from dpsql.workload.conditional_planner import conditional_plan
from dpsql.workload.grem import Residuals
from dpsql.workload.junction_tree import model_cells
from dpsql.workload.lazy import LazyMarginals
from dpsql.workload.marginals import Floats, attributes_of, k_way
from dpsql.workload.mechanism import Mechanism
from dpsql.workload.mechanism_aim import AimMechanism
from dpsql.workload.mixture import fit_mixture
from dpsql.workload.mixture_rows import count_rows, sample_rows
from dpsql.workload.model_estimates import ModelEstimates
from dpsql.workload.pgm import MOST_CELLS, fit_model
from dpsql.workload.planned import measure_plan, plan_pairs
from dpsql.workload.postprocess import clip_and_rescale, project_simplex
from dpsql.workload.residual_bases import Integers, subtraction
from dpsql.workload.residual_planner import ResidualPlan, plan

DELTA = 1e-9
PGM = "AIM+PGM"
_FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
#: Measured elsewhere at epsilon 1, by data: error and seconds.
ELSEWHERE = {"adult": {"AIM+PGM, 28 rounds, 5 MB": (0.179, 758.0), "MST": (0.225, 98.0)}}

Row = dict[str, Any]
Tables = Callable[[int], Floats]


class Data:
    """Counts of a file's rows, and noise."""

    def __init__(self, folder: Path, name: str, seed: int = 0) -> None:
        self.name = name
        levels = json.loads((folder / f"{name}-domain.json").read_text())
        with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
            lines = csv.reader(file)
            names = next(lines)
            table = np.array([[int(float(value)) for value in line] for line in lines])
        self.sizes = [int(n) for n in levels.values()]
        self.rows = table[:, [names.index(attribute) for attribute in levels]]
        self.bases = subtraction(self.sizes)
        self.triples = k_way(len(self.sizes), 3)
        self.counts = count_rows(self.rows, self.sizes, self.triples)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Begin new noise."""
        self.rng = np.random.default_rng(seed)

    def batch(self, masks: Sequence[int]) -> Mapping[int, Integers]:
        """Count marginals."""
        return count_rows(self.rows, self.sizes, masks)

    def gaussian(self, variance: Fraction, count: int) -> Integers:
        """Draw rounded Gaussians."""
        drawn = self.rng.standard_normal(count) * math.sqrt(variance)
        return np.rint(drawn, out=drawn).astype(np.int64)

    def choose(self, scores: Sequence[int], rate: Fraction) -> int:
        """Draw by the exponential mechanism, as the largest score with Gumbel noise."""
        top = max(scores)
        shifted = np.array([float(rate * (score - top)) for score in scores])
        return int(np.argmax(shifted + self.rng.gumbel(size=len(scores))))

    def error(self, tables: Tables) -> tuple[float, float]:
        """Return the mean error, and the seconds that making the tables takes."""
        errors, seconds = [], 0.0
        for mask in self.triples:
            start = time.perf_counter()
            table = tables(mask)
            seconds += time.perf_counter() - start
            errors.append(float(np.abs(table - self.counts[mask]).sum()) / len(self.rows))
        return statistics.fmean(errors), seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--name", default="adult")
    parser.add_argument("--epsilons", default="0.1,1,10")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", default="ablation,mechanisms")
    parser.add_argument("--mechanisms", default=",".join(n for n in MEASURERS if n != PGM))
    parser.add_argument("--methods", default=",".join(METHODS), help="of tables")
    parser.add_argument("--draw", type=Path, help="draw the kept JSON lines of this file")
    arguments = parser.parse_args()
    if arguments.draw:
        from bench.aim_figure import draw

        draw(json.loads(arguments.draw.read_text())["rows"], _FIGURES)
        return
    if arguments.data is None:
        parser.error("--data is needed")
    data = Data(arguments.data, arguments.name)
    rows = []
    found: list[Iterator[Row]] = []
    if "ablation" in arguments.parts:
        found.append(ablation(data))
    epsilons = [float(epsilon) for epsilon in arguments.epsilons.split(",")]
    if "tables" in arguments.parts:
        found.append(synthetic(data, arguments.methods.split(","), epsilons, arguments.seeds))
    if "mechanisms" in arguments.parts:
        found.append(mechanisms(data, arguments.mechanisms.split(","), epsilons, arguments.seeds))
    for part in found:
        for row in part:
            print(" ".join(f"{value}" for value in row.values()), flush=True)
            rows.append({"data": arguments.name} | row)
    print(json.dumps({"bench": "aim", "rows": rows}))


def mechanisms(data: Data, names: list[str], epsilons: list[float], seeds: int) -> Iterator[Row]:
    """Compare mechanisms and ways of post-processing."""
    for epsilon in epsilons:
        rho = Fraction(rho_of(epsilon, DELTA)).limit_denominator(10**12)
        whole: dict[str, float] = {}
        for name in names:
            results: dict[str, list[tuple[float, float]]] = {}
            rounds = []
            for seed in range(seeds):
                data.seed(seed)
                start = time.perf_counter()
                residuals, number = MEASURERS[name](data, rho)
                seconds = time.perf_counter() - start
                rounds.append(number)
                for way, tables in _ways(residuals, data):
                    start = time.perf_counter()
                    make = tables()
                    fitted = time.perf_counter() - start
                    error, writing = data.error(make)
                    results.setdefault(way, []).append((error, seconds + fitted + writing))
            for way, pairs in results.items():
                if way == ("pgm" if name == PGM else "none"):
                    whole[name] = statistics.fmean(s for _, s in pairs)
                yield {
                    "part": "mechanisms",
                    "epsilon": epsilon,
                    "mechanism": name,
                    "postprocess": way,
                    "rounds": statistics.fmean(rounds),
                    "error": round(statistics.fmean(e for e, _ in pairs), 4),
                    "spread": round(statistics.stdev(e for e, _ in pairs), 4) if seeds > 1 else 0,
                    "seconds": round(statistics.fmean(s for _, s in pairs), 2),
                }
        if {PGM, "AIM+GReM"} <= set(whole):
            ratio = whole[PGM] / whole["AIM+GReM"]
            yield {
                "part": "ratio",
                "epsilon": epsilon,
                "mechanism": f"{PGM} / AIM+GReM",
                "seconds": round(ratio, 1),
            }
    data.seed(0)
    again = data.rows[data.rng.integers(len(data.rows), size=len(data.rows))]
    tables = count_rows(again, data.sizes, data.triples)
    bootstrap, _ = data.error(lambda mask: tables[mask].astype(np.float64))
    yield {"part": "reference", "mechanism": "bootstrap", "error": round(bootstrap, 4)}
    for name, (error, seconds) in ELSEWHERE.get(data.name, {}).items():
        yield {"part": "reference", "mechanism": name, "error": error, "seconds": seconds}


def synthetic(data: Data, methods: list[str], epsilons: list[float], seeds: int) -> Iterator[Row]:
    """Compare the rows of synthetic tables (``dp.synthesize``), as many as noise says."""
    for epsilon in epsilons:
        rho = Fraction(rho_of(epsilon, DELTA)).limit_denominator(10**12)
        for method in methods:
            errors, measuring, sampling = [], [], []
            for seed in range(seeds):
                data.seed(seed)
                mechanism = table_mechanism(data.sizes, method, rho, 1)
                start = time.perf_counter()
                measured = _measure(mechanism, data)
                measuring.append(time.perf_counter() - start)
                start = time.perf_counter()
                rows = table_rows(mechanism, measured, None, seed)
                sampling.append(time.perf_counter() - start)
                tables = count_rows(rows, data.sizes, data.triples)
                error, _ = data.error(lambda mask, t=tables: t[mask].astype(np.float64))
                errors.append(error)
                print(f"# {method} {epsilon} {seed} {error:.4f}", flush=True)
            yield {
                "part": "tables",
                "epsilon": epsilon,
                "mechanism": method,
                "seeds": seeds,
                "error": round(statistics.fmean(errors), 4),
                "spread": round(statistics.stdev(errors), 4) if seeds > 1 else 0,
                "measure_s": round(statistics.fmean(measuring), 2),
                "rows_s": round(statistics.fmean(sampling), 2),
            }


def _measure(mechanism: Mechanism, data: Data) -> list[Floats]:
    if isinstance(mechanism, AimMechanism):
        return mechanism.run(data, data.gaussian, data.choose)
    counts = data.batch([m.mask for m in mechanism.measurements])
    return [
        mechanism.measure(k, counts[m.mask], data.gaussian(m.parameter, m.count))
        for k, m in enumerate(mechanism.measurements)
    ]


def ablation(data: Data) -> Iterator[Row]:
    """Run table 2: lazy updating and CRP against full reconstruction and independent noise.

    The paper does not give its sequence; here it is every 3-way marginal once, in random order.
    """
    rho = rho_of(1.0, DELTA)
    order = np.random.default_rng(1).permutation(data.triples).tolist()
    for name, lazily, conditional in (
        ("lazy+CRP", True, True),
        ("lazy+iid", True, False),
        ("full+iid", False, False),
    ):
        data.seed(2)
        seconds, error = _sequence(data, rho, order, lazily=lazily, conditional=conditional)
        yield {
            "part": "ablation",
            "epsilon": 1.0,
            "mechanism": name,
            "rounds": len(order),
            "error": round(error, 4),
            "seconds": round(seconds, 2),
        }


def _sequence(
    data: Data, rho: float, order: list[int], *, lazily: bool, conditional: bool
) -> tuple[float, float]:
    """Measure one-way marginals with half of the budget, then a sequence of others with the rest.

    After every round all tables are up to date, as a choice would need them.
    """
    whole = data.batch(data.triples)
    start = time.perf_counter()
    residuals = Residuals(data.bases)
    count = len(data.sizes)
    for i in range(count):
        table = _table(whole, 1 << i)
        noise = data.rng.normal(0, math.sqrt(count / rho), table.shape)
        residuals.add_marginal(1 << i, table + noise, count / rho)
    lazy = LazyMarginals(residuals)
    tables = {mask: lazy[mask] for mask in data.triples}
    cost = rho / len(order)  # 2 * (rho / 2)
    for mask in order:
        if conditional:
            chosen = conditional_plan(mask, residuals.precisions, data.bases, cost)
            changes = {}
            for below, variance in chosen.items():
                table = _table(whole, below)
                noisy = table + data.rng.normal(0, math.sqrt(variance), table.shape)
                once = Residuals(data.bases).add_marginal(below, noisy, variance)[below]
                changes[below] = residuals.add(below, once, variance)
        else:
            noise = data.rng.normal(0, math.sqrt(1 / cost), whole[mask].shape)
            changes = residuals.add_marginal(mask, whole[mask] + noise, 1 / cost)
        if lazily:
            lazy.changed(changes)
            tables = {other: lazy[other] for other in data.triples}
        else:
            tables = dict(residuals.marginals(data.triples))
    seconds = time.perf_counter() - start
    return seconds, data.error(tables.__getitem__)[0]


def _table(whole: Mapping[int, Integers], mask: int) -> Integers:
    """Sum a marginal from the smallest one that contains it."""
    above = min((m for m in whole if mask & ~m == 0), key=lambda m: whole[m].size)
    axes = tuple(k for k, i in enumerate(attributes_of(above)) if not mask >> i & 1)
    return np.asarray(whole[above].sum(axis=axes))


def _ways(residuals: Residuals, data: Data) -> Iterator[tuple[str, Callable[[], Tables]]]:
    """List the ways of post-processing; a call does what precedes the first table."""
    total = float(residuals.values[0])

    def raw() -> Tables:
        return lambda mask: dict(residuals.marginals([mask]))[mask]

    def clipped() -> Tables:
        return lambda mask: clip_and_rescale(raw()(mask), total)

    def projected() -> Tables:
        return lambda mask: project_simplex(raw()(mask), total)

    def mixed() -> Tables:
        return fit_mixture(residuals).marginal

    def whole() -> Tables:
        rows = sample_rows(fit_mixture(residuals))
        return lambda mask: count_rows(rows, data.sizes, [mask])[mask].astype(np.float64)

    yield from (("none", raw), ("clip", clipped), ("simplex", projected))
    yield from (("mixture", mixed), ("rows", whole))
    if model_cells(data.sizes, residuals.values) <= MOST_CELLS:
        yield "pgm", lambda: fit_model(residuals).marginal


def _singles(data: Data, rho: Fraction) -> tuple[Residuals, int]:
    masks = [0, *(1 << i for i in range(len(data.sizes)))]
    chosen = plan(dict.fromkeys(masks, 1.0), data.bases, 2 * float(rho))
    return _measured(data, rho, chosen)


def _pairs(data: Data, rho: Fraction) -> tuple[Residuals, int]:
    return _measured(data, rho, plan_pairs(data.triples, data.bases, rho))


def _planner(data: Data, rho: Fraction) -> tuple[Residuals, int]:
    chosen = plan(dict.fromkeys(data.triples, 1.0), data.bases, 2 * float(rho))
    return _measured(data, rho, chosen)


def _measured(data: Data, rho: Fraction, chosen: ResidualPlan) -> tuple[Residuals, int]:
    return measure_plan(chosen, rho, data, data.gaussian)[0], 1


def _aim(data: Data, rho: Fraction) -> tuple[Residuals, int]:
    workload = dict.fromkeys(data.triples, 1)
    found = aim(data.bases, workload, rho, data, data.gaussian, data.choose)
    return found.residuals, len(found.rounds)


def _aim_pgm(data: Data, rho: Fraction) -> tuple[Residuals, int]:
    workload = dict.fromkeys(data.triples, 1)
    schedule = Schedule(rounds=2 * len(data.sizes))

    def tell(rounds: int, used: Fraction, budget: Fraction) -> None:
        print(f"# {PGM}: round {rounds}, {float(used / budget):.3f} of the budget", flush=True)

    found = aim(
        data.bases,
        workload,
        rho,
        data,
        data.gaussian,
        data.choose,
        schedule=schedule,
        estimates=ModelEstimates,
        progress=tell,
    )
    return found.residuals, len(found.rounds)


MEASURERS: dict[str, Callable[[Data, Fraction], tuple[Residuals, int]]] = {
    "independent": _singles,
    "pairs": _pairs,
    "AIM+GReM": _aim,
    PGM: _aim_pgm,
    "ResidualPlanner": _planner,
}


def rho_of(epsilon: float, delta: float) -> float:
    """Return the rho whose zCDP gives (epsilon, delta), by bisection.

    Canonne, Kamath and Steinke 2020, Corollary 13: the least over alpha of
    ``(alpha-1)(alpha rho - epsilon) + alpha ln(1 - 1/alpha) - ln(alpha - 1)``.
    """
    alphas = 1 + np.exp(np.linspace(-6, 12, 20001))
    rest = alphas * np.log1p(-1 / alphas) - np.log(alphas - 1)
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        logarithm = float(((alphas - 1) * (alphas * middle - epsilon) + rest).min())
        low, high = (middle, high) if logarithm <= math.log(delta) else (low, middle)
    return low


if __name__ == "__main__":
    main()
