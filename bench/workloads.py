"""Expected errors of strategies beside those of papers/hdmm.txt, tables 4 to 7.

``python -m bench.workloads [--sizes 64,256,1024] [--tables 4,5,6,7] [--workloads NAME,...]``;
``--tables eigen`` computes those of papers/eigen-design.txt (`bench.eigen`, 10 minutes):
nothing is measured on data, so no cluster is needed.  Root mean squared errors at epsilon 1:
Laplace noise has the standard deviation sqrt(2), Gaussian noise (delta 1e-6) 4.224679, the analytic
Gaussian mechanism's.  ``paper`` is HDMM's figure, ``svdb`` the SVD bound where it is known exactly.
Prints a row as it is found and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from bench import eigen
from dpsql.workload import marginals
from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import (
    AllRange,
    Identity,
    Order,
    Permuted,
    Prefix,
    QueryMatrix,
    Stacked,
    Total,
    Width,
)
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.opt0_laplace import opt0_laplace
from dpsql.workload.opt_hdmm import opt_hdmm
from dpsql.workload.optimal_bases import optimal_bases
from dpsql.workload.residual_planner import unit_squared_error
from dpsql.workload.svd_bound import svd_bound, workload_bound
from dpsql.workload.workload import Product, Workload

DEVIATION = {1: math.sqrt(2), 2: 4.224679}
NOISE = {1: "laplace", 2: "gaussian"}
SEED = 1
#: Tables 4 and 5: workload, levels, HDMM's error for Laplace and Gaussian noise.
ONE_ATTRIBUTE = [
    ("all ranges", 64, 5.55, 9.73),
    ("all ranges", 256, 8.07, 12.26),
    ("all ranges", 1024, 11.08, 14.85),
    ("all ranges", 4096, 14.38, 17.46),
    ("prefix", 64, 5.32, 8.87),
    ("prefix", 256, 7.35, 10.66),
    ("prefix", 1024, 9.58, 12.49),
    ("prefix", 4096, 12.20, 14.32),
    ("width 32", 64, 5.88, 8.74),
    ("width 32", 256, 6.34, 9.93),
    ("width 32", 1024, 6.41, 10.08),
    ("width 32", 4096, 6.46, 10.11),
    ("permuted ranges", 64, 5.55, 9.73),
    ("permuted ranges", 256, 8.06, 12.26),
    ("permuted ranges", 1024, 11.08, 14.85),
    ("permuted ranges", 4096, 14.37, 17.45),
]
CPS = (50, 100, 7, 4, 2)
ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
SMALL = 5000
#: Tables 6 and 7: workload, levels, sets of attributes, those asked by prefixes, HDMM's errors.
MARGINALS: list[tuple[str, tuple[int, ...], list[int], int, float, float]] = [
    ("CPS all marginals", CPS, list(range(32)), 0, 4.84, 7.85),
    ("CPS all prefix-marginals", CPS, [a for a in range(32) if a & 3 == 3], 2, 40.59, 29.48),
    ("Adult <=3D marginals", ADULT, marginals.at_most_k_way(14, 3), 0, 225.35, 46.44),
    ("Adult 2D prefix-marginals", ADULT, marginals.k_way(14, 2), 5, 484.07, 126.17),
    ("Loans small marginals", LOANS, marginals.small(LOANS, SMALL), 0, 100.92, 34.91),
    ("Loans small prefix-marginals", LOANS, marginals.small(LOANS, SMALL), 4, 288.29, 99.72),
]
Row = dict[str, Any]


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="64,256,1024")
    parser.add_argument("--tables", default="4,5,6,7")
    parser.add_argument("--workloads", default="")
    arguments = parser.parse_args()
    sizes = [int(n) for n in arguments.sizes.split(",")]
    tables = arguments.tables.split(",")
    wanted = [int(t) for t in tables if t != "eigen"]
    rows = []
    for row in chain(
        one_attribute(sizes, wanted),
        many_attributes(wanted, arguments.workloads),
        eigen.rows() if "eigen" in tables else (),
    ):
        print(" ".join(f"{value}" for value in row.values()), flush=True)
        rows.append(row)
    print(json.dumps({"bench": "workloads", "rows": rows}))


def one_attribute(sizes: list[int], tables: list[int]) -> Iterator[Row]:
    """Compute tables 4 and 5."""
    for name, n, laplace, gaussian in ONE_ATTRIBUTE:
        if n not in sizes:
            continue
        matrix = _matrix(name, n)
        gram, queries = matrix.gram(), matrix.shape[0]
        bound = svd_bound(gram)
        if 4 in tables:
            laplacian = partial(opt0_laplace, gram, seed=SEED)
            yield _row(4, name, str(n), 1, "OPT_0", laplacian, laplace, bound, queries)
        if 5 in tables:
            normal = partial(opt0_gaussian, gram)
            yield _row(5, name, str(n), 2, "OPT_0", normal, gaussian, bound, queries)


def many_attributes(tables: list[int], names: str) -> Iterator[Row]:
    """Compute tables 6 and 7, without those of the census."""
    for name, sizes, masks, prefixes, laplace, gaussian in MARGINALS:
        if names and name not in names.split(","):
            continue
        work = _marginals(sizes, masks, prefixes)
        found = workload_bound(work)
        bound = found.value if found.exact else None
        shown = "x".join(map(str, sizes))
        if 6 in tables:
            hdmm = partial(opt_hdmm, work, 1, seed=SEED)
            yield _row(6, name, shown, 1, "OPT_HDMM", hdmm, laplace, bound, work.queries)
        if 7 in tables:
            hdmm = partial(opt_hdmm, work, 2, seed=SEED)
            yield _row(7, name, shown, 2, "OPT_HDMM", hdmm, gaussian, bound, work.queries)
            planner = partial(_residuals, sizes, masks, prefixes)
            yield _row(7, name, shown, 2, "residuals", planner, gaussian, bound, work.queries)


@dataclass(frozen=True)
class _Residuals:
    error: float


def _residuals(sizes: tuple[int, ...], masks: list[int], prefixes: int) -> _Residuals:
    """Plan residuals, with bases for prefixes."""
    weights = dict.fromkeys(masks, 1.0)
    grams = {i: Prefix(sizes[i]).gram() for i in range(prefixes)}
    bases = optimal_bases(sizes, weights, grams)
    return _Residuals(unit_squared_error(weights, bases, grams))


def _matrix(name: str, n: int) -> QueryMatrix:
    if name == "prefix":
        return Prefix(n)
    if name == "width 32":
        return Width(n, 32)
    if name == "all ranges":
        return AllRange(n)
    permutation = np.random.default_rng(SEED).permutation(n)
    return Permuted(AllRange(n), tuple(int(i) for i in permutation))


def _marginals(sizes: tuple[int, ...], masks: list[int], prefixes: int) -> Workload:
    """Write marginals, the first attributes by prefixes, as a union of products."""
    domain = Domain.of(*sizes)
    if len(masks) in (32, 8) and len(sizes) == 5:  # one product
        factors: list[QueryMatrix] = [
            Prefix(n) if i < prefixes else Stacked.of(Identity(n), Total(n))
            for i, n in enumerate(sizes)
        ]
        return Workload.of(domain, factors)
    products = []
    for mask in masks:
        factors = [
            Total(n) if not mask >> i & 1 else Prefix(n) if i < prefixes else Identity(n)
            for i, n in enumerate(sizes)
        ]
        products.append(Product(Kronecker(tuple(factors))))
    return Workload(domain, tuple(products))


def _row(
    table: int,
    name: str,
    domain: str,
    order: Order,
    mechanism: str,
    find: Callable[[], Any],
    paper: float,
    bound: float | None,
    queries: int,
) -> Row:
    start, used = time.perf_counter(), time.process_time()
    error = find().error
    seconds, used = time.perf_counter() - start, time.process_time() - used
    deviation = DEVIATION[order]
    return {
        "table": table,
        "workload": name,
        "domain": domain,
        "noise": NOISE[order],
        "mechanism": mechanism,
        "rmse": round(deviation * math.sqrt(error / queries), 4),
        "paper": paper,
        "svdb": None if bound is None else round(deviation * math.sqrt(bound / queries), 4),
        "select_s": round(seconds, 2),
        "cpu_s": round(used, 2),
    }


if __name__ == "__main__":
    main()
