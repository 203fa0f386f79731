"""OPT_0 for Gaussian noise: the best strategy of a workload, with a proof of how good it is.

The problem (HDMM, Definition 12) is ``min tr(X^-1 V)`` over ``X = A^T A`` with ``diag(X) <= 1``,
for the Gram matrix ``V`` of the workload.  Its Lagrangian dual has one number per level:

    max  2 tr (D V D)^(1/2) - sum mu,        D = diag(mu)^(1/2),  mu >= 0

and the best multiple of a given ``mu`` gives the lower bound ``T^2 / sum mu`` with
``T = tr (D V D)^(1/2)``, which for ``mu = 1`` is the SVD bound (HDMM, Definition 11).  The
minimiser of the Lagrangian is ``X = D^-1 (D V D)^(1/2) D^-1``; ``mu`` is optimal when its diagonal
is 1, or below 1 where ``mu`` is 0.  So ``mu <- mu diag(X)`` is iterated (Denisov et al. 2022 have
this fixed point for a lower triangular ``A``), with the diagonal taken to a power between 1 and 2,
since ``diag(X)`` goes as ``mu^(-1/2)``.  One step is one eigendecomposition; where the workload is
one of prefixes or of all ranges that of a tridiagonal matrix (`dpsql.workload.single_pair`), in
quadratic instead of cubic time.  Where the workload is its own mirror image, as ranges of a width
are, the eigenvectors are those of two problems of half the size.  ``mu`` begins where it ended for
a quarter of the levels.

Yuan et al. 2016 and HDMM solve the primal problem with Newton steps or L-BFGS over the ``n(n-1)/2``
entries of ``X``; that takes hundreds of steps, bounds nothing, and demands ``V`` of full rank.
HDMM's constraint ``diag(X) = 1`` is no loss, since a larger ``X`` is never worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Floats
from dpsql.workload.single_pair import SinglePair
from dpsql.workload.stepwise import (
    MOST_AT_ONCE,
    Tick,
    by_rows,
    cholesky,
    cholesky_inverse,
    is_symmetric,
    matmul,
)

#: Relative gap between error and lower bound at which the search ends.
GAP = 1e-4
#: Workloads of full rank take 3 to 10, others up to some 150.
ITERATIONS = 200
#: Power of the diagonal by which the multipliers move.
POWER = 1.8
#: Least multiplier, as a part of their mean: costs at most this part of the bound.
LEAST = 1e-5
#: Levels from which on a quarter of them is solved first, in at most so many steps, to such a gap.
COARSE = 512
COARSE_STEPS = 10
COARSE_GAP = 1e-4
#: Part of the identity in every strategy, which bounds its condition number.
IDENTITY = 1e-7
#: Eigenvalues below this part of the largest one are zero; below minus its root they are wrong.
ZERO = 1e-13


@dataclass(frozen=True, slots=True)
class GaussianStrategy:
    """A strategy of L2 sensitivity 1.

    Parameters
    ----------
    gram : array, shape (n, n)
        ``X = A^T A``, positive definite, its diagonal 1.
    error : float
        ``tr(X^-1 V)``, the total squared error in units.
    bound : float
        No strategy has a smaller error; at least the SVD bound, up to rounding.
    iterations : int
        Eigendecompositions done.
    """

    gram: Floats
    error: float
    bound: float
    iterations: int

    @property
    def gap(self) -> float:
        """How far the error is above the bound, as a part of the bound."""
        return self.error / self.bound - 1 if self.bound else 0.0

    def matrix(self, tick: Tick = lambda: None) -> Floats:
        """Write ``A`` down: upper triangular, of shape (n, n), columns of norm 1.

        HDMM (Definition 12) takes this Cholesky factor too.
        """
        return cholesky(self.gram, tick).T


def opt0_gaussian(
    gram: Floats,
    *,
    gap: float = GAP,
    iterations: int = ITERATIONS,
    tick: Callable[[], None] = lambda: None,
) -> GaussianStrategy:
    """Find the strategy with the least squared error under Gaussian noise.

    Parameters
    ----------
    gram : array, shape (n, n)
        ``W^T W`` of the workload: symmetric, positive semi-definite, of any rank.
    gap : float
        Relative gap of squared errors that is small enough, above 0.
    iterations : int
        At most so many eigendecompositions, at least 1; each takes about ``10 n^3`` operations.
    tick : callable
        Called before each; may raise to cancel.

    Returns
    -------
    GaussianStrategy
        The best one seen, whether or not the gap was reached.

    Raises
    ------
    InvalidParameter
        When the matrix is no Gram matrix.
    """
    n = len(gram)
    tick()
    if gram.shape != (n, n) or not is_symmetric(gram, tick):
        raise InvalidParameter("the Gram matrix of a workload must be square and symmetric")
    scale = float(np.trace(gram)) / max(n, 1)
    if scale == 0:
        return GaussianStrategy(np.eye(n), 0.0, 0.0, 0)
    tick()
    found = _Problem.of(gram / scale, tick)
    tick()
    mu = found.beginning(tick)
    best, error, bound, done = np.eye(n), float(n), 0.0, 0
    while done < iterations and error > (1 + gap) * bound:
        tick()
        done += 1
        point = found.at(mu, tick)
        bound = max(bound, point.bound)
        if point.excess <= 3 * gap or not point.roots.all() or done == iterations:
            for candidate in _feasible(point.matrix(tick), tick):
                value = _error(candidate, found.workload, tick)
                if value < error:
                    best, error = candidate, value
        mu = point.next
    return GaussianStrategy(found.unsorted(best), error * scale, min(bound, error) * scale, done)


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """The minimiser ``X`` of the Lagrangian for the best multiple of some ``mu``.

    Parameters
    ----------
    mu : array, shape (n,)
        Multipliers.
    roots : array, shape (n,)
        Eigenvalues of ``(D V D)^(1/2)``, times that multiple.
    vectors : array, shape (n, n)
        ``D^-1`` times its eigenvectors.
    bound : float
        The dual's value.
    diagonal : array, shape (n,)
        That of ``X``.
    """

    mu: Floats
    roots: Floats
    vectors: Floats
    bound: float
    diagonal: Floats

    @property
    def excess(self) -> float:
        """The gap after columns are shrunk, to first order, where the rank is full."""
        return float(self.mu @ np.maximum(self.diagonal - 1, 0) / self.mu.sum())

    @property
    def next(self) -> Floats:
        """Better multipliers."""
        mu = self.mu * self.diagonal**POWER
        return np.asarray(np.maximum(mu, LEAST * mu.mean()))

    def matrix(self, tick: Tick) -> Floats:
        """Write ``X`` down."""
        scaled = self.vectors * self.roots
        tick()
        return matmul(scaled, self.vectors.T, tick)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """A workload, its levels sorted where it is single-pair.

    ``mirrored`` is whether the order of the levels can be turned round.
    """

    workload: Floats
    pair: SinglePair | None
    mirrored: bool

    @classmethod
    def of(cls, workload: Floats, tick: Tick = lambda: None) -> _Problem:
        pair = SinglePair.of(workload, tick)
        if pair is not None:
            if (np.diff(pair.order) < 0).any():
                workload = workload[np.ix_(pair.order, pair.order)]
            return cls(workload, pair, False)
        return cls(workload, None, mirrored(workload))

    def unsorted(self, matrix: Floats) -> Floats:
        """Put rows and columns into the order that they came in."""
        if self.pair is None:
            return matrix
        place = np.argsort(self.pair.order)
        return matrix[np.ix_(place, place)]

    def at(self, mu: Floats, tick: Tick) -> _Point:
        """Decompose ``D V D``."""
        if self.mirrored:
            mu = (mu + mu[::-1]) / 2
        d = np.sqrt(mu)
        pair = self.pair
        roots, vectors = self._dense(d, tick) if pair is None else self._tridiagonal(d, pair)
        tick()
        total = float(roots.sum())
        vectors /= d[:, None]
        tick()
        roots = roots * (float(mu.sum()) / total)
        return _Point(mu, roots, vectors, total**2 / float(mu.sum()), _diagonal(vectors, roots))

    def _dense(self, d: Floats, tick: Tick) -> tuple[Floats, Floats]:
        matrix = self.workload * np.outer(d, d)
        if self.mirrored:
            values, vectors = _mirrored_eigh(matrix, tick)
        else:
            values, vectors = np.linalg.eigh(matrix)
        largest = float(values.max())
        if values.min() < -(ZERO**0.5) * largest:
            raise InvalidParameter("the Gram matrix of a workload must be positive semi-definite")
        return np.sqrt(np.where(values > ZERO * largest, values, 0)), vectors

    @staticmethod
    def _tridiagonal(d: Floats, pair: SinglePair) -> tuple[Floats, Floats]:
        from scipy.linalg import eigh_tridiagonal

        diagonal, beside = pair.inverse()
        values, vectors = eigh_tridiagonal(diagonal / d**2, beside / (d[1:] * d[:-1]))
        return values**-0.5, vectors

    def beginning(self, tick: Callable[[], None]) -> Floats:
        """Solve for every fourth level, by the diagonal, and interpolate between these."""
        n = len(self.workload)
        if n < COARSE:
            return np.ones(n)
        order = np.arange(n)
        if self.pair is None and not self.mirrored:
            order = np.argsort(np.diagonal(self.workload), kind="stable")
        some = np.rint(np.linspace(0, n - 1, n // 4)).astype(np.intp)
        tick()
        coarse = _Problem.of(self.workload[np.ix_(order[some], order[some])], tick)
        mu = coarse.beginning(tick)
        for _ in range(COARSE_STEPS):
            tick()
            point = coarse.at(mu, tick)
            mu = point.next
            if point.excess < COARSE_GAP:
                break
        result = np.empty(n)
        result[order] = np.interp(np.arange(n), some, mu)
        return result


def mirrored(workload: Floats) -> bool:
    """Tell whether the order of levels can be turned round."""
    return np.array_equal(workload, workload[::-1, ::-1])


def _diagonal(vectors: Floats, roots: Floats) -> Floats:
    """Return that of ``vectors diag(roots) vectors^T``."""
    return np.concatenate([vectors[some] ** 2 @ roots for some in by_rows(vectors)])


def _mirrored_eigh(matrix: Floats, tick: Tick) -> tuple[Floats, Floats]:
    """Decompose a matrix that is the same from behind: eigenvectors are even or odd."""
    n = len(matrix)
    half = n // 2
    straight, crossed = matrix[:half, :half], matrix[:half, : n - half - 1 : -1]
    even, evens = np.linalg.eigh(_with_middle(straight + crossed, matrix))
    tick()
    odd, odds = np.linalg.eigh(straight - crossed)
    tick()
    vectors = np.zeros((n, n))
    vectors[:half, : n - half] = evens[:half] / np.sqrt(2)
    vectors[:half, n - half :] = odds / np.sqrt(2)
    vectors[half : n - half, : n - half] = evens[half:]
    vectors[n - half :, : n - half] = vectors[:half, : n - half][::-1]
    vectors[n - half :, n - half :] = -vectors[:half, n - half :][::-1]
    return np.concatenate([even, odd]), vectors


def _with_middle(folded: Floats, matrix: Floats) -> Floats:
    """Add the level in the middle of an odd number to those that were folded."""
    half = len(folded)
    if len(matrix) == 2 * half:
        return folded
    beside = matrix[:half, half : half + 1] * np.sqrt(2)
    return np.block([[folded, beside], [beside.T, matrix[half : half + 1, half : half + 1]]])


def _feasible(root: Floats, tick: Tick) -> Iterator[Floats]:
    """Move ``X`` to a diagonal of 1 in two ways.

    Columns are shrunk where they are too long, or all alike; the second keeps the row space, which
    matters for workloads of deficient rank.  What is missing is added on the diagonal: that never
    raises the error.
    """
    diagonal = np.diagonal(root)
    shrink = np.sqrt(np.maximum(diagonal, 1))
    ways: tuple[Floats | float, ...] = (shrink, max(float(diagonal.max()), 1) ** 0.5)
    for lengths in ways:
        tick()
        candidate = root * ((1 - IDENTITY) / lengths)
        tick()
        candidate /= np.reshape(lengths, (-1, 1))
        np.fill_diagonal(candidate, 1)
        yield candidate


def _error(candidate: Floats, workload: Floats, tick: Tick) -> float:
    """Compute ``tr(X^-1 V)``; infinity where ``X`` is numerically singular."""
    from scipy.linalg.lapack import dpotrf, dpotri

    tick()
    if len(candidate) > MOST_AT_ONCE:
        try:
            factor = cholesky(candidate, tick)
        except np.linalg.LinAlgError:
            return np.inf
        return float(np.vdot(cholesky_inverse(factor, tick), workload))
    factor, failed = dpotrf(candidate, lower=1)
    if failed == 0:
        half, failed = dpotri(factor, lower=1, overwrite_c=1)
    if failed != 0:
        return np.inf
    below = np.tril(half, -1)
    return float(2 * np.vdot(below, workload) + np.diagonal(half) @ np.diagonal(workload))
