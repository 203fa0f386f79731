"""Noise of law ``1/(1 + (x/b)**4)`` on a smooth bound: pure epsilon (docs/proofs/cauchy.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core.mechanisms.base import SLACK, NoiseLaw, Release, at_least_one, check_budget, down
from dpsql.errors import InvalidParameter
from dpsql.model import Guarantee
from dpsql.ports import NoiseSource

SHIFT = Fraction(227951, 100000)
"""At least ``3**(3/4)``, the steepest slope of ``ln(1 + z**4)``."""


@dataclass(frozen=True, slots=True)
class Cauchy:
    """``q + Z`` with ``P(Z = x)`` proportional to ``1/(1 + (x a/S)**4)``; one value.

    Notes
    -----
    Guarantee: epsilon, pure, if ``SHIFT * a + kappa(1/a) * beta <= epsilon``.  The scale
    follows the data and must not be shown.
    """

    guarantee: Guarantee
    beta: float
    slope: Fraction
    name: str = "cauchy"
    visibility: None = None

    @property
    def law(self) -> NoiseLaw:
        """The scale for a sensitivity of 1."""
        return NoiseLaw(1 / self.slope, quartic=True)

    def release(
        self, counts: Sequence[int], sensitivity: Fraction | float, noise: NoiseSource
    ) -> Release:
        """Perturb one count."""
        if len(counts) > 1:
            raise InvalidParameter("the cauchy mechanism releases a single value")
        scale = at_least_one(sensitivity) / self.slope
        return Release([c + noise.discrete_cauchy(scale) for c in counts])


def plan(epsilon: Fraction) -> Cauchy:
    """Plan with ``beta = epsilon/10`` and the largest slope that the proof allows."""
    check_budget(epsilon, Fraction(0))
    beta = float(epsilon) / 10
    smooth = beta + SLACK
    # a <= epsilon/SHIFT, so every scale is at least SHIFT/epsilon
    price = kappa(float(SHIFT / epsilon) * (1 - 1e-12)) * smooth * (1 + 1e-12)
    slope = down((float(epsilon) - price) / float(SHIFT))
    if slope <= 0:
        raise InvalidParameter("dp.epsilon is too small for the cauchy mechanism")
    return Cauchy(Guarantee(epsilon, Fraction(0)), beta, slope)


def kappa(smallest: float) -> float:
    """Price of a change of scale, per unit of ``ln b``, for all scales ``b >= smallest``.

    3 for the continuous law.  For the discrete one the normaliser ``N(b)`` has
    ``|d ln N/d ln b - 1| <= e(b)`` by Poisson summation, so ``3 + e``; never above 4.
    """
    u = math.sqrt(2) * math.pi * smallest
    if u < 2:
        return 4.0
    ratio = math.exp(-u)
    change = 4 * u * ratio / (1 - ratio) ** 2
    normaliser = 1 - 2 * math.sqrt(2) * ratio / (1 - ratio)
    return min(4.0, 3 + change / normaliser * (1 + 1e-9))
