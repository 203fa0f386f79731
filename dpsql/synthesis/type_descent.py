"""Fit links between types to noisy marginals: accelerated mirror descent.

The objective is ``chi^2 = sum over answers of |M_w X - a_w|^2 / variance_w``: twice the negative
logarithm of the noise's likelihood.  Algorithm 5 (papers/relational-synthetic-data.txt) adds
unweighted squares of distributions, right only where all variances are equal; and its fixed
step must be guessed.  Here the mirror is the entropy as there, the steps follow Auslender and
Teboulle (2006) with momentum, so that the error falls with the square of the number of steps, and
their size is found as one goes: for a quadratic it suffices that

    ``|M (Z+ - Z)|^2 / variance  <=  L  sum (Z+ - Z)^2 / max(Z+, Z)``,

whose right side is at most ``2 L`` times the divergence of ``Z+`` from ``Z``.

It stops at the noise (the discrepancy principle): ``chi^2`` of the truth is about the number of
cells, and a table that fits better fits noise.  Descent starts at independence, so what nobody
measured stays as near to independence as the answers allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.synthesis.marginal_map import MarginalMap
from dpsql.synthesis.polytope import TINY, Polytope
from dpsql.workload.marginals import Floats

_STEEP = 60.0
#: No cell falls below this share of the mean: it could hardly grow again, and projections of
#: tables with far smaller cells converge slowly.
_LEAST = 1e-9
_SWEEPS, _LOOSE = 40, 1e-5


@dataclass(frozen=True)
class Descent:
    """When descent ends.

    Attributes
    ----------
    steps : int
        Most steps.
    stop : float
        Ends when ``chi^2`` is at most this many times the number of cells.
    still : float
        Ends when ten steps lower ``chi^2`` by less than this share.
    """

    steps: int = 300
    stop: float = 1.0
    still: float = 1e-3


@dataclass(frozen=True)
class Fitted:
    """A fit.

    Attributes
    ----------
    table : array of shape (k1, k2)
    misfit : float
        Its ``chi^2``.
    steps : int
    """

    table: Floats
    misfit: float
    steps: int


def fit(
    mapping: MarginalMap,
    polytope: Polytope,
    start: Floats,
    descent: Descent | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Fitted:
    """Minimise ``chi^2`` over a polytope.

    Parameters
    ----------
    mapping : MarginalMap
        With the answers.
    polytope : Polytope
    start : array of shape (k1, k2)
        Positive; is overwritten.
    descent : Descent, optional
    tick : callable
        Called at every step; may raise.

    Notes
    -----
    Memory: seven tables of ``k1 k2`` doubles.
    """
    how = descent or Descent()
    return _Fit(mapping, polytope, how).run(start, tick)


class _Fit:
    """The state of one descent."""

    def __init__(self, mapping: MarginalMap, polytope: Polytope, how: Descent) -> None:
        self.mapping, self.polytope, self.how = mapping, polytope, how
        self.weights = [1.0 / float(answer.variance) for answer in mapping.answers]
        self.targets = [answer.table for answer in mapping.answers]
        self.cells = sum(target.size for target in self.targets)

    def run(self, start: Floats, tick: Callable[[], None]) -> Fitted:
        how = self.how
        point = self.polytope.settle(self.polytope.project(start))
        seen = self.mapping.forward(point)
        misfit = self.misfit(seen)
        mirror, mirrored = point.copy(), seen
        slope = np.empty_like(point)
        theta, curvature = 1.0, self._first_curvature()
        before, steps = misfit, 0
        while steps < how.steps and misfit > how.stop * self.cells:
            tick()
            steps += 1
            mixed = [(1 - theta) * a + theta * b for a, b in zip(seen, mirrored, strict=True)]
            forces = [
                w * (m - a) for w, m, a in zip(self.weights, mixed, self.targets, strict=True)
            ]
            self.mapping.back(forces, slope)
            last = curvature
            curvature *= 0.6
            while True:
                theta_now = theta
                if steps > 1:
                    theta_now = 2 / (1 + math.sqrt(1 + 4 * curvature / last / theta**2))
                moved = self._prox(mirror, slope, 1 / (curvature * theta_now))
                answers = self.mapping.forward(moved)
                change = self._size([a - b for a, b in zip(answers, mirrored, strict=True)])
                bound = _spread(moved, mirror)
                if change <= curvature * bound * (1 + 1e-9) or bound <= 1e-18 * self.polytope.total:
                    break
                curvature *= max(2.0, min(change / max(curvature * bound, 1e-300), 1e3))
            theta = theta_now
            mirror, mirrored = moved, answers
            nearer = [(1 - theta) * a + theta * b for a, b in zip(seen, mirrored, strict=True)]
            found = self.misfit(nearer)
            if found > misfit:  # momentum overshot: begin again from here
                if theta == 1.0:
                    break
                mirror, mirrored, theta = point.copy(), seen, 1.0
                continue
            share = self._share(seen, mirrored, misfit, found, theta)
            point *= 1 - share
            point += share * mirror
            seen = [(1 - share) * a + share * b for a, b in zip(seen, mirrored, strict=True)]
            misfit = self.misfit(seen)
            if steps % 10 == 0:
                if misfit > (1 - how.still) * before:
                    break
                before = misfit
        point = self.polytope.settle(self.polytope.project(point))
        return Fitted(point, self.misfit(self.mapping.forward(point)), steps)

    def misfit(self, seen: Sequence[Floats]) -> float:
        """Return ``chi^2`` of some answers."""
        return self._size([m - a for m, a in zip(seen, self.targets, strict=True)])

    def _share(
        self, seen: Sequence[Floats], there: Sequence[Floats], now: float, then: float, theta: float
    ) -> float:
        """Return how far to go towards a point: `theta`, or less if the noise is reached before.

        Along the way ``chi^2`` is a parabola: ``now + b x + c x^2``.
        """
        goal = self.how.stop * self.cells
        if then >= goal:
            return theta
        c = self._size([b - a for a, b in zip(seen, there, strict=True)])
        b = (then - now) / theta - c * theta
        root = math.sqrt(max(b * b - 4 * c * (now - goal), 0.0))
        return min(theta, max(0.0, 2 * (now - goal) / max(root - b, 1e-300)) * (1 + 1e-9))

    def _size(self, parts: Sequence[Floats]) -> float:
        return sum(
            w * float(np.vdot(part, part)) for w, part in zip(self.weights, parts, strict=True)
        )

    def _prox(self, mirror: Floats, slope: Floats, step: float) -> Floats:
        """Step from the mirror point against the slope, and project."""
        moved = slope * -step
        moved -= moved.max(initial=0.0)
        np.maximum(moved, -_STEEP, out=moved)
        np.exp(moved, out=moved)
        moved *= mirror
        np.maximum(moved, _LEAST * self.polytope.total / moved.size, out=moved)
        return self.polytope.settle(self.polytope.project(moved, sweeps=_SWEEPS, tolerance=_LOOSE))

    def _first_curvature(self) -> float:
        """Return the bound that always holds: ``|M D|^2 <= |D|_1^2``, by Pinsker."""
        return max(self.polytope.total, 1.0) * max(sum(self.weights), 1e-300) / 4


def _spread(one: Floats, other: Floats) -> float:
    """Return ``sum (x - y)^2 / max(x, y)``."""
    difference = one - other
    difference *= difference
    difference /= np.maximum(np.maximum(one, other), TINY)
    return float(difference.sum())
