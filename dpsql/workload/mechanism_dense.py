"""Mechanisms whose strategy is one matrix over all cells: OPT_0 of the whole, Eigen-Design.

For small domains.  A workload that is no product of one-attribute workloads is served better by a
strategy that is none either: with Gaussian noise OPT_0 is optimal up to its certificate, whatever
the workload (papers/hdmm.txt section 4; papers/eigen-design.txt section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.eigen_design import eigen_design, eigen_queries
from dpsql.workload.eigen_reductions import separated
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import MOST_ENTRIES, Dense, Floats, Total
from dpsql.workload.mechanism import (
    Answers,
    Budget,
    Measurement,
    Mechanism,
    answers_of,
    digest,
    exact_product,
    largest_column,
    noise_for,
    noisy,
    over_all,
    variance,
)
from dpsql.workload.mechanism_kronecker import (
    integers,
    inverse_of,
    spread_evenly,
    unsupported,
)
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.opt0_laplace import opt0_laplace
from dpsql.workload.residual_bases import Integers
from dpsql.workload.spread import Form, Spread
from dpsql.workload.stepwise import Tick, matmul
from dpsql.workload.workload import Product, Workload

#: Cells of the largest domain whose strategy OPT_0 and Eigen-Design find in seconds.
MOST_OPT0 = 1100
MOST_EIGEN = 4096
#: Above so many cells Eigen-Design weighs its queries in groups.
SEPARATED = 1024
#: Squared weight of every single cell, so that all of them are measured.
LEAST = 1e-7
#: Bits of the entries.
BITS = 20
#: What single cells get, of ``2**BITS``, where the strategy alone would not determine all.
LEAST_CELLS = 1 << 10


class DenseMechanism(Mechanism):
    """Measure a matrix over all cells of the attributes that are asked for, with one noise.

    Parameters
    ----------
    name : str
        As users ask for it.
    workload, budget : Workload, Budget
        What is answered and what it may cost.
    matrix : array, shape (queries, cells)
        Over the cells of `asked_for`, of full column rank; rounded here to integers, and the error
        is that of the rounded one.
    tick : callable
        Called now and then, later too; may raise to cancel.

    Raises
    ------
    InvalidParameter
        When the workload has too many queries to write down.
    """

    def __init__(
        self, name: str, workload: Workload, budget: Budget, matrix: Floats, tick: Tick
    ) -> None:
        self.name, self.workload, self.budget, self.tick = name, workload, budget, tick
        self._asked, self._mask = asked_for(workload)
        for product in self._asked.products:
            if product.queries.shape[0] * self._asked.domain.cells > MOST_ENTRIES:
                raise InvalidParameter(
                    f"{name} writes all queries down, and they are too many",
                    hint="Use mechanism => 'auto'.",
                )
        order = budget.order
        self._matrix = integers(Dense(matrix), order, BITS, tick)
        self._inverse, gram, full = inverse_of(self._matrix, tick)
        if not full:  # rounding lost what hardly counts
            cells = LEAST_CELLS * np.eye(self._matrix.shape[1], dtype=np.int64)
            self._matrix = np.concatenate([self._matrix, cells])
            self._inverse, gram, full = inverse_of(self._matrix, tick)
            if not full:
                raise unsupported()
        tick()
        exact = self._matrix.astype(np.float64)
        self._pseudo = matmul(self._inverse, exact.T, tick)
        tick()
        norm = largest_column(self._matrix, order)
        tick()
        parameter, loss = noise_for(budget, Fraction(norm), Fraction(1))
        self.measurements = (Measurement(self._mask, len(self._matrix), parameter, loss),)
        self._variance = variance(order, parameter)
        self.error = self._variance * self._asked.dense_error(gram, self._inverse, tick)

    @property
    def identity(self) -> str:
        """See `Mechanism.identity`."""
        return digest(self._matrix)

    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """See `Mechanism.measure`."""
        del k
        return noisy(exact_product({0: self._matrix}, table.ravel()), noise)

    def spread(self) -> Spread:
        """See `Mechanism.spread`."""
        forms = tuple(Form("total") for _ in self.workload.domain.sizes)
        return Spread(forms, {self._mask: self._variance}, self._inverse)

    def vector(self, measured: Sequence[Floats]) -> Floats:
        """See `Mechanism.vector`."""
        return spread_evenly(self._estimate(measured), self._mask, self.workload.domain.sizes)

    def _estimate(self, measured: Sequence[Floats]) -> Floats:
        return np.asarray((self._pseudo @ measured[0]).reshape(self._asked.domain.sizes))

    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """See `Mechanism.answers`."""
        found = answers_of(self._estimate(measured), self._asked)
        attributes = len(self.workload.domain.sizes)
        for product, values in zip(self._asked.products, found, strict=True):
            spread = np.maximum(self._variances(product), 0.0).reshape(values.shape)
            errors = np.sqrt(self._variance * spread)
            yield Answers(
                over_all(values, self._mask, attributes), over_all(errors, self._mask, attributes)
            )

    def _variances(self, product: Product) -> Floats:
        plus, minus = product.parts()
        queries = plus.dense()
        if minus is not None:
            queries = queries - minus.dense()
        seen = matmul(queries, self._inverse, self.tick)
        return np.asarray((seen * queries).sum(axis=1))


def asked_for(workload: Workload) -> tuple[Workload, int]:
    """Leave out the attributes that every query sums over, unless that is all of them."""
    sizes = workload.domain.sizes
    kept = [
        i
        for i in range(len(sizes))
        if not all(isinstance(p.queries.factors[i], Total) for p in workload.products)
    ] or [0]
    products = tuple(
        Product(
            Kronecker(tuple(p.queries.factors[i] for i in kept)),
            p.weight,
            tuple(kept.index(i) for i in p.either),
        )
        for p in workload.products
    )
    domain = workload.domain.project(workload.domain.attributes[i] for i in kept)
    return Workload(domain, products), sum(1 << i for i in kept)


def _require(workload: Workload, most: int, name: str) -> None:
    cells = asked_for(workload)[0].domain.cells
    if cells > most:
        raise InvalidParameter(
            f"the domain is too large for {name}",
            detail=f"It has {cells} cells; at most {most} are optimised together.",
            hint="Use mechanism => 'auto'.",
        )


def opt0(
    workload: Workload, budget: Budget, *, seed: int, tick: Callable[[], None] = lambda: None
) -> DenseMechanism:
    """Select by OPT_0 over all cells together."""
    _require(workload, MOST_OPT0, "opt_0")
    gram = asked_for(workload)[0].gram()
    if budget.order == 2:
        matrix = opt0_gaussian(gram, tick=tick).matrix()
    else:
        matrix = opt0_laplace(gram, seed=seed, restarts=4, tick=tick).matrix()
    return DenseMechanism("opt_0", workload, budget, matrix, tick)


def eigen(
    workload: Workload, budget: Budget, tick: Callable[[], None] = lambda: None
) -> DenseMechanism:
    """Select by Eigen-Design: weighted eigenvectors of the workload, completed by single cells."""
    if budget.order != 2:
        raise InvalidParameter(
            "eigen_design needs Gaussian noise", hint="Give a delta greater than 0."
        )
    _require(workload, MOST_EIGEN, "eigen_design")
    gram = asked_for(workload)[0].gram()
    tick()
    design = eigen_queries(gram, tick)
    tick()
    found = separated(design, tick=tick) if design.cells > SEPARATED else eigen_design(design)
    tick()
    matrix = found.matrix()
    tick()
    matrix = np.concatenate([matrix, math.sqrt(LEAST) * np.eye(design.cells)])
    tick()
    return DenseMechanism("eigen_design", workload, budget, matrix, tick)
