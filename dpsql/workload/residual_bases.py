"""The residual matrix of one attribute: what is subtracted, measured and inverted.

Along an attribute's axis all residuals come from one invertible ``n x n`` matrix

    ``T = [1^T; S]``,  ``T^-1 = [u | K]``

so that ``S u = 0``, ``1^T u = 1``, ``1^T K = 0`` and ``S K = I``.  The first row of ``T`` is the
total.  ``K`` is what papers/aim-grem.txt (table 1) calls *center*, ``u`` is *smear*.  For
subtraction ``u = 1/n`` and ``K = S^+`` is the pseudo-inverse; for another ``S``, ``T^-1`` is
still the inverse but ``K`` is no pseudo-inverse.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats

Integers = npt.NDArray[np.int64]


class Basis(ABC):
    """The residual matrix of one attribute with ``n`` levels, and how to measure it.

    Noise is drawn for ``L x``, where the *lattice matrix* ``L`` has integer entries:
    independent noise of standard deviation ``sigma * scale`` in each row.
    The residual is a linear function of it, ``S x = C L x``.  For a set of attributes
    both are Kronecker products.

    Attributes
    ----------
    size : int
        Levels ``n``.
    rows : int
        Rows of ``L``: how many noise draws the attribute multiplies.
    scale : int
        Rows of ``L`` are this many times longer than those of the matrix they stand for.
    privacy : Fraction
        Largest squared column norm of ``L / scale``: what one row of the data costs in units
        of ``1 / (2 sigma^2)`` of zero-concentrated differential privacy.
    total : float or None
        ``1^T C 1`` where ``C`` is the covariance of the attribute's cells when these are estimated
        from measurements of its own, and ``C 1 = total u``: then the noise of such a marginal's
        total and that of its residuals are uncorrelated.  None if that is not so.
    """

    size: int
    rows: int
    scale: int
    privacy: Fraction
    total: float | None = None

    @abstractmethod
    def sub(self, values: Floats, axis: int) -> Floats:
        """Apply ``S`` along an axis of length n; the result has n - 1."""

    @abstractmethod
    def center(self, values: Floats, axis: int) -> Floats:
        """Apply ``K`` along an axis of length n - 1; the result has n."""

    @abstractmethod
    def smear(self, values: Floats, axis: int) -> Floats:
        """Apply ``u`` along an axis of length 1; the result has n."""

    @abstractmethod
    def lattice(self, values: Integers, axis: int) -> Integers:
        """Apply ``L`` along an axis of length n, exactly; the result has `rows`."""

    @abstractmethod
    def lattice_bound(self) -> int:
        """Bound ``|L x|`` for ``|x| <= 1``: the largest absolute row sum of ``L``."""

    @abstractmethod
    def from_lattice(self, values: Floats, axis: int) -> Floats:
        """Apply ``C`` along an axis of length `rows`; the result has n - 1."""

    @abstractmethod
    def errors(self, gram: Floats | None) -> tuple[float, float]:
        """Return the squared error of a query matrix per unit of variance.

        Parameters
        ----------
        gram : array of shape (n, n) or None
            ``V = W^T W`` of the attribute's query matrix; None for the identity.

        Returns
        -------
        tuple of float
            ``t = tr(V K G K^T)``, from the attribute's own residual with noise covariance
            ``G = scale^2 C C^T``; and ``s = u^T V u``, which each residual without the
            attribute contributes.
        """

    @abstractmethod
    def variances(self, queries: Floats | None) -> tuple[Floats, Floats]:
        """Split `errors` by query: diagonal of ``W K G K^T W^T``, and ``(W u)^2``."""

    @abstractmethod
    def covariance(self) -> tuple[Floats, Floats]:
        """Return ``K G K^T``, of shape (n, n), and ``u``, of shape (n,)."""

    def decompose(self, values: Floats, axis: int) -> Floats:
        """Apply ``T = [1^T; S]`` along an axis."""
        return np.concatenate(
            [values.sum(axis=axis, keepdims=True), self.sub(values, axis)], axis=axis
        )

    def reconstruct(self, values: Floats, axis: int) -> Floats:
        """Apply ``T^-1 = [u | K]`` along an axis."""
        result = self.center(part_of(values, axis, slice(1, None)), axis)
        result += self.smear(part_of(values, axis, slice(0, 1)), axis)
        return result


class Subtraction(Basis):
    """``S = [-1 | I]``: ResidualPlanner's basis, for marginals (all cells alike).

    ``S^T (S S^T)^-1 S = I - 11^T/n``, so noise with covariance ``S S^T`` on the residual is the
    same measurement as independent noise on ``L = n I - 11^T`` with ``scale = n``, which has
    integer entries.  Its columns have squared norm ``n (n - 1)``: the cost is ``1 - 1/n``.

    Parameters
    ----------
    size : int
        Levels of the attribute, at least 1 (with 1 level there is no residual).
    whole : bool
        Measure the cells themselves, ``L = I`` with ``scale = 1``, and subtract afterwards.  The
        noise of the residual is the same, the total that comes along is not used, and the
        cost is 1 instead of ``1 - 1/n``.  For many levels that is little, and the integer
        noise is ``n`` times smaller, which tabulated samplers need.
    """

    def __init__(self, size: int, *, whole: bool = False) -> None:
        if size < 1:
            raise InvalidParameter(f"an attribute of {size} levels has no residual")
        self.size = self.rows = size
        self.total = float(size)  # of cells with independent noise
        self.whole = whole and size > 1
        self.scale = 1 if self.whole else size
        self.privacy = Fraction(1) if self.whole else Fraction(size - 1, size)

    def sub(self, values: Floats, axis: int) -> Floats:
        """Apply ``S`` along an axis of length n."""
        return part_of(values, axis, slice(1, None)) - part_of(values, axis, slice(0, 1))

    def center(self, values: Floats, axis: int) -> Floats:
        """Apply ``K`` along an axis of length n - 1."""
        mean = values.sum(axis=axis, keepdims=True) / self.size
        return np.concatenate([-mean, values - mean], axis=axis)

    def smear(self, values: Floats, axis: int) -> Floats:
        """Apply ``u`` along an axis of length 1."""
        return np.repeat(values / self.size, self.size, axis=axis)

    def reconstruct(self, values: Floats, axis: int) -> Floats:
        """Apply ``T^-1`` along an axis."""
        total, rest = part_of(values, axis, slice(0, 1)), part_of(values, axis, slice(1, None))
        shift = (total - rest.sum(axis=axis, keepdims=True)) / self.size
        result = np.empty_like(values)
        part_of(result, axis, slice(0, 1))[...] = shift
        np.add(rest, shift, out=part_of(result, axis, slice(1, None)))
        return result

    def lattice(self, values: Integers, axis: int) -> Integers:
        """Apply ``L`` along an axis of length n, exactly."""
        if self.whole:
            return values
        result: Integers = values * self.size - values.sum(axis=axis, keepdims=True)
        return result

    def lattice_bound(self) -> int:
        """Return the largest absolute row sum of ``L``."""
        return 1 if self.whole else 2 * (self.size - 1)

    def from_lattice(self, values: Floats, axis: int) -> Floats:
        """Apply ``C`` along an axis of length `rows`."""
        return self.sub(values, axis) / self.scale

    def errors(self, gram: Floats | None) -> tuple[float, float]:
        """Return ``t`` and ``s`` of a query matrix given by its Gram matrix."""
        if gram is None:
            return float(self.size - 1), 1.0 / self.size
        total = float(gram.sum())
        return float(np.trace(gram)) - total / self.size, total / self.size**2

    def variances(self, queries: Floats | None) -> tuple[Floats, Floats]:
        """Return the variances of queries per unit of variance, own and spread."""
        n = self.size
        if queries is None:
            return np.full(n, 1.0 - 1.0 / n), np.full(n, 1.0 / n**2)
        means = queries.mean(axis=1)
        return ((queries - means[:, None]) ** 2).sum(axis=1), means**2

    def covariance(self) -> tuple[Floats, Floats]:
        """Return ``I - 11^T / n`` and ``1 / n``."""
        n = self.size
        return np.eye(n) - 1.0 / n, np.full(n, 1.0 / n)


class Dense(Basis):
    """A basis given by an integer matrix: ``S = L / scale`` with independent noise.

    Parameters
    ----------
    matrix : array of int, shape (n - 1, n)
        ``L``: of full row rank, with the all-ones row outside its row space.
    scale : int
        Positive; ``L / scale`` is the matrix that was optimised before it was rounded.

    Raises
    ------
    InvalidParameter
        If the totals and the residuals together do not determine the data.
    """

    def __init__(self, matrix: npt.ArrayLike, scale: int) -> None:
        self._lattice: Integers = np.array(matrix, dtype=np.int64)
        if self._lattice.ndim != 2 or self._lattice.shape[0] + 1 != self._lattice.shape[1]:
            raise InvalidParameter(
                f"a residual matrix of shape {self._lattice.shape} is not (n - 1) x n"
            )
        if scale < 1:
            raise InvalidParameter(f"the scale {scale} of a residual matrix is not positive")
        self.rows, self.size = self._lattice.shape
        self.scale = scale
        exact = self._lattice.astype(object)
        norms = (exact * exact).sum(axis=0)
        self.privacy = Fraction(int(max(norms)), scale**2)
        self._bound = int(np.abs(exact).sum(axis=1).max()) if self.rows else 0
        self.matrix: Floats = self._lattice / scale
        forward = np.vstack([np.ones(self.size), self.matrix])
        if np.linalg.matrix_rank(forward) < self.size:
            raise InvalidParameter(
                "the residual matrix leaves a part of the data unmeasured",
                detail="Its rows and the row of ones must be linearly independent.",
            )
        self._inverse: Floats = np.linalg.inv(forward)

    @property
    def null(self) -> Floats:
        """``u``, shape (n,): how a total is spread over the levels."""
        return self._inverse[:, 0]

    def sub(self, values: Floats, axis: int) -> Floats:
        """Apply ``S`` along an axis of length n."""
        return along(self.matrix, values, axis)

    def center(self, values: Floats, axis: int) -> Floats:
        """Apply ``K`` along an axis of length n - 1."""
        return along(self._inverse[:, 1:], values, axis)

    def smear(self, values: Floats, axis: int) -> Floats:
        """Apply ``u`` along an axis of length 1."""
        return along(self._inverse[:, :1], values, axis)

    def reconstruct(self, values: Floats, axis: int) -> Floats:
        """Apply ``T^-1`` along an axis."""
        return along(self._inverse, values, axis)

    def lattice(self, values: Integers, axis: int) -> Integers:
        """Apply ``L`` along an axis of length n, exactly."""
        matrix = self._lattice.astype(values.dtype)
        moved = np.tensordot(matrix, values, axes=(1, axis))
        return np.ascontiguousarray(np.moveaxis(moved, 0, axis))

    def lattice_bound(self) -> int:
        """Return the largest absolute row sum of ``L``."""
        return self._bound

    def from_lattice(self, values: Floats, axis: int) -> Floats:  # noqa: ARG002
        """Apply ``C`` along an axis of length `rows`."""
        return values / self.scale

    def errors(self, gram: Floats | None) -> tuple[float, float]:
        """Return ``t`` and ``s`` of a query matrix given by its Gram matrix."""
        columns = self._inverse if gram is None else gram @ self._inverse
        parts = (self._inverse * columns).sum(axis=0)
        return float(parts[1:].sum()), float(parts[0])

    def variances(self, queries: Floats | None) -> tuple[Floats, Floats]:
        """Return the variances of queries per unit of variance, own and spread."""
        squares = (self._inverse if queries is None else queries @ self._inverse) ** 2
        return squares[:, 1:].sum(axis=1), squares[:, 0]

    def covariance(self) -> tuple[Floats, Floats]:
        """Return ``K K^T`` and ``u``."""
        inner = self._inverse[:, 1:]
        return inner @ inner.T, self.null


def subtraction(sizes: Sequence[int], whole_above: int | None = None) -> tuple[Basis, ...]:
    """Return ResidualPlanner's basis for each attribute of a domain.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes.
    whole_above : int, optional
        Attributes with more levels than this are measured `Subtraction.whole`.
    """
    return tuple(Subtraction(n, whole=whole_above is not None and n > whole_above) for n in sizes)


def part_of(values: Floats, axis: int, where: slice) -> Floats:
    """Return a view of a range of positions along one axis."""
    return values[(slice(None),) * axis + (where,)]


def along(matrix: Floats, values: Floats, axis: int) -> Floats:
    """Multiply by a matrix of shape (m, n) along an axis of length n."""
    before, after = math.prod(values.shape[:axis]), math.prod(values.shape[axis + 1 :])
    ends = (*values.shape[:axis], matrix.shape[0], *values.shape[axis + 1 :])
    flat = values.reshape(before, values.shape[axis], after)
    moved = flat[:, :, 0] @ matrix.T if after == 1 else matrix @ flat
    return np.asarray(moved.reshape(ends))
