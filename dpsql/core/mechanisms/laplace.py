"""Discrete Laplace noise on a public sensitivity or a smooth bound (docs/proofs/laplace.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core.mechanisms.base import (
    SLACK,
    NoiseLaw,
    Release,
    at_least_one,
    check_budget,
    need_delta,
)
from dpsql.errors import InvalidParameter
from dpsql.model import Guarantee
from dpsql.ports import NoiseSource


@dataclass(frozen=True, slots=True)
class GlobalLaplace:
    """``q + DLap(S/epsilon)`` on every group, for a public constant ``S``.

    Notes
    -----
    Guarantee: epsilon, pure, for the whole vector (L1 sensitivity ``S``).  The scale is
    exact and public.
    """

    guarantee: Guarantee
    name: str = "laplace"
    beta: float = 0.0
    visibility: None = None

    @property
    def law(self) -> NoiseLaw:
        """The scale for a sensitivity of 1."""
        return NoiseLaw(1 / self.guarantee.epsilon, known=None)

    def release(
        self, counts: Sequence[int], sensitivity: Fraction | float, noise: NoiseSource
    ) -> Release:
        """Perturb; ``sensitivity`` must be a public constant."""
        scale = at_least_one(sensitivity) / self.guarantee.epsilon
        return Release([c + noise.discrete_laplace(scale) for c in counts], scale)


@dataclass(frozen=True, slots=True)
class SmoothLaplace:
    """``q + DLap(c S)`` on every group, ``S`` a ``beta``-smooth bound of the L1 sensitivity.

    Notes
    -----
    Guarantee: (epsilon, delta) for the whole vector of ``groups`` values, by the numeric
    certificate ``overspend``.  The scale follows the data and must not be shown.
    """

    guarantee: Guarantee
    beta: float
    factor: Fraction
    groups: int
    name: str = "laplace"
    visibility: None = None

    @property
    def law(self) -> NoiseLaw:
        """The scale for a sensitivity of 1."""
        return NoiseLaw(self.factor)

    def release(
        self, counts: Sequence[int], sensitivity: Fraction | float, noise: NoiseSource
    ) -> Release:
        """Perturb; ``len(counts)`` must not exceed the plan's ``groups``."""
        if len(counts) > self.groups:
            raise InvalidParameter("more groups than the laplace plan was made for")
        scale = at_least_one(sensitivity) * self.factor
        return Release([c + noise.discrete_laplace(scale) for c in counts])


def plan_global(epsilon: Fraction) -> GlobalLaplace:
    """Plan noise for a public constant sensitivity."""
    check_budget(epsilon, Fraction(0))
    return GlobalLaplace(Guarantee(epsilon, Fraction(0)))


def plan_smooth(epsilon: Fraction, delta: Fraction, groups: int = 1) -> SmoothLaplace:
    """Plan noise for a smooth bound: scale ``2 S/epsilon`` and the largest certified beta.

    Parameters
    ----------
    epsilon, delta : Fraction
        The budget; delta > 0.
    groups : int, >= 1
        Length of the released vector; a public number.
    """
    check_budget(epsilon, delta)
    need_delta(delta, "the laplace mechanism on a join")
    factor = 2 / epsilon
    low, high = 0.0, float(epsilon) / 2
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if certified(middle, factor, epsilon, delta, groups):
            low = middle
        else:
            high = middle
    if low == 0.0:
        raise InvalidParameter(
            "dp.epsilon is too small for the laplace mechanism on so many groups",
            hint="Use dp.mechanism = 'calibrated'.",
        )
    return SmoothLaplace(Guarantee(epsilon, delta), low, factor, groups)


def certified(
    beta: float, factor: Fraction, epsilon: Fraction, delta: Fraction, groups: int
) -> bool:
    """Certify that scale ``factor * S`` with a ``beta``-smooth ``S`` is (epsilon, delta)-DP.

    Two conditions, for the two signs of the change of scale: the privacy loss is at most
    ``groups * beta + 1/factor``, or at most ``theta * |X|_1/b + 1/factor`` with
    ``theta = exp(beta) - 1`` and the hockey-stick divergence is at most ``overspend``.
    """
    smooth = beta + SLACK
    room = float(epsilon - 1 / factor) * (1 - 1e-12)
    if room <= 0 or groups * smooth > room:
        return False
    return overspend(smooth, room, float(factor), groups) * (1 + 1e-9) <= float(delta)


def overspend(beta: float, room: float, factor: float, groups: int) -> float:
    """Bound the hockey-stick divergence: ``E (1 - exp(-theta (G + d/(2b) - t)))_+``.

    ``G`` is Gamma(d): the sum of d discrete Laplace magnitudes over ``b`` is
    stochastically at most ``G + d/(2b)``, and ``b >= factor`` because ``S >= 1``.
    """
    start = room / math.expm1(beta) - groups / (2 * factor)
    if start <= 0:
        return 1.0
    log_start = math.log(start)
    terms = [
        k * log_start - math.lgamma(k + 1) - start + math.log(-math.expm1(-beta * (groups - k)))
        for k in range(groups)
    ]
    top = max(terms)
    return math.exp(min(0.0, top + math.log(math.fsum(math.exp(x - top) for x in terms))))
