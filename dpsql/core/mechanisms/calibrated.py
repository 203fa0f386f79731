"""Publish a noisy scale, then use it (PRIVACY.md section 4, item 3; docs/proofs/calibrated.md)."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core.composition import Zcdp, rho_of
from dpsql.core.mechanisms.base import (
    SLACK,
    NoiseLaw,
    Release,
    at_least_one,
    check_budget,
    need_delta,
)
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Guarantee
from dpsql.ports import NoiseSource


@dataclass(frozen=True, slots=True)
class Calibrated:
    """``J = ceil(ln S/gamma) + t + DLap(1/eps1)``, ``s = ceil(exp(gamma J))``, noise ``s/eps2``.

    Notes
    -----
    Guarantee: (eps1 + eps2, delta1) for any number of groups.  ``s`` is public.
    """

    guarantee: Guarantee
    epsilon_scale: Fraction
    epsilon_value: Fraction
    delta_scale: Fraction
    gamma: float
    shift: int
    name: str = "calibrated"
    visibility: None = None

    @property
    def beta(self) -> float:
        """Slightly below ``gamma``: the difference pays for the rounding of ``S`` and ``ln``."""
        return self.gamma - SLACK

    @property
    def law(self) -> NoiseLaw:
        """The scale in the middle of what is drawn for a sensitivity of 1."""
        return NoiseLaw(self.middle / self.epsilon_value, drawn=True)

    @property
    def middle(self) -> Fraction:
        """The bound that is drawn in the middle if the sensitivity is 1."""
        return Fraction(power(self.gamma, self.exponent(1.0) + self.shift))

    @property
    def zcdp(self) -> Zcdp:
        """Its zCDP price: the scale's and the values' parts one after the other."""
        return self.scale_zcdp + Zcdp(rho_of(self.epsilon_value), Fraction(0))

    @property
    def scale_zcdp(self) -> Zcdp:
        """The zCDP price of drawing the scale alone."""
        return Zcdp(rho_of(self.epsilon_scale), self.delta_scale)

    def release(
        self, counts: Sequence[int], sensitivity: Fraction | float, noise: NoiseSource
    ) -> Release:
        """Draw the scale, then perturb every count with it."""
        scale = Fraction(self.draw_bound(sensitivity, noise)) / self.epsilon_value
        return Release([c + noise.discrete_laplace(scale) for c in counts], scale)

    def draw_bound(self, sensitivity: Fraction | float, noise: NoiseSource) -> int:
        """Draw the public ``s``: at least ``S`` except with probability ``delta_scale``."""
        j = self.exponent(sensitivity) + self.shift
        return power(self.gamma, j + noise.discrete_laplace(1 / self.epsilon_scale))

    def exponent(self, sensitivity: Fraction | float) -> int:
        """``ceil(ln max(S, 1)/gamma)``; changes by at most 1 between neighbours."""
        bound = at_least_one(sensitivity)
        log = math.log(bound.numerator) - math.log(bound.denominator)
        # rounded up by far more than the error of the logarithms (1e-15 of at most 1e4)
        # and far less than SLACK
        return math.ceil((max(log, 0.0) + SLACK / 16) / self.gamma)


def plan(epsilon: Fraction, delta: Fraction, degree: int) -> Calibrated:
    """Plan from public facts only.

    Parameters
    ----------
    epsilon, delta : Fraction
        The budget; delta > 0.
    degree : int, >= 0
        Degree of the sensitivity polynomial: how steeply ``S`` falls with ``beta``.
    """
    check_budget(epsilon, delta)
    need_delta(delta, "the calibrated mechanism")
    half = Fraction(max(degree, 1), 2)
    epsilon_scale = epsilon * half / (1 + half)
    epsilon_value = epsilon - epsilon_scale
    shift = margin(epsilon_scale, delta)
    gamma = float(half) / (shift + 1)
    if gamma <= SLACK:
        raise InvalidParameter(
            "dp.epsilon and dp.delta are too small for the calibrated mechanism",
            hint="Raise dp.delta, for example to 1e-9, or dp.epsilon.",
        )
    return Calibrated(Guarantee(epsilon, delta), epsilon_scale, epsilon_value, delta, gamma, shift)


def margin(epsilon: Fraction, delta: Fraction) -> int:
    """Find the least ``t`` with ``P(DLap(1/epsilon) < -t) <= delta``, rounded outward.

    The tail is ``exp(-(t + 1) epsilon)/(1 + exp(-epsilon))``.
    """
    e = float(epsilon)
    need = -math.log(float(delta)) - math.log1p(math.exp(-e))
    return max(0, math.ceil(need / e * (1 + 1e-12) + 1e-12) - 1)


def power(gamma: float, j: int) -> int:
    """``max(1, ceil(exp(gamma j)))``, exactly enough to be a function of ``j`` alone."""
    if j <= 0:
        return 1
    exponent = decimal.Decimal(gamma) * j
    digits = int(gamma * j / 2.3) + 40
    if digits > 100_000:
        raise InternalError("the drawn scale is out of range")
    with decimal.localcontext(decimal.Context(prec=digits, Emax=decimal.MAX_EMAX)) as context:
        value = context.exp(exponent)
        return int(value.to_integral_value(rounding=decimal.ROUND_CEILING))
