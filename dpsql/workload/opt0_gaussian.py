"""OPT_0 for Gaussian noise: the best strategy of a workload, with a proof of how good it is.

The problem (HDMM, Definition 12) is ``min tr(X^-1 V)`` over ``X = A^T A`` with ``diag(X) <= 1``,
for the Gram matrix ``V`` of the workload.  Its Lagrangian dual has one number per level:

    max  2 tr (D V D)^(1/2) - sum mu,        D = diag(mu)^(1/2),  mu >= 0

and the best multiple of a given ``mu`` gives the lower bound ``T^2 / sum mu`` with
``T = tr (D V D)^(1/2)``, which for ``mu = 1`` is the SVD bound (HDMM, Definition 11).  The
minimiser of the Lagrangian is ``X = D^-1 (D V D)^(1/2) D^-1``; ``mu`` is optimal when its diagonal
is 1, or below 1 where ``mu`` is 0.  So ``mu <- mu diag(X)`` is iterated (Denisov et al. 2022 have
this fixed point for a lower triangular ``A``), with the diagonal taken to a power between 1 and 2,
since ``diag(X)`` goes as ``mu^(-1/2)``.  One step is one eigendecomposition.

Yuan et al. 2016 and HDMM solve the primal problem with Newton steps or L-BFGS over the ``n(n-1)/2``
entries of ``X``; that takes hundreds of steps, bounds nothing, and demands ``V`` of full rank.
HDMM's constraint ``diag(X) = 1`` is no loss, since a larger ``X`` is never worse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Floats

#: Relative gap between error and lower bound at which the search ends.
GAP = 1e-4
#: Workloads of full rank take 3 to 10, others up to some 150.
ITERATIONS = 200
#: Power of the diagonal by which the multipliers move.
POWER = 1.8
#: Least multiplier, as a part of their mean: costs at most this part of the bound.
LEAST = 1e-5
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

    def matrix(self) -> Floats:
        """Write ``A`` down: upper triangular, of shape (n, n), columns of norm 1.

        HDMM (Definition 12) takes this Cholesky factor too.
        """
        return np.asarray(np.linalg.cholesky(self.gram).T, dtype=np.float64)


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
    if gram.shape != (n, n) or not np.isfinite(gram).all() or not np.allclose(gram, gram.T):
        raise InvalidParameter("the Gram matrix of a workload must be square and symmetric")
    scale = float(np.trace(gram)) / max(n, 1)
    if scale == 0:
        return GaussianStrategy(np.eye(n), 0.0, 0.0, 0)
    workload = gram / scale
    mu: Floats = np.ones(n)
    best, error, bound, done = np.eye(n), float(n), 0.0, 0
    while done < iterations and error > (1 + gap) * bound:
        tick()
        mu = np.maximum(mu, LEAST * mu.mean())
        done += 1
        root, total = _root(workload, np.sqrt(mu))
        bound = max(bound, total**2 / float(mu.sum()))
        root *= mu.sum() / total  # as for the best multiple of mu
        for candidate in _feasible(root):
            found = _error(candidate, workload)
            if found < error:
                best, error = candidate, found
        mu = mu * np.diagonal(root) ** POWER
    return GaussianStrategy(best, error * scale, min(bound, error) * scale, done)


def _root(workload: Floats, d: Floats) -> tuple[Floats, float]:
    """Compute ``D^-1 (D V D)^(1/2) D^-1`` and the trace of the root."""
    values, vectors = np.linalg.eigh(workload * np.outer(d, d))
    if values[0] < -(ZERO**0.5) * values[-1]:
        raise InvalidParameter("the Gram matrix of a workload must be positive semi-definite")
    roots = np.sqrt(np.where(values > ZERO * values[-1], values, 0))
    scaled = vectors / d[:, None]
    return (scaled * roots) @ scaled.T, float(roots.sum())


def _feasible(root: Floats) -> list[Floats]:
    """Move ``X`` to a diagonal of 1 in two ways.

    Columns are shrunk where they are too long, or all alike; the second keeps the row space, which
    matters for workloads of deficient rank.  What is missing is added on the diagonal: that never
    raises the error.
    """
    diagonal = np.diagonal(root)
    shrink = np.sqrt(np.maximum(diagonal, 1))
    candidates = []
    for shrunk in (root / np.outer(shrink, shrink), root / max(float(diagonal.max()), 1)):
        candidate = (1 - IDENTITY) * shrunk
        np.fill_diagonal(candidate, 1)
        candidates.append(candidate)
    return candidates


def _error(candidate: Floats, workload: Floats) -> float:
    """Compute ``tr(X^-1 V)``; infinity where ``X`` is numerically singular."""
    from scipy.linalg import cho_factor, cho_solve

    try:
        factor = cho_factor(candidate, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.inf
    return float(np.trace(cho_solve(factor, workload, check_finite=False)))
