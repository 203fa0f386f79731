"""OPT_M: strategies that are weighted marginals, and the algebra of their Gram matrices.

A marginal Gram matrix ``G(v) = sum over a of v(a) H(a)`` is a sum of Kronecker products of
identities (``i`` in ``a``) and all-ones matrices (papers/hdmm.txt section 7.2, Proposition 8).
All of them share their eigenspaces, one for each mask ``a``, with eigenvalue
``kappa(a) = sum over b >= a of v(b) c(b)``, ``c(b)`` being the number of cells *outside* ``b``
(Theorem 9), and dimension ``prod over i in a of (n_i - 1)``.  So products, inverses, errors and
gradients are taken in the space of eigenvalues: a zeta transform there, a Möbius transform
back, O(d 2^d) each, where the paper multiplies by triangular matrices in O(4^d) (Theorems 7
and 8).  Vectors of length ``2**d`` are indexed by mask.

Where the paper is loose: Theorem 11 omits the factor ``n`` (all cells) of the trace, and
Theorem 12 counts each eigenvalue ``c(not a)`` times, which is the number of columns of the
eigenmatrix ``V(a)``; its rank, used here, is ``prod (n_i - 1)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import (
    Floats,
    check_sizes,
    dense_weights,
    product_over_attributes,
    subset_sum,
    superset_difference,
    superset_sum,
)
from dpsql.workload.matrix import Order


@dataclass(frozen=True)
class MarginalStrategy:
    """Measure every marginal ``a`` times ``theta[a]``, with noise of unit scale.

    Attributes
    ----------
    theta : array of shape (2**d,)
        Non-negative; normalised to sensitivity 1 in the norm of the noise.
    error : float
        Expected total squared error of the workload at unit noise variance: multiply by
        the variance of the noise that the budget allows at sensitivity 1.
    """

    theta: Floats
    error: float


def characteristic(sizes: Sequence[int]) -> Floats:
    """Return ``c`` (Definition 21): for each mask the number of cells outside it."""
    return product_over_attributes([float(n) for n in sizes], [1.0] * len(sizes))


def multiplicities(sizes: Sequence[int]) -> Floats:
    """Return the dimension of each common eigenspace: ``prod over i in a of (n_i - 1)``."""
    return product_over_attributes([1.0] * len(sizes), [n - 1.0 for n in sizes])


def eigenvalues(sizes: Sequence[int], weights: Floats) -> Floats:
    """Return ``kappa``: the eigenvalue of ``G(weights)`` on each eigenspace (Theorem 9)."""
    return superset_sum(weights * characteristic(sizes))


def from_eigenvalues(sizes: Sequence[int], kappa: Floats) -> Floats:
    """Return the weights of the marginal Gram matrix that has these eigenvalues."""
    return superset_difference(kappa) / characteristic(sizes)


def multiply(sizes: Sequence[int], left: Floats, right: Floats) -> Floats:
    """Return the weights of ``G(left) G(right)`` (Theorem 7)."""
    return from_eigenvalues(sizes, eigenvalues(sizes, left) * eigenvalues(sizes, right))


def pseudo_inverse(sizes: Sequence[int], weights: Floats) -> Floats:
    """Return the weights of the Moore-Penrose inverse of ``G(weights)``, weights >= 0.

    Theorem 8 gives the inverse, and a generalised inverse for singular matrices; inverting
    the non-zero eigenvalues gives the pseudo-inverse itself.  An eigenvalue counts as zero
    when no weight above its mask is positive, which is exact for non-negative weights.
    """
    if (weights < 0).any():
        raise InvalidParameter("a marginal Gram matrix with negative weights has no support")
    kappa = eigenvalues(sizes, weights)
    return from_eigenvalues(sizes, np.divide(1.0, kappa, out=np.zeros_like(kappa), where=kappa > 0))


def marginal_approximation(
    sizes: Sequence[int], products: Sequence[tuple[float, Sequence[tuple[float, float]]]]
) -> Floats:
    """Return ``w`` with ``tr(G(u) W^T W) = tr(G(u) G(w))`` for every ``u`` (Theorem 10).

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes.
    products : sequence of (weight, factors)
        The workload's Kronecker products; ``weight`` multiplies the squared error (the
        square of HDMM's), ``factors`` holds for each attribute the trace and the sum of
        all entries of its factor's Gram matrix.

    Returns
    -------
    array of shape (2**d,)
        Weights of ``G(w)``; may be negative where a factor's Gram matrix has positive
        entries outside its diagonal only.
    """
    result = dense_weights(len(sizes), {})
    for weight, factors in products:
        inside, outside = [], []
        for n, (trace, total) in zip(sizes, factors, strict=True):
            # alpha I + beta 1 with n (alpha + beta) = trace, n alpha + n^2 beta = total
            beta = (total - trace) / (n * (n - 1)) if n > 1 else 0.0
            outside.append(beta)
            inside.append(trace / n - beta)
        result += weight * product_over_attributes(outside, inside)
    return result


def svd_bound(sizes: Sequence[int], weights: Floats) -> float:
    """Return the SVD bound on the squared error at unit Gaussian noise (Theorem 12).

    ``(sum over a of dimension(a) * sqrt(kappa(a)))^2 / n``; for marginal workloads the
    optimum, which ResidualPlanner attains for any weights.
    """
    kappa = np.maximum(eigenvalues(sizes, weights), 0.0)
    return float(multiplicities(sizes) @ np.sqrt(kappa)) ** 2 / math.prod(sizes)


def squared_error(
    sizes: Sequence[int], theta: Floats, weights: Floats, order: Order
) -> tuple[float, Floats]:
    """Return the matrix mechanism's objective and its gradient in ``theta`` (Theorem 11).

    ``sensitivity(theta)^2 * sum over a of dimension(a) kappa_w(a) / kappa_theta2(a)``,
    infinite where ``theta`` does not support the workload.
    """
    return of_marginals(sizes, weights)(theta, order)


def of_marginals(
    sizes: Sequence[int], weights: Floats, allowed: NDArray[np.bool_] | None = None
) -> Objective:
    """Return the error of weighted marginals for a marginal Gram matrix of the workload."""
    # both eigenvalues are divided by the number of all cells, which may overflow
    inverse_cells = product_over_attributes([1.0] * len(sizes), [1.0 / n for n in sizes])
    asked = multiplicities(sizes) * superset_sum(weights * inverse_cells)
    return Objective(inverse_cells, asked, allowed)


class Objective:
    """Squared error of weighted sets, with what depends on the workload alone computed once.

    ``sum over b of weighted(b) / kappa(b)`` with ``kappa(b) = sum over a >= b of theta(a)^2
    inverse_cells(a)``.

    Parameters
    ----------
    inverse_cells : array of shape (2**d,)
        One over the cells of each marginal, or what stands for them (`opt_shared`).
    weighted : array of shape (2**d,)
        What the workload asks of each eigenspace.
    allowed : array of bool, shape (2**d,), optional
        Which sets may be measured: all of them, or at least one above each that is asked for.
    """

    def __init__(
        self,
        inverse_cells: Floats,
        weighted: Floats,
        allowed: NDArray[np.bool_] | None = None,
    ) -> None:
        self.inverse_cells = inverse_cells
        everything = np.ones(inverse_cells.shape, dtype=np.bool_)
        self.allowed = everything if allowed is None else allowed
        self.weighted = np.array(weighted)
        self.weighted[self.weighted <= self.weighted.max() * 1e-14] = 0.0
        self.needed = self.weighted > 0

    def pull(self, theta: Floats) -> Floats:
        """Return ``-d error / d theta^2``, at fixed sensitivity."""
        inverse = self._inverse(superset_sum(theta**2 * self.inverse_cells))
        return self.inverse_cells * subset_sum(self.weighted * inverse**2)

    def _inverse(self, kappa: Floats) -> Floats:
        return np.divide(1.0, kappa, out=np.zeros_like(kappa), where=self.needed & (kappa > 0))

    def __call__(self, theta: Floats, order: Order) -> tuple[float, Floats]:
        """Return the error in units and its gradient; infinite where something is not measured."""
        kappa = superset_sum(theta**2 * self.inverse_cells)
        if (kappa[self.needed] <= 0).any():
            return math.inf, np.zeros_like(theta)
        inverse = self._inverse(kappa)
        error = float(self.weighted @ inverse)
        slope = -2.0 * theta * self.inverse_cells * subset_sum(self.weighted * inverse**2)
        if order == 1:
            norm, norm_slope = float(theta.sum()) ** 2, np.full_like(theta, 2.0 * theta.sum())
        else:
            norm, norm_slope = float(theta @ theta), 2.0 * theta
        return norm * error, norm * slope + error * norm_slope


def closed_form(sizes: Sequence[int], weights: Floats) -> tuple[Floats, bool]:
    """Return ``theta`` of Theorem 13 and whether it is real, hence optimal (Gaussian).

    ``theta^2 = Y^-1 sqrt(Y w)``; where entries are negative they are replaced by zero,
    which starts the numerical optimisation.
    """
    inverse_cells = product_over_attributes([1.0] * len(sizes), [1.0 / n for n in sizes])
    roots = np.sqrt(np.maximum(superset_sum(weights * inverse_cells), 0.0))
    square = superset_difference(roots) / inverse_cells
    tiny = 1e-9 * float(np.max(np.abs(square), initial=0.0))
    return np.sqrt(np.maximum(square, 0.0)), bool((square >= -tiny).all())


def opt_m(
    sizes: Sequence[int],
    weights: Mapping[int, float] | Floats,
    order: Order,
    *,
    seed: int = 0,
    restarts: int = 40,
    iterations: int = 1000,
    most_cells: float = math.inf,
    tick: Callable[[], None] = lambda: None,
) -> MarginalStrategy:
    """OPT_M (Definition 22): the best weighted marginals found for a workload.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes, at most 20 attributes.
    weights : mapping of mask to float, or array of shape (2**d,)
        A workload of marginals, or the weights that `marginal_approximation` returns.
    order : int
        1 for Laplace, 2 for Gaussian noise: the norm of the sensitivity.
    seed : int
        Of the random starting points.
    restarts : int
        Starting points for Laplace noise.
    iterations : int
        Of L-BFGS-B at the end.
    most_cells : float
        Of a marginal that is measured; at least those of every marginal that is asked for.
    tick : callable
        Called between starting points and at every evaluation; may raise to cancel.

    Raises
    ------
    InvalidParameter
        If the workload is empty or too wide.

    Notes
    -----
    For Gaussian noise the problem is convex in ``theta^2`` and one start suffices.  For Laplace
    noise it has many local minima; every further start is a mixture of the best strategy
    so far, with a fifth of its marginals left out, and of random weights.
    """
    sizes = check_sizes(sizes)
    vector = dense_weights(len(sizes), weights) if isinstance(weights, Mapping) else weights
    if not (vector > 0).any():
        raise InvalidParameter("the workload holds no marginal of positive weight")
    allowed = product_over_attributes([1.0] * len(sizes), [float(n) for n in sizes]) <= most_cells
    objective = of_marginals(sizes, vector, allowed)
    start, real = closed_form(sizes, vector)
    if order == 2 and real and allowed[start > 0].all():
        return _normalised(objective, start, order)
    if order == 1:
        start = search(objective, start, np.random.default_rng(seed), restarts, tick)
    return _normalised(objective, _minimise(objective, start, order, iterations, tick), order)


def _normalised(objective: Objective, theta: Floats, order: Order) -> MarginalStrategy:
    error, _ = objective(theta, order)
    norm = float(theta.sum()) if order == 1 else math.sqrt(float(theta @ theta))
    return MarginalStrategy(theta / norm, error)


def search(
    objective: Objective,
    theta: Floats,
    generator: np.random.Generator,
    restarts: int,
    tick: Callable[[], None],
) -> Floats:
    """Look for good weights with Laplace noise: from random beginnings and near the best one."""
    best, least = theta, math.inf
    for k in range(restarts + 1):
        tick()
        fresh = generator.random(theta.size)
        fresh *= objective.inverse_cells ** generator.uniform(0.0, 0.4)
        fresh *= objective.allowed
        start = fresh / fresh.sum()
        if k:
            kept = best * (generator.random(theta.size) > 0.2)
            share = 0.5 if k % 2 else 0.05
            if kept.any():
                start = share * start + (1.0 - share) * kept / kept.sum()
        found = _descend_laplace(objective, start, 100)
        error, _ = objective(found, 1)
        if error < least:
            best, least = found, error
    return best


def _descend_laplace(objective: Objective, theta: Floats, iterations: int) -> Floats:
    """Minimise a bound that touches the objective, again and again: it never rises.

    With ``v = theta^2`` and ``g = -d error / d v``, convexity of ``1 / kappa`` gives
    ``error(v) <= sum_b v_old(b)^2 g(b) / v(b)``, which under ``sum sqrt(v) = 1`` is least for
    ``theta`` proportional to ``(theta_old^4 g)^(1/3)``.
    """
    for _ in range(iterations):
        theta = theta / theta.sum()
        theta = np.cbrt(theta**4 * objective.pull(theta))
        theta[theta < 1e-9 * theta.max()] = 0.0
    return theta


def _minimise(
    objective: Objective,
    theta: Floats,
    order: Order,
    iterations: int,
    tick: Callable[[], None],
) -> Floats:
    from scipy.optimize import minimize

    # a coordinate at zero has zero slope and would stay there for ever
    theta = theta / theta.max()
    lifted: Floats = np.where(objective.allowed, np.maximum(theta, 1e-3), 0.0)
    lifted = lifted if order == 2 else theta
    scale, _ = objective(lifted, order)

    def logarithm(point: Floats) -> tuple[float, Floats]:
        tick()
        value, slope = objective(point, order)
        if not math.isfinite(value):
            return math.inf, slope
        return math.log(value / scale), slope / value

    result = minimize(
        logarithm,
        lifted,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None if free else 0.0) for free in objective.allowed],
        options={
            "maxiter": iterations,
            "maxfun": 2 * iterations,
            "maxcor": 20,
            "ftol": 1e-14,
            "gtol": 1e-9,
        },
    )
    return min((result.x, theta), key=lambda point: objective(point, order)[0])
