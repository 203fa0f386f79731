"""Average relative error on data: papers/eigen-design.txt, section 5 (figure 3b, 3d, table 2).

Rows of ``python -m bench.workloads --tables relative``.  The paper scales every query to norm 1,
designs for the scaled workload and measures ``|answer - truth| / truth`` on the queries as they
were asked (section 3.4).  It does not say what small truths are divided by; here ``max(truth,
bound)`` with the sanity bound of its references on ranges (Xiao, Wang and Gehrke 2010), a
thousandth of the rows, and beside it with 1.  Nothing is drawn: Gaussian noise has the mean
absolute value ``sqrt(2 / pi) sigma``, so that the expectation is exact.

Adult is aggregated as in the paper's table 1: 8 x 8 x 16 x 2 cells by age, work, education and
income, by rows where the paper weighs them; its census is not at hand.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.eigen import SAMPLE, SEED
from dpsql.workload import marginals
from dpsql.workload.eigen_design import eigen_design, eigen_queries
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import AllRange, Floats, Identity, Prefix, QueryMatrix, Total
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.stepwise import invert

Row = dict[str, Any]
#: The paper's.
DELTA = 1e-4
EPSILONS = (0.1, 0.5, 2.5)
#: Standard deviation of the analytic Gaussian mechanism at sensitivity 1 for these.
DEVIATIONS = {0.1: 24.508106, 0.5: 5.893788, 2.5: 1.430032}
#: Part of the rows that truths are at least divided by.
SANITY = 1e-3
ADULT = (8, 8, 16, 2)
#: Eigendecompositions of OPT_0.
STEPS = 6


def rows(folder: Path) -> Iterator[Row]:
    """Compute all of them."""
    table = _table(folder)
    for what, queries in _workloads(ADULT):
        yield from _compared(what, queries, table)


def _table(folder: Path) -> Floats:
    """Count Adult, in bins of equal width."""
    levels = json.loads((folder / "adult-domain.json").read_text())
    with gzip.open(folder / "adult.csv.gz", "rt") as source:
        names = source.readline().strip().split(",")
        columns = dict(zip(names, np.loadtxt(source, delimiter=",", dtype=np.int64).T, strict=True))
    place = np.zeros(len(columns["age"]), dtype=np.int64)
    for n, attribute in zip(
        ADULT, ("age", "workclass", "education-num", "income>50K"), strict=True
    ):
        place = place * n + columns[attribute] * n // max(levels[attribute], n)
    return np.bincount(place, minlength=math.prod(ADULT)).astype(np.float64)


def _workloads(sizes: tuple[int, ...]) -> Iterator[tuple[str, Floats]]:
    """Write the queries of each workload down."""
    random = np.random.default_rng(SEED)
    yield f"{SAMPLE} random ranges", _random_ranges(sizes, random)
    yield "2-way range marginals", _marginals(sizes, 2, AllRange)
    yield "2-way marginals", _marginals(sizes, 2, Identity)
    n = math.prod(sizes)
    yield "CDF", Prefix(n).dense()


def _marginals(sizes: tuple[int, ...], k: int, inside: type[Any]) -> Floats:
    products: list[list[QueryMatrix]] = [
        [inside(n) if mask >> i & 1 else Total(n) for i, n in enumerate(sizes)]
        for mask in marginals.k_way(len(sizes), k)
    ]
    return np.concatenate([Kronecker(tuple(product)).dense() for product in products])


def _random_ranges(sizes: tuple[int, ...], random: np.random.Generator) -> Floats:
    """Draw in each attribute the width of a range, then where it starts."""
    found = np.ones((SAMPLE, 1))
    for n in sizes:
        width = random.integers(1, n + 1, SAMPLE)
        start = random.integers(0, n - width + 1)
        inside = (start[:, None] <= np.arange(n)) & (np.arange(n) < (start + width)[:, None])
        found = (found[:, :, None] * inside[:, None, :]).reshape(SAMPLE, -1)
    return found


def _compared(what: str, queries: Floats, table: Floats) -> Iterator[Row]:
    """Compare designs for the workload, and for the scaled one, on the queries as asked."""
    norms = np.sqrt((queries**2).sum(axis=1, keepdims=True))
    truth = queries @ table
    grams = {"": queries.T @ queries, ", scaled": (queries / norms).T @ (queries / norms)}
    tried: list[tuple[str, Callable[[], Floats]]] = [("identity", partial(np.eye, len(table)))]
    for suffix, gram in grams.items():
        tried.append((f"eigen-design{suffix}", partial(_eigen, gram)))
        tried.append((f"OPT_0{suffix}", partial(_opt0, gram)))
    for mechanism, find in tried:
        start = time.perf_counter()
        strategy = find()
        seconds = time.perf_counter() - start
        sensitivity = float(np.diagonal(strategy).max())
        spread = np.sqrt(sensitivity * ((queries @ invert(strategy)) * queries).sum(axis=1))
        for epsilon in EPSILONS:
            error = math.sqrt(2 / math.pi) * DEVIATIONS[epsilon] * spread
            yield {
                "table": "relative error",
                "workload": what,
                "domain": "x".join(map(str, ADULT)),
                "mechanism": mechanism,
                "epsilon": epsilon,
                "relative": _rounded((error / np.maximum(truth, SANITY * table.sum())).mean()),
                "relative_to_1": _rounded((error / np.maximum(truth, 1)).mean()),
                "rmse": _rounded(DEVIATIONS[epsilon] * np.sqrt((spread**2).mean())),
                "select_s": round(seconds, 2),
            }


def _eigen(gram: Floats) -> Floats:
    return eigen_design(eigen_queries(gram)).gram()


def _opt0(gram: Floats) -> Floats:
    return opt0_gaussian(gram, iterations=STEPS).gram


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
