"""OPT_plus with shared parts: weighted marginals of one optimised matrix per attribute.

Where every group of products measures an attribute by the same matrix ``A_i`` or not at all, the
strategy is ``theta_a (x)_{i in a} A_i`` over sets ``a`` of attributes: OPT_M (papers/hdmm.txt
section 7.2) is the case ``A_i = I``.  With ``G_i = A_i^T A_i``, ``t_i = 1^T G_i^-1 1`` and ``u_i =
G_i^-1 1 / t_i`` the estimate of a marginal splits into its total and a residual that are
uncorrelated, so that all measurements together are reconstructed set by set: the residual over
``b`` has in the metric ``(x)_{i in b} (G_i^-1 - t_i u_i u_i^T)`` the variance

    sigma_b^2 = 1 / sum_{a >= b} theta_a^2 prod_{i in a - b} 1 / t_i

(for ``A_i = I`` ``t_i`` is ``n_i``), and a product of queries with Gram matrices ``V_i`` has the
squared error ``sum_b sigma_b^2 prod_{i in b} tr(V_i (G_i^-1 - t_i u_i u_i^T)) prod_{i not in b}
u_i^T V_i u_i``.  That is the error of the *joint* least squares estimate, for any number of groups,
in ``2^d`` numbers, whatever the cells.  The paper's operators have no such strategies: OPT_M has no
matrices, OPT_plus reconstructs each group by itself.

For Laplace noise: with Gaussian noise ResidualPlanner measures the same residuals, each with a
variance of its own, which is never worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import (
    Floats,
    attributes_of,
    product_over_attributes,
    subset_sum,
    subsets,
    superset_sum,
)
from dpsql.workload.matrix import Identity
from dpsql.workload.mechanism import mask_of_product
from dpsql.workload.opt0_laplace import LARGEST, opt0_laplace
from dpsql.workload.opt_marginals import Objective, search
from dpsql.workload.workload import Workload

#: Attributes that all sets are looked at of.
MOST_ATTRIBUTES = 14
#: Levels of an attribute whose matrix is optimised.
MOST_LEVELS = 512
#: Beginnings of the search for the sets.
RESTARTS = 40
#: Queries of a matrix beside the identity's: one for so many levels.
LEVELS_PER_QUERY = 10
#: Turns of weights and matrices, and the improvement below which they end.
ROUNDS = 8
IMPROVEMENT = 1e-4
#: Steps of L-BFGS in each turn.
ITERATIONS = 150
#: Sets that weigh less than this part of the largest are left out.
LEAST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class SharedStrategy:
    """Sets of attributes with their weights, and the matrix of each attribute.

    Attributes
    ----------
    theta : dict of mask to float
        Positive, 1 together.
    matrices : tuple of array or None
        ``A_i``, of shape (queries, n_i) and L1 sensitivity 1; None for the identity.
    error : float
        Total squared error of the joint estimate, in units.
    """

    theta: dict[int, float]
    matrices: tuple[Floats | None, ...]
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """One product: its attributes, squared weight (of what is summed, too) and Gram matrices."""

    mask: int
    weight: float
    grams: tuple[Floats | None, ...]  # of the attributes of the mask; None for the identity


@dataclass(frozen=True, slots=True, eq=False)
class _Slope:
    """Derivatives of the error in the two parts of the error of one Gram matrix."""

    gram: Floats
    own: float
    spread: float


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """One attribute's p-Identity matrix ``[I; Theta] D``: what errors and slopes need of it.

    By Woodbury's identity nothing takes more than ``p n^2`` operations (`opt0_laplace`).
    """

    theta: Floats
    scale: Floats  # of D
    inner: Floats  # (I + Theta Theta^T)^-1
    inverse: Floats  # G^-1
    ones: Floats  # G^-1 1
    total: float  # 1^T G^-1 1

    @classmethod
    def at(cls, theta: Floats) -> _Point:
        norms: Floats = 1 + theta.sum(axis=0)
        inner = np.linalg.inv(np.eye(len(theta)) + theta @ theta.T)
        inverse = -(theta.T @ (inner @ theta))
        inverse[np.diag_indices(len(norms))] += 1
        inverse *= norms
        inverse *= norms[:, None]
        ones = inverse.sum(axis=0)
        return cls(theta, 1 / norms, np.asarray(inner), inverse, ones, float(ones.sum()))

    @property
    def matrix(self) -> Floats:
        """The queries, of shape (n + p, n)."""
        return np.concatenate([np.eye(len(self.scale)), self.theta]) * self.scale

    def errors(self, gram: Floats) -> tuple[float, float]:
        """Return ``t`` and ``s`` (see `residual_bases.Basis.errors`)."""
        spread = float(self.ones @ gram @ self.ones) / self.total**2
        return float(np.vdot(self.inverse, gram)) - spread * self.total, spread

    def slope(self, by_gram: Sequence[_Slope], by_total: float) -> Floats:
        """Return the gradient in ``Theta``.

        Parameters
        ----------
        by_gram : sequence of _Slope
            Of the error in `errors`, for each Gram matrix.
        by_total : float
            That in the logarithm of ``total``.
        """
        n, t = len(self.inverse), self.total
        inner: Floats = np.full((n, n), by_total / t)  # in G^-1
        for slope in by_gram:
            gram, own, spread = slope.gram, slope.own, slope.spread
            seen = gram @ self.ones
            y = float(self.ones @ seen)
            by_y = spread / t**2 - own / t
            inner += own * gram + (own * y / t**2 - 2 * spread * y / t**3)
            inner += by_y * (seen[:, None] + seen[None, :])
        # with A the matrix and X = G^-1 inner G^-1 the slope in A is -2 A X
        along = -2 * np.einsum("ij,ij->j", inner, self.inverse)  # A^T times it: in D, times 1/D
        solved = self.inner @ self.theta
        rows = (solved / self.scale) @ inner / self.scale
        rows = (rows - (rows @ self.theta.T) @ solved) / self.scale
        return np.asarray((-2 * rows - along) * self.scale)  # dD/dTheta is -D^2


def opt_shared(
    workload: Workload,
    *,
    seed: int,
    restarts: int = RESTARTS,
    most_levels: int = MOST_LEVELS,
    most_cells: float = math.inf,
    tick: Callable[[], None] = lambda: None,
) -> SharedStrategy:
    """Optimise the weights of sets of attributes, and a matrix for each that is not asked by cells.

    Parameters
    ----------
    workload : Workload
        A union of products, without disjunctions.
    seed : int
        Of random beginnings; the result is a function of the arguments.
    restarts : int
        Of the search for the sets, as in `opt_marginals.opt_m`.
    most_levels : int
        Of an attribute that is asked otherwise than by cells.
    most_cells : float
        Answers about a set of attributes that are measured at most.
    tick : callable
        Called now and then; may raise to cancel.

    Raises
    ------
    InvalidParameter
        For disjunctions, more than `MOST_ATTRIBUTES` attributes, too many levels, or sets that are
        asked for and too large.
    """
    problem = _Problem(workload, most_levels, most_cells)
    thetas = problem.begin(seed, tick)
    points = {i: _Point.at(theta) for i, theta in thetas.items()}
    generator = np.random.default_rng(seed)
    weights: Floats | None = None
    least = math.inf
    best: tuple[Floats, dict[int, _Point]] | None = None
    for _ in range(ROUNDS):
        objective = problem.objective(points)
        start = np.ones(1 << problem.count) if weights is None else weights
        turns = restarts if weights is None else restarts // 4
        weights = search(objective, start, generator, turns, tick)
        weights, thetas, error = problem.descend(weights, thetas, tick)
        points = {i: _Point.at(theta) for i, theta in thetas.items()}
        if error < least:
            best = weights, points
        if not thetas or error > least * (1 - IMPROVEMENT):
            least = min(least, error)
            break
        least = error
    if best is None:
        raise InvalidParameter("the workload holds no query")
    weights, points = best
    theta = {a: float(x) for a, x in enumerate(weights / weights.sum()) if x > 0}
    matrices = [points[i].matrix if i in points else None for i in range(problem.count)]
    return SharedStrategy(theta, tuple(matrices), least)


class _Problem:
    """What the workload asks, in the form that errors are computed from."""

    def __init__(self, workload: Workload, most_levels: int, most_cells: float) -> None:
        self.sizes = workload.domain.sizes
        self.count = len(self.sizes)
        if self.count > MOST_ATTRIBUTES:
            raise InvalidParameter(
                "shared parts look at all sets of attributes, and there are too many",
                detail=f"The domain has {self.count} attributes; at most {MOST_ATTRIBUTES} can be.",
            )
        if any(product.either for product in workload.products):
            raise InvalidParameter(
                "marginals do not answer conditions on one of several attributes"
            )
        self.asked: list[_Asked] = []
        known: dict[object, Floats] = {}
        for product in workload.products:
            mask, factors = mask_of_product(product), product.queries.factors
            weight = product.weight**2
            grams: list[Floats | None] = []
            for i, factor in enumerate(factors):
                if not mask >> i & 1:
                    weight *= float((factor.dense()[:, 0] ** 2).sum())
                elif isinstance(factor, Identity):
                    grams.append(None)
                else:
                    if self.sizes[i] > most_levels:
                        raise InvalidParameter(
                            "an attribute has too many levels for a matrix that is optimised",
                            detail=f"It has {self.sizes[i]} levels; at most {most_levels} can be "
                            "asked for by ranges.",
                        )
                    grams.append(known.setdefault(factor, factor.gram()))
            if weight > 0:
                self.asked.append(_Asked(mask, weight, tuple(grams)))
        self.special = sorted(
            {
                i
                for asked in self.asked
                for i, gram in zip(attributes_of(asked.mask), asked.grams, strict=True)
                if gram is not None
            }
        )

        self.cells = {i: np.eye(self.sizes[i]) for i in self.special}
        lengths = [
            float(n + (_rows(n) if i in self.cells else 0)) for i, n in enumerate(self.sizes)
        ]
        answers = product_over_attributes([1.0] * self.count, lengths)
        self.allowed = answers <= most_cells
        if not all(self.allowed[asked.mask] for asked in self.asked):
            raise InvalidParameter(
                "a set of attributes has too many cells for matrices that are shared",
                detail="About one of them "
                f"{max(answers[asked.mask] for asked in self.asked):.0f} numbers would be"
                f" measured; at most {most_cells} can be.",
            )

    def begin(self, seed: int, tick: Callable[[], None]) -> dict[int, Floats]:
        """Return matrices by OPT_0 for what is asked of each attribute alone."""
        found = {}
        for i in self.special:
            n = self.sizes[i]
            total: Floats = np.zeros((n, n))
            for asked in self.asked:
                if asked.mask >> i & 1:
                    gram = asked.grams[attributes_of(asked.mask).index(i)]
                    gram = np.eye(n) if gram is None else gram
                    total += asked.weight * gram
            found[i] = opt0_laplace(total, seed=seed, p=_rows(n), restarts=2, tick=tick).theta
        return found

    def errors(self, asked: _Asked, points: dict[int, _Point]) -> tuple[list[float], list[float]]:
        """Return own and spread errors of the attributes of a product."""
        own, spread = [], []
        for i, gram in zip(attributes_of(asked.mask), asked.grams, strict=True):
            n = self.sizes[i]
            if i in points:
                t, s = points[i].errors(self.cells[i] if gram is None else gram)
            else:
                t, s = n - 1.0, 1.0 / n
            own.append(t)
            spread.append(s)
        return own, spread

    def totals(self, points: dict[int, _Point]) -> list[float]:
        """Return ``t_i`` of every attribute."""
        return [points[i].total if i in points else float(n) for i, n in enumerate(self.sizes)]

    def coefficients(self, points: dict[int, _Point]) -> Floats:
        """Return what a unit of variance of each residual adds to the error."""
        result: Floats = np.zeros(1 << self.count)
        for asked in self.asked:
            own, spread = self.errors(asked, points)
            result[list(subsets(asked.mask))] += asked.weight * product_over_attributes(spread, own)
        return result

    def objective(self, points: dict[int, _Point]) -> Objective:
        """Return the error as a function of the weights."""
        totals = self.totals(points)
        ones = [1.0] * self.count
        inverse = product_over_attributes(ones, [1 / t for t in totals])
        return Objective(inverse, self.coefficients(points) * inverse, self.allowed)

    def descend(
        self, weights: Floats, thetas: dict[int, Floats], tick: Callable[[], None]
    ) -> tuple[Floats, dict[int, Floats], float]:
        """Move weights and matrices together; no set is added."""
        from scipy.optimize import Bounds, minimize

        kept = np.flatnonzero(weights > LEAST * weights.max())
        begun = weights[kept] / weights[kept].sum()
        shapes = {i: theta.shape for i, theta in thetas.items()}
        ends = np.cumsum([len(kept)] + [theta.size for theta in thetas.values()])

        def split(flat: Floats) -> tuple[Floats, dict[int, Floats]]:
            parts = np.split(flat, ends[:-1])
            full: Floats = np.zeros(1 << self.count)
            full[kept] = parts[0]
            rest = zip(shapes.items(), parts[1:], strict=True)
            return full, {i: x.reshape(shape) for (i, shape), x in rest}

        def logarithm(flat: Floats) -> tuple[float, Floats]:
            tick()
            full, matrices = split(flat)
            value, by_weights, slopes = self.evaluate(full, matrices)
            parts = [by_weights[kept]] + [slopes[i].ravel() for i in matrices]
            return math.log(value), np.concatenate(parts) / value

        upper = np.concatenate([np.ones(len(kept)) * 10, np.full(ends[-1] - len(kept), LARGEST)])
        lower = np.zeros(ends[-1])
        lower[: len(kept)] = 1e-9
        result = minimize(
            logarithm,
            np.concatenate([begun] + [theta.ravel() for theta in thetas.values()]),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower, upper),
            options={"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "ftol": 1e-9, "maxcor": 10},
        )
        full, matrices = split(result.x)
        return full, matrices, math.exp(float(result.fun))

    def evaluate(
        self, weights: Floats, thetas: dict[int, Floats]
    ) -> tuple[float, Floats, dict[int, Floats]]:
        """Return the error in units, and its gradients in the weights and in each ``Theta``."""
        points = {i: _Point.at(theta) for i, theta in thetas.items()}
        totals = self.totals(points)
        ones = [1.0] * self.count
        inverse = product_over_attributes(ones, [1 / t for t in totals])
        above = superset_sum(weights**2 * inverse)
        variances = np.divide(inverse, above, out=np.zeros_like(above), where=above > 0)
        coefficients: Floats = np.zeros(1 << self.count)
        slopes_in: dict[int, dict[int, _Slope]] = {i: {} for i in points}
        for asked in self.asked:
            own, spread = self.errors(asked, points)
            below = list(subsets(asked.mask))
            coefficients[below] += asked.weight * product_over_attributes(spread, own)
            weighted = asked.weight * variances[below]
            for axis, i in enumerate(attributes_of(asked.mask)):
                if i not in points:
                    continue
                low, high = [*spread], [*own]
                low[axis], high[axis] = 0.0, 1.0
                by_own = float(product_over_attributes(low, high) @ weighted)
                low[axis], high[axis] = 1.0, 0.0
                by_spread = float(product_over_attributes(low, high) @ weighted)
                gram = asked.grams[axis]
                gram = self.cells[i] if gram is None else gram
                known = slopes_in[i].get(id(gram), _Slope(gram, 0.0, 0.0))
                slopes_in[i][id(gram)] = _Slope(gram, known.own + by_own, known.spread + by_spread)
        value = float(coefficients @ variances)
        pulled = coefficients * variances
        share = np.divide(pulled, above, out=np.zeros_like(above), where=above > 0)
        by_square = -inverse * subset_sum(share)
        norm = float(weights.sum())
        gradient = norm**2 * by_square * 2 * weights + 2 * norm * value
        slopes = {}
        for i, point in points.items():
            bit = 1 << i
            outside = np.flatnonzero(np.arange(1 << self.count) & bit == 0)
            by_total = float(share[outside] @ above[outside | bit])
            slopes[i] = norm**2 * point.slope(list(slopes_in[i].values()), by_total)
        return norm**2 * value, gradient, slopes


def _rows(levels: int) -> int:
    """Return how many queries of its own a matrix has beside the single levels."""
    return max(1, levels // LEVELS_PER_QUERY)
