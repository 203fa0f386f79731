"""Cheaper weights for many eigen-queries, and workloads scaled for relative error.

Eigen-query separation and principal vectors optimisation (papers/eigen-design.txt, section 4.2)
solve Program 1 with fewer variables.  With the solver of `dpsql.workload.eigen_weights`, whose step
is linear in the design's entries, what remains costly is the eigendecomposition; `leading_queries`
avoids that too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.eigen_design import EigenQueries, EigenStrategy, finish
from dpsql.workload.eigen_weights import GAP, QueryWeights, query_weights
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import (
    AllRange,
    Dense,
    Floats,
    Identity,
    Permuted,
    Prefix,
    QueryMatrix,
    Stacked,
    Total,
    Width,
)
from dpsql.workload.stepwise import Tick
from dpsql.workload.workload import Product, Workload

#: Relative gap that ends Program 1 within a group; the groups' factors are found to `GAP`.
GROUP_GAP = 1e-2
#: Eigenvalues that differ by at most this part are equal.
SAME = 1e-9
#: Part of the eigenvectors among the principal ones (section 5.2 tries 6 % and more).
PRINCIPAL = 0.06
#: Random vectors beyond those wanted, and rounds of the subspace iteration.
OVERSAMPLED, ROUNDS = 16, 3


def separated(
    design: EigenQueries,
    *,
    group: int | None = None,
    complete: bool = True,
    gap: float = GAP,
    group_gap: float = GROUP_GAP,
    tick: Tick = lambda: None,
) -> EigenStrategy:
    """Weigh groups of eigen-queries one by one, then the groups (eigen-query separation).

    Queries of equal eigenvalues stay together, whatever the size: which of them there are is
    arbitrary, and a part of them may have columns of very unequal length (marginals of 8192 cells
    in groups of 16: 1.26 times the bound if they are split, else the bound).

    Parameters
    ----------
    design : EigenQueries
        In descending order of eigenvalues; neighbours form groups.
    group : int, optional
        Queries in a group, or somewhat more, at least 1; by default the cube root of the number of
        cells, for which the paper's solver takes least time.
    complete : bool
        Whether Program 2 completes columns.
    gap, group_gap : float
        Relative gaps that end Program 1 for the groups' factors and within a group.
    tick : callable
        Called now and then; may raise to cancel.
    """
    _refuse_rest(design)
    size = max(1, round(design.cells ** (1 / 3))) if group is None else group
    if size < 1:
        raise InvalidParameter("a group of eigen-queries needs one at least")
    starts = _starts(design.values, size)
    costs: Floats = np.zeros(len(starts))
    columns: Floats = np.zeros((len(starts), design.cells))
    weights = []
    steps = 0
    for place, (start, stop) in enumerate(pairwise([*starts, len(design.values)])):
        tick()
        squares = Dense(design.rows[start:stop] ** 2)
        found = query_weights(design.values[start:stop], squares, gap=group_gap)
        costs[place] = found.error
        columns[place] = squares.rmatvec(found.squares)
        weights.append(found.squares)
        steps += found.iterations
    merged = query_weights(costs, Dense(columns), gap=gap)
    every = np.concatenate([f * w for f, w in zip(merged.squares, weights, strict=True)])
    # the groups' factors are optimal for these groups only: the SVD bound is what always holds
    bound = float(np.sqrt(design.values).sum()) ** 2 / design.cells
    return finish(
        design,
        QueryWeights(every, merged.error, min(bound, merged.error), steps + merged.iterations),
        complete=complete,
        tick=tick,
    )


def _starts(values: Floats, size: int) -> list[int]:
    """Find where groups begin: each has ``size`` queries and those of the last one's eigenvalue."""
    starts, last = [0], 0
    for i in range(1, len(values)):
        if i - last >= size and values[i] < (1 - SAME) * values[i - 1]:
            starts.append(i)
            last = i
    return starts


def principal_vectors(
    design: EigenQueries,
    *,
    count: int | None = None,
    rooted: bool = False,
    complete: bool = True,
    gap: float = GAP,
) -> EigenStrategy:
    """Weigh the first eigen-queries one by one and all others by one factor.

    Parameters
    ----------
    design : EigenQueries
        In descending order of eigenvalues; all of them, or those of `leading_queries`, whose other
        vectors share the common weight.
    count : int, optional
        Of the principal ones, at least 0; `PRINCIPAL` of the cells by default, and all there are of
        a design that is itself a part.
    rooted : bool
        Whether the others' squared weights are in proportion to the square roots of their
        eigenvalues, as in the SVD bound, and not alike (the paper's way); needs all eigen-queries.
    complete : bool
        Whether Program 2 completes columns; not where the design is a part.
    gap : float
        Relative gap that ends Program 1.
    """
    known = len(design.values)
    first = known if design.rest else math.ceil(PRINCIPAL * design.cells)
    first = min(known, first if count is None else count)
    if first < 0:
        raise InvalidParameter("the number of principal vectors must not be negative")
    if design.rest and first < known:
        design = EigenQueries(
            design.values[:first],
            design.rows[:first],
            design.rest + float(design.values[first:].sum()),
        )
    if design.rest and not rooted:
        return _with_rest(design, gap)
    _refuse_rest(design)
    others, rows = design.values[first:], design.rows[first:]
    shape = np.sqrt(others) if rooted else np.ones(len(others))
    squares = np.square(design.rows[:first])
    costs = design.values[:first]
    if len(others):
        squares = np.vstack([squares, np.einsum("i,ij,ij->j", shape, rows, rows)])
        costs = np.append(costs, (others / shape).sum())
    found = query_weights(costs, Dense(squares), gap=gap)
    every = np.append(found.squares[:first], found.squares[first:] * shape)
    return finish(
        design,
        QueryWeights(every, found.error, found.bound, found.iterations),
        complete=complete,
    )


def _with_rest(design: EigenQueries, gap: float) -> EigenStrategy:
    """Weigh eigen-queries and the rest of the space, of which no vectors are known."""
    squares = np.square(design.rows)
    rest = np.maximum(1 - squares.sum(axis=0), 0)
    costs = np.append(design.values, design.rest)
    found = query_weights(costs, Dense(np.vstack([squares, rest])), gap=gap)
    return finish(
        design,
        QueryWeights(found.squares[:-1], found.error, found.bound, found.iterations),
        complete=False,
        common=float(found.squares[-1]),
    )


def leading_queries(
    gram: Floats, count: int, *, seed: int = 0, rounds: int = ROUNDS
) -> EigenQueries:
    """Find approximately the first eigen-queries, without decomposing the Gram matrix.

    A subspace iteration from random vectors.  However rough the vectors are, they are orthonormal,
    and the error of a strategy with a common weight for the rest of the space needs nothing else:
    it is exact (``sum c_i / u_i + rest / u`` with ``c_i = q_i^T V q_i``).

    Parameters
    ----------
    gram : array, shape (n, n)
        ``W^T W``, best of full rank: the rest of the space is asked for as a whole.
    count : int
        At least 1.
    seed : int
        Of the random vectors; the result is a function of the arguments.
    rounds : int
        Products by the Gram matrix, at least 1.
    """
    if count < 1 or rounds < 1:
        raise InvalidParameter("leading eigen-queries need a number and a round of 1 at least")
    n = len(gram)
    tried = min(n, count + OVERSAMPLED)
    basis = np.random.default_rng(seed).normal(size=(n, tried))
    for _ in range(rounds):
        basis, _ = np.linalg.qr(gram @ basis)
    values, turned = np.linalg.eigh(basis.T @ (gram @ basis))
    kept = np.flatnonzero(values > 0)[::-1][:count]
    rows = np.ascontiguousarray((basis @ turned[:, kept]).T)
    return EigenQueries(values[kept], rows, max(float(np.trace(gram) - values[kept].sum()), 0.0))


def _refuse_rest(design: EigenQueries) -> None:
    """Refuse a part of the eigen-queries where all are needed."""
    if design.rest:
        raise InvalidParameter("these weights need all eigen-queries of the workload")


def relative_workload(workload: Workload) -> Workload:
    """Scale every query to norm 1, so that strategies aim at relative error (section 3.4).

    That is right for a uniform distribution of the rows over the cells, as the paper has it.  Norms
    of products are products of norms, so each factor is scaled by itself; weights of products lose
    their meaning and become 1.

    Raises
    ------
    InvalidParameter
        For disjunctions.
    """
    products = []
    for product in workload.products:
        if product.either:
            raise InvalidParameter("disjunctions cannot be scaled for relative error")
        factors = tuple(_normalised(factor) for factor in product.queries.factors)
        products.append(Product(Kronecker(factors)))
    return Workload(workload.domain, tuple(products))


def _normalised(matrix: QueryMatrix) -> QueryMatrix:
    """Scale queries to norm 1."""
    if isinstance(matrix, Identity):
        return matrix
    if isinstance(matrix, Stacked):
        return Stacked.of(*(_normalised(part) for part in matrix.matrices))
    if isinstance(matrix, Permuted):
        return Permuted(_normalised(matrix.matrix), matrix.permutation)
    return Normalised(matrix)


@dataclass(frozen=True)
class Normalised(QueryMatrix):
    """A matrix whose rows are divided by their L2 norms; rows of zeros stay."""

    matrix: QueryMatrix
    _norms: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.matrix, Total | Prefix | AllRange | Width):  # of zeros and ones
            squared = self.matrix.matvec(np.ones(self.matrix.shape[1]))
        else:
            squared = (self.matrix.dense() ** 2).sum(axis=1)
        object.__setattr__(self, "_norms", np.sqrt(np.where(squared > 0, squared, 1)))

    def _shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def _dense(self) -> Floats:
        return self.matrix.dense() / self._norms[:, None]

    def _gram(self) -> Floats:
        if not isinstance(self.matrix, AllRange):
            return super()._gram()
        # levels i <= j lie in the ranges that start up to i and end from j on
        n = self.matrix.n
        counted: Floats = np.zeros((n, n))
        start, last = np.triu_indices(n)
        counted[start, last] = 1 / self._norms**2
        counted = np.cumsum(np.cumsum(counted, axis=0)[:, ::-1], axis=1)[:, ::-1]
        return np.triu(counted) + np.triu(counted, 1).T

    def _apply(self, table: Floats) -> Floats:
        return self.matrix.matvec(table) / self._along_queries(table)

    def _transposed(self, table: Floats) -> Floats:
        return self.matrix.rmatvec(table / self._along_queries(table))

    def _along_queries(self, table: Floats) -> Floats:
        return self._norms.reshape(-1, *(1,) * (table.ndim - 1))
