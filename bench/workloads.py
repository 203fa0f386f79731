"""Expected errors of strategies beside those of papers/hdmm.txt, tables 3 to 7.

``python -m bench.workloads [--sizes 64,256,1024] [--tables 3,4,5,6,7] [--workloads NAME,...]
[--mechanisms paper,auto]``;
``--tables eigen`` computes those of papers/eigen-design.txt (`bench.eigen`, 10 minutes), which are
not measured on data, ``--tables relative [--data DIR]`` its relative errors on Adult
(`bench.eigen_relative`); no cluster is needed.  *OPT_+ shared* is `dpsql.workload.opt_shared`.
Root mean squared errors at epsilon 1: Laplace noise has the standard deviation sqrt(2), Gaussian
noise (delta 1e-6) 4.224679, the analytic Gaussian mechanism's.  ``paper`` is HDMM's figure,
``svdb`` the SVD bound where it is known exactly.
Mechanism ``auto`` is what a release would choose, its matrices rounded to integers, at an epsilon
so small that rounding the noise does not matter; ``choice`` is its name.
Prints a row as it is found and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bench import eigen, eigen_relative
from bench.census import sf1
from dpsql.workload import marginals
from dpsql.workload.candidates import candidates, worth_trying
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
from dpsql.workload.mechanism import Budget
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.opt0_laplace import opt0_laplace
from dpsql.workload.opt_hdmm import marginal_weights, opt_hdmm
from dpsql.workload.opt_kron import opt_kron
from dpsql.workload.opt_marginals import opt_m
from dpsql.workload.opt_plus import opt_plus
from dpsql.workload.opt_shared import opt_shared
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
#: Table 3: all pairs of these attributes, total squared errors in units, Laplace noise.
EXAMPLE = (2, 5, 50, 100)
EXAMPLE_ERRORS = {"identity": 300_000, "OPT_kron": 213_270, "OPT_plus": 85_070, "OPT_M": 62_886}
#: Tables 6 and 7, the census: whether states are asked for, HDMM's errors.
CENSUS = [("SF1", False, 7.30, 9.80), ("SF1+", True, 10.23, 10.90)]
#: For `auto`: epsilon, and rho of Gaussian noise of variance 1 for sensitivity 1000.
EPSILON = Fraction(1, 1000)
Row = dict[str, Any]


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="64,256,1024")
    parser.add_argument("--tables", default="3,4,5,6,7")
    parser.add_argument("--workloads", default="")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/adult_mbi"))
    parser.add_argument("--mechanisms", default="paper,auto")
    arguments = parser.parse_args()
    sizes = [int(n) for n in arguments.sizes.split(",")]
    tables = arguments.tables.split(",")
    wanted = [int(t) for t in tables if t.isdigit()]
    rows = []
    named = arguments.workloads.split(",") if arguments.workloads else None
    mechanisms = arguments.mechanisms.split(",")
    for row in chain(
        example() if 3 in wanted else (),
        one_attribute(sizes, wanted, named, mechanisms),
        many_attributes(wanted, named, mechanisms),
        eigen.rows() if "eigen" in tables else (),
        eigen_relative.rows(arguments.data) if "relative" in tables else (),
    ):
        print(" ".join(f"{value}" for value in row.values()), flush=True)
        rows.append(row)
    print(json.dumps({"bench": "workloads", "rows": rows}))


def example() -> Iterator[Row]:
    """Compute table 3."""
    work = _marginals(EXAMPLE, marginals.k_way(4, 2), 0)
    bound = workload_bound(work).value
    shown = "x".join(map(str, EXAMPLE))
    find: dict[str, Callable[[], Any]] = {
        "identity": lambda: _Found(work.trace),
        "OPT_kron": partial(opt_kron, work, 1, seed=SEED),
        "OPT_plus": partial(opt_plus, work, 1, seed=SEED),
        "OPT_M": partial(opt_m, EXAMPLE, marginal_weights(work), 1, seed=SEED),
        "auto": partial(_auto, work, 1),
    }
    for mechanism, function in find.items():
        told = EXAMPLE_ERRORS.get(mechanism)
        paper = None if told is None else round(math.sqrt(2 * told / work.queries), 4)
        yield _row(3, "all pairs", shown, 1, mechanism, function, paper, bound, work.queries)


def one_attribute(
    sizes: list[int], tables: list[int], names: list[str] | None, mechanisms: list[str]
) -> Iterator[Row]:
    """Compute tables 4 and 5."""
    for name, n, laplace, gaussian in ONE_ATTRIBUTE:
        if n not in sizes or not {4, 5} & set(tables) or (names and name not in names):
            continue
        matrix = _matrix(name, n)
        gram, queries = matrix.gram(), matrix.shape[0]
        bound = svd_bound(gram)
        work = Workload.of(Domain.of(n), (matrix,))
        orders: list[tuple[int, Order, float]] = [(4, 1, laplace), (5, 2, gaussian)]
        for table, order, paper in orders:
            if table not in tables:
                continue
            find: dict[str, Callable[[], Any]] = {}
            if "paper" in mechanisms:
                find["OPT_0"] = (
                    partial(opt0_laplace, gram, seed=SEED)
                    if order == 1
                    else partial(opt0_gaussian, gram)
                )
            if "auto" in mechanisms:
                find["auto"] = partial(_auto, work, order)
            for mechanism, function in find.items():
                yield _row(table, name, str(n), order, mechanism, function, paper, bound, queries)


def many_attributes(
    tables: list[int], names: list[str] | None, mechanisms: list[str]
) -> Iterator[Row]:
    """Compute tables 6 and 7."""
    orders: list[tuple[int, Order]] = [(6, 1), (7, 2)]
    for name, states, *errors in CENSUS:
        if {6, 7} & set(tables) and (not names or name in names):
            work = sf1(states=states)
            for (table, order), paper in zip(orders, errors, strict=True):
                if table in tables:
                    yield from _rows(table, name, work, order, paper, None, mechanisms)
    for name, sizes, masks, prefixes, *errors in MARGINALS:
        if not {6, 7} & set(tables) or (names and name not in names):
            continue
        work = _marginals(sizes, masks, prefixes)
        found = workload_bound(work)
        bound = found.value if found.exact else None
        for (table, order), paper in zip(orders, errors, strict=True):
            if table in tables:
                yield from _rows(table, name, work, order, paper, bound, mechanisms)
        shown = "x".join(map(str, sizes))
        if 6 in tables and prefixes and "paper" in mechanisms:
            shared = partial(opt_shared, work, seed=SEED)
            yield _row(6, name, shown, 1, "OPT_+ shared", shared, errors[0], bound, work.queries)
        if 7 in tables and "paper" in mechanisms:
            planner = partial(_residuals, sizes, masks, prefixes)
            yield _row(7, name, shown, 2, "residuals", planner, errors[1], bound, work.queries)


def _rows(
    table: int,
    name: str,
    work: Workload,
    order: Order,
    paper: float,
    bound: float | None,
    mechanisms: list[str],
) -> Iterator[Row]:
    shown = "x".join(map(str, work.domain.sizes))
    if "paper" in mechanisms:
        hdmm = partial(opt_hdmm, work, order, seed=SEED)
        yield _row(table, name, shown, order, "OPT_HDMM", hdmm, paper, bound, work.queries)
    if "auto" in mechanisms:
        auto = partial(_auto, work, order)
        yield _row(table, name, shown, order, "auto", auto, paper, bound, work.queries)


def _auto(work: Workload, order: Order) -> _Found:
    """Choose as a release does."""
    loss = EPSILON if order == 1 else EPSILON**2 / 2
    found, _ = candidates(
        work, [Budget(order, loss)], names=lambda order: worth_trying(work, order), best=True
    )
    unit = found[0].error * float(EPSILON) ** 2 / (2 if order == 1 else 1)
    return _Found(unit, found[0].name)


@dataclass(frozen=True)
class _Found:
    error: float
    choice: str = ""


def _residuals(sizes: tuple[int, ...], masks: list[int], prefixes: int) -> _Found:
    """Plan residuals, with bases for prefixes."""
    weights = dict.fromkeys(masks, 1.0)
    grams = {i: Prefix(sizes[i]).gram() for i in range(prefixes)}
    bases = optimal_bases(sizes, weights, grams)
    return _Found(unit_squared_error(weights, bases, grams))


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
    paper: float | None,
    bound: float | None,
    queries: int,
) -> Row:
    start, used = time.perf_counter(), time.process_time()
    found = find()
    seconds, used = time.perf_counter() - start, time.process_time() - used
    deviation = DEVIATION[order]
    row = {
        "table": table,
        "workload": name,
        "domain": domain,
        "noise": NOISE[order],
        "mechanism": mechanism,
        "rmse": round(deviation * math.sqrt(found.error / queries), 4),
        "paper": paper,
        "svdb": None if bound is None else round(deviation * math.sqrt(bound / queries), 4),
        "select_s": round(seconds, 2),
        "cpu_s": round(used, 2),
    }
    return row | {"choice": found.choice} if mechanism == "auto" else row


if __name__ == "__main__":
    main()
