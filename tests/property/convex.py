"""Problems as their definitions say, for cvxpy: what exact solvers are checked against.

A check compares optimal values, and points where these are unique.  Clarabel, an interior-point
method, is asked for eight digits of a value, and fails where it does not come to seven.  Our
solvers use none of its code: they are closed forms, fixed points, proportional fitting, L-BFGS and
HiGHS's simplex method.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import cvxpy as cp
import numpy as np

from dpsql.workload.marginals import Floats

#: Clarabel's tolerances: of gaps, relative and absolute, and of constraints.
WANTED, ACCEPTED = 1e-8, 1e-7
#: What its values may be off, as a part of them: ten times as much, since its tolerances are of the
#: program in conic form, where multipliers count as well.
TOLERANCE = 1e-6
#: What its points may be off: values are flat about the best point, so that a part ``t`` of the value
#: is one of about ``sqrt(t)`` of the point.
POINT = 1e-3


def value(problem: cp.Problem) -> float:
    """Solve a problem and return its optimal value."""
    wanted = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), WANTED)
    accepted = {f"reduced_{name}": ACCEPTED for name in wanted}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")  # by more than wanted
        problem.solve(solver=cp.CLARABEL, max_iter=500, **wanted, **accepted)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE), problem.status
    return float(problem.value)


def least(objective: Any, constraints: Iterable[Any]) -> float:
    """Minimise."""
    return value(cp.Problem(cp.Minimize(objective), list(constraints)))


def most(objective: Any, constraints: Iterable[Any]) -> float:
    """Maximise."""
    return value(cp.Problem(cp.Maximize(objective), list(constraints)))


def same(found: float, best: float, tolerance: float) -> None:
    """Compare values, relative to the best one."""
    assert abs(found - best) <= tolerance * abs(best) + 1e-12, f"{found} for {best}"


def between(bound: float, best: float, error: float, gap: float) -> None:
    """Check a certificate: no strategy is below the bound, and the one found is feasible.

    Only then is the best value between the two; and they are within ``gap``.
    """
    assert bound <= best * (1 + TOLERANCE), f"the bound {bound} is above the optimum {best}"
    assert error >= best * (1 - TOLERANCE), f"{error} is below the optimum {best}"
    assert error <= best * (1 + gap + TOLERANCE), f"{error} is not the optimum {best}"


def factor_of(gram: Floats) -> Floats:
    """Return a matrix with this Gram matrix, of full row rank."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, kept] * np.sqrt(values[kept])).T)


def squared_error(workload: Floats, information: Any) -> Any:
    """Return ``tr(W X^-1 W^T)``: least squares from measurements with ``A^T A = X``, unit noise.

    ``X`` is seen in the row space ``U`` of the queries, ``W U (U^T X U)^-1 U^T W^T``: never more, and
    the same where ``X`` maps that space into itself.  So a strategy that attains the least of it is
    the best, and no ``X`` has to be singular where directions are of no use.
    """
    factor = factor_of(workload.T @ workload)
    lengths = np.linalg.norm(factor, axis=1)
    basis = factor / lengths[:, None]
    return cp.matrix_frac(np.diag(lengths), basis @ information @ basis.T)


def dense_error(rows: Floats, matrix: Floats) -> float:
    """Return ``||W A^+||^2``."""
    return float((np.asarray(rows @ np.linalg.pinv(matrix)) ** 2).sum())


def best_strategy(gram: Floats) -> float:
    """Return the least error of all strategies with Gaussian noise and L2 sensitivity 1.

    HDMM, Definition 12: ``min ||W A^+||^2`` over matrices whose columns have norm 1 at most.  With
    ``X = A^T A`` that is a semi-definite program.
    """
    n, scale = len(gram), float(np.trace(gram))
    information = cp.Variable((n, n), PSD=True)
    error = cp.matrix_frac(factor_of(gram / scale).T, information)
    return least(error, [cp.diag(information) <= 1]) * scale


def kron(matrices: Sequence[Floats]) -> Floats:
    """Multiply matrices, the first one's rows changing slowest."""
    return reduce(np.kron, matrices, np.eye(1))


def marginal(sizes: Sequence[int], mask: int) -> Floats:
    """Write the queries of a marginal down."""
    return kron([np.eye(n) if mask >> i & 1 else np.ones((1, n)) for i, n in enumerate(sizes)])


def residual(sizes: Sequence[int], mask: int) -> Floats:
    """Return ``A^T A`` of measuring a residual by subtraction, at ``sigma^2 = 1``.

    Its matrix is ``R = (x) S_i`` or ``1^T`` and its noise has the covariance ``(x) S_i S_i^T``, so
    that it is ``R^T (R R^T)^-1 R`` up to sums.
    """
    parts = []
    for i, n in enumerate(sizes):
        ones: Floats = np.ones((n, n))
        parts.append(np.eye(n) - ones / n if mask >> i & 1 else ones)
    return kron(parts)
