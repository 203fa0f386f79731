"""OPT_plus with shared parts: weighted marginals of integer matrices, one for each attribute.

See `dpsql.workload.opt_shared`.  Measurements are estimates of marginals whose residuals are
averaged set by set, as OPT_M's, so that memory holds one marginal whatever the domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import attributes_of, cells
from dpsql.workload.matrix import Dense, Floats, Identity
from dpsql.workload.mechanism import (
    Budget,
    Measurement,
    detailed,
    exact_product,
    largest_column,
    mask_of_product,
    noise_for,
    noisy,
    row_products,
)
from dpsql.workload.mechanism_kronecker import (
    BITS,
    MOST_BITS,
    MOST_CELLS,
    integers,
    require_cells,
)
from dpsql.workload.mechanism_residuals import MOST_OPTIMISED, WeightedMarginals, covering
from dpsql.workload.opt_shared import SharedStrategy, opt_shared
from dpsql.workload.residual_bases import Basis, Integers, Subtraction, along
from dpsql.workload.stepwise import invert
from dpsql.workload.workload import Workload


class Measured(Basis):
    """Residuals of cells that are estimated from the answers to a matrix of queries.

    With ``C = (A^T A)^-1``, ``u = C 1 / (1^T C 1)`` and an orthonormal basis ``K`` of what sums to
    0, ``S = K^T (I - u 1^T)``: the residual and the total of such cells are uncorrelated.

    Parameters
    ----------
    matrix : array of int, shape (queries, n)
        ``A``, of full column rank.
    """

    def __init__(self, matrix: Integers) -> None:
        self.matrix = matrix
        self.rows, self.size = matrix.shape
        self.scale = 1
        self.privacy = Fraction(largest_column(matrix, 2))
        exact = matrix.astype(np.float64)
        self._inverse = invert(exact.T @ exact)
        self._pseudo = self._inverse @ exact.T
        ones = self._inverse.sum(axis=0)
        self.total = float(ones.sum())
        self.null = ones / self.total
        n = self.size
        # Householder: all columns but the first of the reflection that maps 1 to the first axis
        mirror = np.full(n, 1 / math.sqrt(n))
        mirror[0] += 1.0
        reflection = np.eye(n) - np.outer(mirror, mirror) * (2 / float(mirror @ mirror))
        self._center: Floats = np.ascontiguousarray(reflection[:, 1:])
        self._sub: Floats = self._center.T - np.outer(self._center.T @ self.null, np.ones(n))

    def cells(self, values: Floats, axis: int) -> Floats:
        """Estimate the cells from answers along an axis."""
        return along(self._pseudo, values, axis)

    def sub(self, values: Floats, axis: int) -> Floats:
        """Apply ``S`` along an axis of length n."""
        return along(self._sub, values, axis)

    def center(self, values: Floats, axis: int) -> Floats:
        """Apply ``K`` along an axis of length n - 1."""
        return along(self._center, values, axis)

    def smear(self, values: Floats, axis: int) -> Floats:
        """Apply ``u`` along an axis of length 1."""
        return along(self.null[:, None], values, axis)

    def lattice(self, values: Integers, axis: int) -> Integers:
        """Apply ``A`` along an axis of length n, exactly."""
        return exact_product({axis: self.matrix}, values)

    def lattice_bound(self) -> int:
        """Return the largest absolute row sum of ``A``."""
        return int(np.abs(self.matrix).sum(axis=1).max())

    def from_lattice(self, values: Floats, axis: int) -> Floats:
        """Estimate the residual from answers along an axis."""
        return self.sub(self.cells(values, axis), axis)

    def errors(self, gram: Floats | None) -> tuple[float, float]:
        """Return ``t`` and ``s`` of a query matrix given by its Gram matrix."""
        inner, null = self.covariance()
        if gram is None:
            return float(np.trace(inner)), float(null @ null)
        return float(np.vdot(inner, gram)), float(null @ gram @ null)

    def variances(self, queries: Floats | None) -> tuple[Floats, Floats]:
        """Return the variances of queries per unit of variance, own and spread."""
        inner, null = self.covariance()
        if queries is None:
            return np.diagonal(inner).copy(), null**2
        asked = Dense(queries)
        return row_products(asked, asked, inner), (queries @ null) ** 2

    def covariance(self) -> tuple[Floats, Floats]:
        """Return ``C - u u^T (1^T C 1)``, of shape (n, n), and ``u``, of shape (n,)."""
        return self._inverse - (self.total or 0.0) * np.outer(self.null, self.null), self.null


class SharedMechanism(WeightedMarginals):
    """Measure sets of attributes by the matrices that these share.

    Parameters
    ----------
    workload, budget : Workload, Budget
        What is answered and what it may cost; Laplace noise.
    strategy : SharedStrategy
        Real matrices, rounded here to integers; the error is that of the rounded ones.
    """

    name = "opt_plus"

    def __init__(self, workload: Workload, budget: Budget, strategy: SharedStrategy) -> None:
        order, sizes = budget.order, workload.domain.sizes
        real = {i for i, matrix in enumerate(strategy.matrices) if matrix is not None}
        asked = [*strategy.theta, *map(mask_of_product, workload.products)]
        together = max(len(real & set(attributes_of(a))) for a in asked)
        bits = min(BITS, MOST_BITS // max(together, 1))
        self.matrices = {
            i: integers(Dense(matrix), order, bits)
            for i, matrix in enumerate(strategy.matrices)
            if matrix is not None
        }
        self._prepare(workload, budget, self._bases(sizes, self.matrices))
        measurements = []
        shares = covering({a: x**order for a, x in strategy.theta.items()}, self.masks)
        whole = math.fsum(shares.values())
        for a, share in shares.items():
            inside = attributes_of(a)
            rows = math.prod(self.bases[i].rows for i in inside)
            require_cells(max(rows, cells(sizes, a)))
            norm = math.prod(
                largest_column(self.matrices[i], order) for i in inside if i in self.matrices
            )
            part = Fraction(share / whole * (1 - 1e-12))
            parameter, loss = noise_for(budget, Fraction(norm), part)
            measurements.append(Measurement(a, rows, parameter, loss))
        self.measurements = tuple(measurements)
        self._weigh()

    @staticmethod
    def _bases(sizes: Sequence[int], matrices: Mapping[int, Integers]) -> list[Basis]:
        return [
            Measured(matrices[i]) if i in matrices else Subtraction(n) for i, n in enumerate(sizes)
        ]

    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """See `Mechanism.measure`."""
        inside = attributes_of(self.measurements[k].mask)
        own = {axis: self.matrices[i] for axis, i in enumerate(inside) if i in self.matrices}
        return noisy(exact_product(own, table), noise)

    def _cells(self, k: int, values: Floats) -> Floats:
        """Estimate the cells of a marginal from the answers to its queries."""
        for axis, i in enumerate(attributes_of(self.measurements[k].mask)):
            basis = self.bases[i]
            if isinstance(basis, Measured):
                values = basis.cells(values, axis)
        return values


def shared(
    workload: Workload,
    budget: Budget,
    *,
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> SharedMechanism:
    """Select sets of attributes, their weights and the matrices that they share.

    Raises
    ------
    InvalidParameter
        With Gaussian noise, where ResidualPlanner is never worse, for plain marginals, where OPT_M
        is the same, and for domains that are too large.
    """
    if budget.order != 1:
        raise InvalidParameter(
            "shared parts are for Laplace noise",
            hint="Use mechanism => 'residual_planner' or 'auto'.",
        )
    kept = tuple(product for product in workload.products if not product.nothing)
    asked = Workload(workload.domain, kept)
    if all(
        isinstance(factor, Identity) or not detailed(factor)
        for product in kept
        for factor in product.queries.factors
    ):
        raise InvalidParameter(
            "shared parts of plain marginals are their cells", hint="Use mechanism => 'opt_m'."
        )
    found = opt_shared(
        asked, seed=seed, most_levels=MOST_OPTIMISED, most_cells=MOST_CELLS, tick=tick
    )
    return SharedMechanism(workload, budget, found)
