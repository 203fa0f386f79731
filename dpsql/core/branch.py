"""Branch and bound over integer boxes, for two variables and more (docs/proofs/smooth.md).

Maximises ``L(s) = log P(s) - beta * sum(s)``.  A node is a box ``low <= s <= high``
together with a range ``k1 <= sum(s) <= k2`` (slices make ridges along
``sum(s) = const`` cheap).  All nodes of a level are bounded at once with numpy, by the
least of three upper bounds: monotonicity, mean value with interval gradients, and a
second-order Taylor bound with interval Hessians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from dpsql.core.polynomial import Polynomial, Powers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Whole = NDArray[np.intp]

_TINY = 1e-290


@dataclass(frozen=True, slots=True)
class _Nodes:
    low: Floats  # (nodes, variables), integers stored as floats
    high: Floats
    k1: Floats  # (nodes,)
    k2: Floats
    job: Whole  # (nodes,), which polynomial

    def take(self, which: NDArray[np.bool_]) -> _Nodes:
        return _Nodes(
            self.low[which], self.high[which], self.k1[which], self.k2[which], self.job[which]
        )


@dataclass(frozen=True, slots=True)
class Job:
    """One polynomial to maximise, from ``start`` on; its ``L`` is raised by ``bonus``.

    The polynomial has no capped factors and every variable occurs.
    """

    polynomial: Polynomial
    start: tuple[int, ...]
    bonus: float

    def signature(self) -> tuple[bool, ...]:
        """Tell for every variable whether it occurs at most linearly; jobs of one call agree."""
        return tuple(all(p[i] <= 1 for p in self.polynomial) for i in range(len(self.start)))


class _Objective:
    """Values of ``P`` and of what the bounds need, as one matrix product per job."""

    def __init__(self, jobs: Sequence[Job], beta: float) -> None:
        self.beta = beta
        self.linear = jobs[0].signature()
        self.n = n = len(self.linear)
        self.pairs = [(i, j) for i in range(n) for j in range(i, n)]
        logs = [[(p, math.log(c) + job.bonus) for p, c in job.polynomial.items()] for job in jobs]
        self.top = max(log for job in logs for _, log in job)
        tables = [
            self._columns({p: max(math.exp(log - self.top), _TINY) for p, log in job})
            for job in logs
        ]
        basis = sorted({p for table in tables for column in table for p in column})
        self.exponents = np.array(basis, dtype=np.intp).reshape(len(basis), n)
        self.degree = int(self.exponents.max(initial=0))
        self.having = [
            [np.flatnonzero(self.exponents[:, i] == a) for a in range(self.degree + 1)]
            for i in range(n)
        ]
        self.weights = [
            np.array([[column.get(p, 0.0) for column in table] for p in basis]) for table in tables
        ]

    def _columns(self, terms: dict[Powers, float]) -> list[dict[Powers, float]]:
        """List the polynomials P; P_i; P without s_i; P_ij; four per pair for the Hessian."""
        n = self.n
        first = [_derivative(terms, i) for i in range(n)]
        columns = [terms, *first]
        columns += [{p: c for p, c in terms.items() if p[i] == 0} for i in range(n)]
        columns += [_derivative(first[i], j) for i, j in self.pairs]
        for i, j in self.pairs:
            columns += self._hessian_parts(terms, first, i, j)
        return columns

    def _hessian_parts(
        self, terms: dict[Powers, float], first: list[dict[Powers, float]], i: int, j: int
    ) -> list[dict[Powers, float]]:
        """Polynomials x, y, z, w with ``(log P)_ij = (x*y - z*w) / P**2``."""
        if i == j or not (self.linear[i] and self.linear[j]):
            return [_derivative(first[i], j), terms, first[i], first[j]]
        # P = a + b s_i + c s_j + d s_i s_j gives a*d - b*c: no cancellation lost

        def part(in_i: int, in_j: int) -> dict[Powers, float]:
            return {
                tuple(0 if m in (i, j) else e for m, e in enumerate(p)): c
                for p, c in terms.items()
                if (p[i], p[j]) == (in_i, in_j)
            }

        return [part(0, 0), part(1, 1), part(1, 0), part(0, 1)]

    def __call__(self, points: Floats, job: Whole, columns: slice = slice(None)) -> Floats:
        basis = np.ones((len(points), len(self.exponents)))
        for i in range(self.n):
            power = np.ones((len(points), 1))
            for a in range(1, self.degree + 1):
                power = power * points[:, i : i + 1]
                basis[:, self.having[i][a]] *= power
        return self._weigh(basis, job, columns)

    def _weigh(self, basis: Floats, job: Whole, columns: slice) -> Floats:
        if len(self.weights) == 1:
            return np.asarray(basis @ self.weights[0][:, columns])
        result = np.empty((len(job), self.weights[0][:, columns].shape[1]))
        for number, weights in enumerate(self.weights):
            rows = np.flatnonzero(job == number)
            if len(rows):
                result[rows] = basis[rows] @ weights[:, columns]
        return result

    def by_monomials(self, nodes: _Nodes) -> Floats:
        """Bound ``L`` on boxes by the sum of every monomial's own maximum."""
        basis = np.ones((len(nodes.low), len(self.exponents)))
        for i in range(self.n):
            for a in range(self.degree + 1):
                best = np.clip(a / self.beta, nodes.low[:, i], nodes.high[:, i])
                power = np.exp(-self.beta * best)
                for _ in range(a):
                    power = power * best
                basis[:, self.having[i][a]] *= power[:, None]
        return np.asarray(np.log(self._weigh(basis, nodes.job, slice(0, 1))[:, 0]))

    def logarithm(self, points: Floats, job: Whole) -> Floats:
        """``L`` up to the constant ``top``; minus infinity where ``P`` is zero."""
        values = self(points, job, slice(0, 1))[:, 0]
        return np.asarray(np.log(values) - self.beta * points.sum(1))


def _derivative(terms: dict[Powers, float], i: int) -> dict[Powers, float]:
    return {(*p[:i], p[i] - 1, *p[i + 1 :]): c * p[i] for p, c in terms.items() if p[i]}


def maximise(
    jobs: Sequence[Job], beta: float, tolerance: float, floor: float = -math.inf
) -> tuple[int, tuple[int, ...]]:
    """Find a job and a point that are optimal, up to ``tolerance`` in ``L``.

    Parameters
    ----------
    jobs : sequence of Job
        With equal signatures.
    beta : float, > 0
        Smoothness.
    tolerance : float
        Allowed gap in ``log P(s) - beta * sum(s) + bonus``.
    floor : float
        A value that is known to be attained elsewhere.

    Returns
    -------
    tuple of int and tuple of int
        Index of the job, and the point; any if none exceeds ``floor + tolerance``.
    """
    objective = _Objective(jobs, beta)
    low = np.array([job.start for job in jobs], dtype=np.float64)
    degrees = [[max(p[i] for p in job.polynomial) for i in range(objective.n)] for job in jobs]
    high = np.maximum(low, np.ceil(np.array(degrees) / beta) + 1)
    nodes = _Nodes(low, high, low.sum(1), high.sum(1), np.arange(len(jobs)))
    floor -= objective.top
    with np.errstate(all="ignore"):
        best, winner, point = _climb(objective, nodes)
        while len(nodes.low):
            center = _center(nodes)
            tried = np.vstack([np.rint(center), nodes.low, nodes.high])
            owner = np.concatenate([nodes.job] * 3)
            values = objective.logarithm(tried, owner)
            top = int(np.argmax(values))
            if values[top] > best:
                best, winner, point = float(values[top]), int(owner[top]), tried[top]
            open_ = np.asarray((nodes.low < nodes.high).any(1))
            nodes, center = nodes.take(open_), center[open_]
            if len(nodes.low):
                upper, side, flat = _upper(objective, nodes, center)
                open_ = np.asarray(upper > max(best, floor) + tolerance)
                nodes = _split(nodes.take(open_), side[open_], flat[open_])
    return winner, tuple(int(s) for s in point)


def _climb(objective: _Objective, nodes: _Nodes) -> tuple[float, int, Floats]:
    """Coordinate ascent from a grid of starting points: a first incumbent, no proof."""
    n = objective.n
    grid = np.array(list(product((0.0, 0.45, 0.9), repeat=min(n, 5))))
    grid = np.hstack([grid, np.zeros((len(grid), n - grid.shape[1]))])
    job = np.repeat(nodes.job, len(grid))
    low, high = nodes.low[job], nodes.high[job]
    points = np.rint(low + np.tile(grid, (len(nodes.job), 1)) * (high - low))
    for _ in range(3):
        for i in range(n):
            if objective.linear[i]:
                values = objective(points, job, slice(1, 1 + 2 * n))
                best = np.rint(1 / objective.beta - values[:, n + i] / values[:, i])
                best = np.where(np.isnan(best), low[:, i], best)
                points[:, i] = np.clip(best, low[:, i], high[:, i])
    values = objective.logarithm(points, job)
    top = int(np.argmax(values))
    return float(values[top]), int(job[top]), points[top]


def _center(nodes: _Nodes) -> Floats:
    """Return the point of each box's diagonal whose sum is the middle of the k range."""
    bottom, width = nodes.low.sum(1), (nodes.high - nodes.low).sum(1)
    share = (0.5 * (nodes.k1 + nodes.k2) - bottom) / np.maximum(width, 1.0)
    return np.asarray(nodes.low + share[:, None] * (nodes.high - nodes.low))


def _upper(
    objective: _Objective, nodes: _Nodes, center: Floats
) -> tuple[Floats, NDArray[np.intp], NDArray[np.bool_]]:
    """Bound ``L`` from above on every node.

    Also returns the side along which the gradient is the least known and whether the
    node is better cut into slices than into boxes.
    """
    n, beta = objective.n, objective.beta
    at_low, at_high = objective(nodes.low, nodes.job), objective(nodes.high, nodes.job)
    at_center = objective(center, nodes.job, slice(0, 1 + n))
    p_low, p_high, p_mid = at_low[:, 0], at_high[:, 0], at_center[:, 0]
    simple = np.log(p_high) - beta * nodes.k1
    simple = np.fmin(simple, objective.by_monomials(nodes))

    # gradient of log P: interval over the box, and value at the center
    v_low = at_low[:, 1 : 1 + n] / p_high[:, None]
    v_high = at_high[:, 1 : 1 + n] / p_low[:, None]
    for i in range(n):
        if objective.linear[i]:  # P = A + B s_i, so v_i = 1/(s_i + A/B)
            a, b = 1 + n + i, 1 + i
            v_low[:, i] = 1 / (nodes.high[:, i] + at_high[:, a] / at_low[:, b])
            v_high[:, i] = 1 / (nodes.low[:, i] + at_low[:, a] / at_high[:, b])
    base = np.log(p_mid) - beta * center.sum(1)
    down, up = nodes.low - center, nodes.high - center
    k_low, k_high = nodes.k1 - center.sum(1), nodes.k2 - center.sum(1)
    mean_value = base + (np.maximum((v_high - beta) * up, (v_low - beta) * down).sum(1))

    gradient = at_center[:, 1 : 1 + n] / p_mid[:, None] - beta
    linear = np.full(len(base), np.inf)
    for column in range(n + 1):  # Lagrange multipliers of the slice
        price = gradient[:, column] if column < n else np.zeros(len(base))
        rest = gradient - price[:, None]
        bound = np.maximum(rest * up, rest * down).sum(1)
        bound += np.maximum(price * k_low, price * k_high)
        linear = np.minimum(linear, bound)
    reach = np.maximum(up, -down)
    convex = np.zeros(len(base))  # H <= (second derivatives of P) / P
    for number, (i, j) in enumerate(objective.pairs):
        ratio = at_high[:, 1 + 2 * n + number] / p_low
        convex += (0.5 if i == j else 1.0) * ratio * reach[:, i] * reach[:, j]
    curvature = _curvature(objective, at_low, at_high, reach)
    second = base + linear + np.fmin(convex, curvature)
    result = np.fmin(simple, np.fmin(mean_value, second))
    width = nodes.high - nodes.low
    smear = np.where(np.isfinite(v_high), v_high - v_low, 1.0) * width * width
    smear = np.where(width > 0, smear + 1e-9 * width, -1.0)
    return result, np.argmax(smear, axis=1), ~(convex > curvature)


def _curvature(objective: _Objective, at_low: Floats, at_high: Floats, reach: Floats) -> Floats:
    """Bound ``d' H d / 2`` over Hessians ``H`` of ``log P`` in the box and ``|d| <= reach``."""
    n = objective.n
    offset = 1 + 2 * n + len(objective.pairs)
    middle = np.zeros((len(reach), n, n))
    slack = np.zeros(len(reach))
    square_low, square_high = at_low[:, 0] ** 2, at_high[:, 0] ** 2
    for number, (i, j) in enumerate(objective.pairs):
        x, y, z, w = (offset + 4 * number + m for m in range(4))
        top = at_high[:, x] * at_high[:, y] - at_low[:, z] * at_low[:, w]
        bottom = at_low[:, x] * at_low[:, y] - at_high[:, z] * at_high[:, w]
        top = np.where(top > 0, top / square_low, top / square_high)
        bottom = np.where(bottom > 0, bottom / square_high, bottom / square_low)
        scale = reach[:, i] * reach[:, j]
        middle[:, i, j] = middle[:, j, i] = 0.5 * (top + bottom) * scale
        slack += (1 if i == j else 2) * 0.5 * (top - bottom) * scale
    result = np.full(len(reach), np.inf)
    usable = np.isfinite(slack) & np.isfinite(middle).all((1, 2))
    if usable.any():
        largest = np.linalg.eigvalsh(middle[usable])[:, -1]
        size = np.abs(middle[usable]).max((1, 2))
        largest = np.maximum(largest + 1e-13 * size, 0.0)
        result[usable] = 0.5 * (n * largest + slack[usable])
    return result


def _split(nodes: _Nodes, side: NDArray[np.intp], flat: NDArray[np.bool_]) -> _Nodes:
    """Halve the range of k where that helps more, else one side of the box."""
    width = nodes.high - nodes.low
    rows = np.arange(len(side))
    longest = width.max(axis=1, initial=0)
    by_k = (nodes.k2 - nodes.k1) >= np.where(flat, np.ceil(longest / 4), longest)
    cut_k = np.floor(0.5 * (nodes.k1 + nodes.k2))
    cut = np.floor(0.5 * (nodes.low[rows, side] + nodes.high[rows, side]))
    low2, high1 = nodes.low.copy(), nodes.high.copy()
    high1[rows[~by_k], side[~by_k]] = cut[~by_k]
    low2[rows[~by_k], side[~by_k]] = cut[~by_k] + 1
    both = _Nodes(
        np.vstack([nodes.low, low2]),
        np.vstack([high1, nodes.high]),
        np.concatenate([nodes.k1, np.where(by_k, cut_k + 1, nodes.k1)]),
        np.concatenate([np.where(by_k, cut_k, nodes.k2), nodes.k2]),
        np.concatenate([nodes.job, nodes.job]),
    )
    return _tighten(both)


def _tighten(nodes: _Nodes) -> _Nodes:
    """Make box and k range consistent; drop empty nodes."""
    low, high = nodes.low, nodes.high
    spare = nodes.k2 - low.sum(1)
    need = nodes.k1 - high.sum(1)
    keep = (spare >= 0) & (need <= 0)
    low, high, spare, need = low[keep], high[keep], spare[keep], need[keep]
    new_high = np.minimum(high, low + spare[:, None])
    new_low = np.maximum(low, high + need[:, None])
    k1 = np.maximum(nodes.k1[keep], new_low.sum(1))
    k2 = np.minimum(nodes.k2[keep], new_high.sum(1))
    return _Nodes(new_low, new_high, k1, k2, nodes.job[keep])
