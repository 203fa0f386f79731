"""Program 1 of Eigen-Design: the best weights for a fixed set of queries (Gaussian noise).

For costs ``c_i`` and queries ``q_i`` the squares ``u_i`` of the weights are chosen by

    min  sum c_i / u_i      subject to   sum_i u_i q_ij^2 <= 1   for every cell j,   u >= 0

(papers/eigen-design.txt, section 3.1).  The paper gives it to a semi-definite solver, whose time
grows with the fourth power of the cells.  Its Lagrangian dual has one number per cell, and for
multiples of a given ``mu >= 0`` it is

    max  (sum sqrt(c_i b_i))^2 / sum mu,        b_i = sum_j q_ij^2 mu_j

which for eigen-queries and ``mu = 1`` is the SVD bound (Theorem 2).  ``u_i = sqrt(c_i / b_i)``,
divided by the largest of the column norms ``d_j = sum_i u_i q_ij^2``, is feasible, so every step
has a certificate.  ``mu <- mu d^2`` never lowers the dual: by the inequality of Cauchy and Schwarz
``sqrt(b_i) >= sum_j q_ij^2 sqrt(mu_j mu'_j) / sqrt(b'_i)`` for any ``mu'``, with equality at
``mu = mu'``, and of the minorant that this gives ``mu' d^2`` is the best multiple.  Larger powers
of ``d`` go further: the power grows until the dual falls, and begins anew.

A step is two products of a matrix by a vector.  To a gap of 1e-4 it takes 1 (marginals), some 30
(ranges) or 400 of them; ten take less than 0.1 s for 2048 cells, the eigendecomposition 2 s.  The
interior-point solver Clarabel takes 20 s for 1024 cells, 800 s for 2048 (two shared cores).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import Dense, Floats

#: Relative gap between the squared error and its lower bound at which Program 1 ends.
GAP = 1e-4
#: Steps at most; workloads tried take 1 (marginals) to 400.
ITERATIONS = 1000
#: The power that never lowers the dual, and the factor by which the one in use grows.
POWER, GROW = 2.0, 1.3
#: Least logarithm of a multiplier, beside the largest.
LEAST = -25.0


@dataclass(frozen=True, slots=True, eq=False)
class QueryWeights:
    """What Program 1 found.

    Parameters
    ----------
    squares : array, shape (r,)
        ``u``: the squares of the weights, 0 where the cost is 0; the largest column norm is 1.
    error : float
        ``sum c / u``, in units.
    bound : float
        No weights of these queries have a smaller error.
    iterations : int
        Steps done.
    """

    squares: Floats
    error: float
    bound: float
    iterations: int

    @property
    def gap(self) -> float:
        """How far the error is above the bound, as a part of the bound."""
        return self.error / self.bound - 1 if self.bound else 0.0


def query_weights(
    costs: Floats,
    squares: Dense | Kronecker,
    *,
    gap: float = GAP,
    iterations: int = ITERATIONS,
) -> QueryWeights:
    """Solve Program 1: weigh queries so that a sum of costs over squared weights is least.

    Parameters
    ----------
    costs : array, shape (r,)
        ``c``: non-negative; of orthonormal queries the squared norms of ``W q_i`` (Theorem 1).
    squares : matrix of shape (r, n)
        Non-negative; row ``i`` holds what a unit of ``u_i`` adds to each squared column norm.  Rows
        with a cost are not 0.
    gap : float
        Relative gap that is small enough, above 0.
    iterations : int
        At most so many steps, at least 1.

    Raises
    ------
    InvalidParameter
        When a cost is negative or not finite, or the shapes differ.
    """
    rows, cells = squares.shape
    if costs.shape != (rows,) or not np.isfinite(costs).all() or (costs < 0).any():
        raise InvalidParameter("every query of a design needs one cost, finite and not negative")
    scale = float(costs.sum())
    if scale == 0:
        return QueryWeights(np.zeros(rows), 0.0, 0.0, 0)
    roots = np.sqrt(costs / scale)
    logs, begun, direction = np.zeros(cells), np.zeros(cells), np.zeros(cells)
    power, before, error, bound, done = POWER, 0.0, np.inf, 0.0, 0
    best = roots
    while done < iterations and error > (1 + gap) * bound:
        done += 1
        mu = np.exp(logs)
        seen = np.sqrt(squares.matvec(mu).reshape(-1))
        total = float(roots @ seen)
        dual = total**2 / float(mu.sum())
        if dual < before and power > POWER:
            power = POWER
            logs = _moved(begun, power * direction)
            continue
        before, bound = dual, max(bound, dual)
        weights = np.divide(roots, seen, out=np.zeros(rows), where=roots > 0)
        columns = squares.rmatvec(weights).reshape(-1)
        largest = float(columns.max())
        if total * largest < error:
            best, error = weights / largest, total * largest
        begun, direction = logs, np.log(np.maximum(columns / largest, 1e-300))
        power *= GROW
        logs = _moved(begun, power * direction)
    return QueryWeights(best, error * scale, min(bound, error) * scale, done)


def _moved(logs: Floats, step: Floats) -> Floats:
    """Step in the logarithms of the multipliers, of which the largest is 0."""
    moved = logs + step
    return np.asarray(np.maximum(moved - moved.max(), LEAST))
