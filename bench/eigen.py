"""Workloads of papers/eigen-design.txt, section 5: errors of Eigen-Design beside the SVD bound.

Rows of ``python -m bench.workloads --tables eigen``; nothing is measured on data.  Figure 3 and
table 2 have 2048 cells, figure 4 has 8192.  ``ratio`` is that of root mean squared errors, as in
the paper; where the paper tells only a limit, ``paper_ratio`` is that.  ``select_s`` begins at the
Gram matrix (at the workload, where the eigen-queries are Kronecker products), ``weights_s`` after
the eigendecomposition.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpsql.workload import marginals
from dpsql.workload.domain import Domain
from dpsql.workload.eigen_design import (
    EigenQueries,
    EigenStrategy,
    eigen_design,
    eigen_queries,
    kronecker_eigen_queries,
)
from dpsql.workload.eigen_reductions import (
    leading_queries,
    principal_vectors,
    relative_workload,
    separated,
)
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import (
    AllRange,
    Dense,
    Floats,
    Identity,
    Permuted,
    Prefix,
    QueryMatrix,
    Total,
)
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.svd_bound import svd_bound
from dpsql.workload.workload import Product, Workload

Row = dict[str, Any]
#: Of Gaussian noise at epsilon 1, delta 1e-6, as in the other tables.
DEVIATION = 4.224679
SEED = 1
SAMPLE = 2000
#: Eigendecompositions of OPT_0.
STEPS = 15
LINE, SQUARE, CENSUS, CUBE, ADULT, BINARY = (
    (2048,),
    (64, 32),
    (8, 16, 16),
    (8, 8, 8, 4),
    (8, 8, 16, 2),
    (2,) * 11,
)
LARGE, LARGE_MARGINALS = 8192, (16, 16, 32)


@dataclass(frozen=True)
class Case:
    """A workload: the table that has it, its name, and the paper's ratio to the bound."""

    table: str
    name: str
    sizes: tuple[int, ...]
    workload: Workload
    paper: float | None


def rows() -> Iterator[Row]:
    """Compute all of them."""
    for case in _cases():
        yield from _designed(case)
    yield from _large()


def _cases() -> Iterator[Case]:
    random = np.random.default_rng(SEED)
    for sizes in (LINE, SQUARE, CENSUS, CUBE, BINARY):
        work = Workload.of(Domain.of(*sizes), [AllRange(n) for n in sizes])
        yield Case("figure 3", "all ranges", sizes, work, 1.3)
        yield Case("figure 3", "all ranges, relative", sizes, relative_workload(work), None)
    for sizes in (LINE, SQUARE, CENSUS, CUBE):
        work = _random_ranges(sizes, random)
        yield Case("figure 3", f"{SAMPLE} random ranges", sizes, work, 1.3)
    for sizes in (CENSUS, ADULT, BINARY):
        for k in (1, 2, 3):
            work = _marginals(sizes, marginals.k_way(len(sizes), k))
            yield Case("figure 3", f"{k}-way marginals", sizes, work, 1.0)
    for sizes, count in ((CENSUS, 4), (ADULT, 8), (BINARY, 64)):
        drawn = [int(a) for a in random.choice(1 << len(sizes), count, replace=False)]
        yield Case("figure 3", f"{count} random marginals", sizes, _marginals(sizes, drawn), 1.0)
    permuted = Permuted(AllRange(2048), tuple(int(i) for i in random.permutation(2048)))
    work = Workload.of(Domain.of(2048), [permuted])
    yield Case("table 2", "permuted ranges", LINE, work, 1 / 0.99)
    for sizes in (CENSUS, ADULT):
        for k, part in ((1, 0.98), (2, 0.95)):
            work = _marginals(sizes, marginals.k_way(len(sizes), k), AllRange)
            yield Case("table 2", f"{k}-way range marginals", sizes, work, 1 / part)
    work = Workload.of(Domain.of(2048), [Prefix(2048)])
    yield Case("table 2", "CDF", LINE, work, 1 / 0.80)
    predicates = Dense(random.integers(0, 2, (SAMPLE, 2048)).astype(np.float64))
    work = Workload.of(Domain.of(2048), [predicates])
    yield Case("table 2", f"{SAMPLE} predicates", LINE, work, 1 / 1.00)


def _random_ranges(sizes: tuple[int, ...], random: np.random.Generator) -> Workload:
    """Draw in each attribute the width of a range, then where it starts."""
    rows = np.ones((SAMPLE, 1))
    for n in sizes:
        width = random.integers(1, n + 1, SAMPLE)
        start = random.integers(0, n - width + 1)
        level = np.arange(n)
        inside = (start[:, None] <= level) & (level < (start + width)[:, None])
        rows = (rows[:, :, None] * inside[:, None, :]).reshape(SAMPLE, -1)
    # one attribute: a query of several need not be a product with the others
    return Workload.of(Domain.of(math.prod(sizes)), [Dense(rows)])


def _marginals(
    sizes: tuple[int, ...], masks: list[int], inside: Callable[[int], QueryMatrix] = Identity
) -> Workload:
    """Unite marginals, of ranges perhaps."""
    products = []
    for mask in masks:
        factors = [inside(n) if mask >> i & 1 else Total(n) for i, n in enumerate(sizes)]
        products.append(Product(Kronecker(tuple(factors))))
    return Workload(Domain.of(*sizes), tuple(products))


def _designed(case: Case) -> Iterator[Row]:
    """Weigh the eigen-queries, completing columns; beside them the optimum of all strategies."""
    gram = case.workload.gram()
    bound = svd_bound(gram)
    start = time.perf_counter()
    design = kronecker_eigen_queries(case.workload) or eigen_queries(gram)
    begun = time.perf_counter()
    strategy = eigen_design(design)
    end = time.perf_counter()
    row = _row(case, "eigen-design", strategy.error, bound, end - start, end - begun)
    yield row
    if row["ratio"] > 1.001:
        start = time.perf_counter()
        best = opt0_gaussian(gram, iterations=STEPS)
        seconds = time.perf_counter() - start
        yield _row(replace(case, paper=None), "OPT_0", best.error, bound, seconds, None)


def _large() -> Iterator[Row]:
    """Compute figure 4: what the reductions lose, and how long the weights take."""
    work = Workload.of(Domain.of(LARGE), [AllRange(LARGE)])
    case = Case("figure 4", "all ranges", (LARGE,), work, 1.12)
    yield from _reduced(case, _sines(LARGE))
    work = _marginals(LARGE_MARGINALS, marginals.k_way(3, 2))
    design = kronecker_eigen_queries(work)
    if design is None:
        raise AssertionError("marginals have a common eigenbasis")
    case = Case("figure 4", "2-way marginals", LARGE_MARGINALS, work, 1.12)
    yield from _reduced(case, design.dense())


def _sines(n: int) -> EigenQueries:
    """Write the eigen-queries of all ranges down.

    The Gram matrix is ``n + 1`` times the inverse of the second difference, whose eigenvectors are
    sines; that saves the decomposition, which takes minutes, and changes no figure.
    """
    k = np.arange(1, n + 1)
    values = (n + 1) / (4 * np.sin(k * np.pi / (2 * (n + 1))) ** 2)
    angles = (np.outer(k, k) % (2 * (n + 1))) * (np.pi / (n + 1))
    return EigenQueries(values, math.sqrt(2 / (n + 1)) * np.sin(angles))


def _reduced(case: Case, design: EigenQueries) -> Iterator[Row]:
    bound = float(np.sqrt(design.values).sum()) ** 2 / design.cells
    _ = design.squares
    tried: list[tuple[str, Callable[[], EigenStrategy]]] = [
        ("eigen-design", partial(eigen_design, design, complete=False))
    ]
    for group in (16, 64, 256):
        found = partial(separated, design, group=group, complete=False)
        tried.append((f"separation, groups of {group}", found))
    for part in (0.02, 0.06, 0.12, 0.25):
        count = round(part * design.cells)
        found = partial(principal_vectors, design, count=count, complete=False)
        tried.append((f"principal vectors, {part:.0%}", found))
    rooted = partial(
        principal_vectors, design, count=design.cells // 128, rooted=True, complete=False
    )
    tried.append(("principal vectors, 1%, others by roots", rooted))
    gram, count = case.workload.gram(), round(0.06 * design.cells)
    tried.append(("leading vectors, 6%", partial(_leading, gram, count)))
    for mechanism, find in tried:
        start = time.perf_counter()
        strategy = find()
        seconds = time.perf_counter() - start
        selected = seconds if mechanism.startswith("leading") else None
        yield _row(case, mechanism, strategy.error, bound, selected, seconds)


def _leading(gram: Floats, count: int) -> EigenStrategy:
    return principal_vectors(leading_queries(gram, count))


def _row(
    case: Case,
    mechanism: str,
    error: float,
    bound: float,
    selected: float | None,
    weighed: float | None,
) -> Row:
    queries = case.workload.queries
    return {
        "table": case.table,
        "workload": case.name,
        "domain": "x".join(map(str, case.sizes)),
        "noise": "gaussian",
        "mechanism": mechanism,
        "rmse": round(DEVIATION * math.sqrt(error / queries), 4),
        "paper": None,
        "svdb": round(DEVIATION * math.sqrt(bound / queries), 4),
        "ratio": round(math.sqrt(error / bound), 4),
        "paper_ratio": None if case.paper is None else round(case.paper, 2),
        "select_s": None if selected is None else round(selected, 2),
        "weights_s": None if weighed is None else round(weighed, 2),
    }
