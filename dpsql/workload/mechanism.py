"""What answers a workload: measurements with integer noise, and what is made of them.

A mechanism reads marginals of the data, applies integer matrices to them and adds noise of a
discrete law with an exact parameter; everything after is post-processing.  Its loss is a sum of
exact numbers (PRIVACY.md section 3), its choice a function of the workload alone (section 8).
Nothing is drawn here: noise is an argument.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.workload.grem import Residuals
from dpsql.workload.marginals import attributes_of
from dpsql.workload.matrix import (
    Floats,
    Identity,
    Order,
    Permuted,
    QueryMatrix,
    Stacked,
    Total,
)
from dpsql.workload.residual_bases import Integers
from dpsql.workload.residual_planner import largest_of, round_up
from dpsql.workload.spread import Spread
from dpsql.workload.stepwise import by_rows, matmul
from dpsql.workload.workload import Product, Workload

_EXACT_FLOAT = 1 << 53
_INT64 = 1 << 63
#: Variances below this count as this.
LEAST_VARIANCE = 1e-30


@dataclass(frozen=True, slots=True)
class Budget:
    """What all measurements together may cost.

    Attributes
    ----------
    order : int
        1: Laplace noise and pure differential privacy; 2: Gaussian noise and zCDP.
    loss : Fraction
        Epsilon or rho, positive, for one row more or less.
    rows : int
        How many rows a neighbour may have more or less: the bound on what a privacy unit
        contributes; 1 where single rows are protected.
    """

    order: Order
    loss: Fraction
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """One integer vector with independent noise.

    Attributes
    ----------
    mask : int
        The marginal that is read.
    count : int
        Entries of the vector.
    parameter : Fraction
        Scale of the discrete Laplace or variance of the discrete Gaussian law.
    loss : Fraction
        Epsilon or rho that it costs, exactly.
    """

    mask: int
    count: int
    parameter: Fraction
    loss: Fraction


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to one product of the workload, without its weight.

    Both arrays have one axis per attribute of the domain, as long as its query matrix.
    """

    values: Floats
    errors: Floats


class Mechanism(ABC):
    """A selected strategy with its budget.

    Attributes
    ----------
    name : str
        As users ask for it.
    workload, budget : Workload, Budget
        What it is for.
    measurements : tuple of Measurement
        What is measured, in the order in which noise is drawn.
    error : float
        Expected squared error of all queries together, weights included.
    bound : float
        No strategy with this noise has a smaller one, as far as selecting has shown.
    tick : callable
        Called now and then while much is computed; may raise to cancel.
    """

    name: str
    workload: Workload
    budget: Budget
    measurements: tuple[Measurement, ...]
    error: float
    bound: float = 0.0
    tick: Callable[[], None] = staticmethod(lambda: None)

    @property
    def loss(self) -> Fraction:
        """Epsilon or rho of all measurements together: at most the budget's."""
        return sum((m.loss for m in self.measurements), start=Fraction(0))

    @property
    def rmse(self) -> float:
        """Root mean squared error of a query, weights included."""
        return self.workload.rmse(self.error)

    @property
    @abstractmethod
    def identity(self) -> str:
        """Name the matrices: equal for mechanisms whose measurements mean the same."""

    @property
    def draws(self) -> int:
        """How many numbers of noise are needed."""
        return sum(m.count for m in self.measurements)

    @abstractmethod
    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """Measure the k-th vector.

        Parameters
        ----------
        k : int
            Place in ``measurements``.
        table : array of int64
            The exact marginal ``measurements[k].mask``, an axis per attribute.
        noise : array of int64, shape (count,)
            Independent draws of the law that ``parameter`` names.
        """

    @property
    def plain_residuals(self) -> bool:
        """Whether the estimates are residuals of marginals, by subtraction."""
        return False

    @property
    def plain_marginals(self) -> bool:
        """Whether all that is measured are marginals, or residuals of them by subtraction."""
        return self.plain_residuals

    def residuals(self, measured: Sequence[Floats]) -> Residuals:
        """Return the estimated residuals, where `plain_marginals`."""
        raise NotImplementedError

    def spread(self) -> Spread | None:
        """Return what the variance of any query follows from, where that is kept."""
        return None

    @abstractmethod
    def vector(self, measured: Sequence[Floats]) -> Floats:
        """Estimate the data vector: one axis per attribute, as long as its levels.

        What was not measured is spread evenly.  For domains that fit memory.
        """

    @abstractmethod
    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """Yield the answers to each product of the workload, in order."""

    def errors(self, measured: Sequence[Floats]) -> Iterator[Floats]:
        """Yield the standard errors of `answers` alone."""
        yield from (answer.errors for answer in self.answers(measured))


def digest(*matrices: Integers) -> str:
    """Hash integer matrices."""
    found = hashlib.sha256()
    for matrix in matrices:
        found.update(repr(matrix.shape).encode() + np.ascontiguousarray(matrix).tobytes())
    return found.hexdigest()


def answers_of(vector: Floats, workload: Workload) -> Iterator[Floats]:
    """Answer each product of a workload, without its weight, from a data vector."""
    for product in workload.products:
        plus, minus = product.parts()
        answer = plus.matvec(vector)
        yield answer if minus is None else answer - minus.matvec(vector)


def variance(order: Order, parameter: Fraction) -> float:
    """Return the variance of a law: exact for Laplace, a bound that is nearly it for Gaussian."""
    if order == 2:
        return float(parameter)
    decay = math.exp(-1 / float(parameter))
    if decay >= 1 - 1e-8:
        return 2 * float(parameter) ** 2
    # that of an epsilon of 700 and more leaves floating point, and is divided by
    return max(2 * decay / (1 - decay) ** 2, LEAST_VARIANCE)


def noise_for(budget: Budget, norm: Fraction, share: Fraction) -> tuple[Fraction, Fraction]:
    """Return parameter and loss of a measurement.

    Parameters
    ----------
    budget : Budget
        Of all measurements.
    norm : Fraction
        The largest L1 norm, or squared L2 norm, of what one row changes.
    share : Fraction
        Of the budget's loss, at most 1.
    """
    if budget.order == 1:
        exact = budget.rows * norm / (budget.loss * share)
        parameter = round_up(exact)
        return parameter, budget.rows * norm / parameter
    exact = budget.rows**2 * norm / (2 * budget.loss * share)
    parameter = round_up(exact)
    return parameter, budget.rows**2 * norm / (2 * parameter)


def largest_column(matrix: Integers, order: Order) -> int:
    """Return the largest L1 norm or squared L2 norm of a column, exactly."""
    small = len(matrix) * largest_of(matrix) ** order < _INT64
    whole = np.dtype(np.int64 if small else object)
    columns = np.zeros(matrix.shape[1], dtype=whole)
    for some in by_rows(matrix):
        exact = matrix[some].astype(whole)
        columns += (exact * exact if order == 2 else abs(exact)).sum(axis=0)
    return int(max(columns))


def exact_product(
    matrices: Mapping[int, Integers], table: Integers, tick: Callable[[], None] = lambda: None
) -> Integers:
    """Multiply a table of integers by matrices along some axes, exactly.

    In floating point while every sum is below 2^53, in 64 bits while it is below 2^63, else on
    Python's integers, slower: no error depends on the data.

    Parameters
    ----------
    matrices : mapping of axis to array of int64
        Axes without one are left as they are.
    table : array of int64
        The marginal.
    tick : callable
        Called before each axis; may raise to cancel.
    """
    bound = max(largest_of(table), 1)
    for matrix in matrices.values():
        bound *= int(np.abs(matrix).sum(axis=1).max())
    kind: type = np.float64 if bound < _EXACT_FLOAT else np.int64 if bound < _INT64 else object
    values: Integers = table.astype(kind)
    for axis, matrix in matrices.items():
        tick()
        moved = np.tensordot(matrix.astype(kind), values, axes=(1, axis))
        values = np.moveaxis(moved, 0, axis)
    if kind is np.float64:
        values = np.rint(values).astype(np.int64)
    return np.array(values, order="C")


def noisy(values: Integers, noise: Integers) -> Floats:
    """Add noise to integers exactly and turn the sums, which may leave now, into floats."""
    added = noise.reshape(values.shape)
    if values.dtype == object or largest_of(values) + largest_of(added) >= _INT64:
        exact = values.astype(object) + added.astype(object)
        return np.asarray(exact, dtype=np.float64)
    return np.asarray(values + added, dtype=np.float64)


def row_products(
    left: QueryMatrix,
    right: QueryMatrix,
    inner: Floats | None,
    tick: Callable[[], None] = lambda: None,
) -> Floats:
    """Return ``diag(L X R^T)``: of ``X`` (the identity if None) what each query sees.

    Ranges of a thousand levels are half a million rows, which are never written down: a range's
    value is made of four entries of the cumulative sums of ``X``.
    """
    if isinstance(left, Identity) and left == right:
        return np.ones(left.n) if inner is None else np.diagonal(inner).copy()
    if isinstance(left, Permuted) and left == right:
        order = list(left.permutation)
        moved = None if inner is None else inner[np.ix_(order, order)]
        return row_products(left.matrix, left.matrix, moved, tick)
    if left == right and (bounds := left.bounds()) is not None:
        n = left.shape[1]
        if inner is None:
            return np.asarray(bounds[1] - bounds[0], dtype=np.float64)
        sums = np.zeros((n + 1, n + 1))
        sums[1:, 1:] = inner.cumsum(axis=0).cumsum(axis=1)
        start, stop = bounds
        return np.asarray(
            sums[stop, stop] - sums[start, stop] - sums[stop, start] + sums[start, start]
        )
    a, b = left.dense(), right.dense()
    return np.asarray(((a if inner is None else matmul(a, inner, tick)) * b).sum(axis=1))


def detailed(factor: QueryMatrix) -> bool:
    """Tell whether queries distinguish levels of an attribute."""
    levels = factor.shape[1]
    if isinstance(factor, Total) or levels == 1:
        return False
    if isinstance(factor, Identity) or factor.bounds() is not None:
        return True
    if isinstance(factor, Permuted):
        return detailed(factor.matrix)
    if isinstance(factor, Stacked):
        parts = zip(factor.matrices, factor.weights, strict=True)
        return any(weight != 0 and detailed(part) for part, weight in parts)
    dense = factor.dense()
    return bool((dense != dense[:, :1]).any())


def mask_of_product(product: Product) -> int:
    """Return the attributes that a product of queries distinguishes levels of."""
    if product.nothing:
        return 0
    return sum(1 << i for i, f in enumerate(product.queries.factors) if detailed(f))


def over_all(values: Floats, mask: int, attributes: int) -> Floats:
    """Give a marginal one axis per attribute of the domain, of length 1 where it has none."""
    kept = set(attributes_of(mask))
    places = tuple(i for i in range(attributes) if i not in kept)
    return np.expand_dims(values, places)
