"""Groups that are not public are shown iff their noisy count is large (threshold.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core.composition import Zcdp, rho_of
from dpsql.core.mechanisms import calibrated
from dpsql.core.mechanisms.base import (
    NoiseLaw,
    Release,
    Visibility,
    at_least_one,
    check_budget,
    need_delta,
)
from dpsql.core.mechanisms.calibrated import Calibrated
from dpsql.model import Guarantee
from dpsql.ports import NoiseSource


@dataclass(frozen=True, slots=True)
class Threshold:
    """Present groups get ``DLap(s/eps2)``; those below ``cutoff(s)`` are not reported.

    ``inner`` draws ``s``; ``None`` means that the sensitivity is a public constant.
    ``release`` takes the counts of the groups that are present (count >= 1) only.

    Notes
    -----
    Guarantee: (eps1 + eps2, delta1 + delta_threshold).  ``s`` is public.  Groups whose noisy
    count is below ``least``, a public number, are not reported either: a function of released
    values.
    """

    guarantee: Guarantee
    epsilon_value: Fraction
    delta_threshold: Fraction
    inner: Calibrated | None
    least: int = 0
    name: str = "threshold"

    @property
    def beta(self) -> float:
        """The inner plan's beta; 0 for a public sensitivity."""
        return 0.0 if self.inner is None else self.inner.beta

    @property
    def law(self) -> NoiseLaw:
        """The scale for a sensitivity of 1, in the middle of what is drawn."""
        if self.inner is None:
            return NoiseLaw(1 / self.epsilon_value, known=None, hides=True)
        return NoiseLaw(self.inner.middle / self.epsilon_value, drawn=True, hides=True)

    @property
    def visibility(self) -> Visibility:
        """The threshold for a sensitivity of 1."""
        least = cutoff(1, self.epsilon_value, self.delta_threshold)
        return Visibility(max(least, self.least), of_units=False, grows=self.inner is not None)

    @property
    def zcdp(self) -> Zcdp:
        """Its zCDP price: the scale's, if drawn, and the thresholded values' (epsilon, delta)."""
        values = Zcdp(rho_of(self.epsilon_value), self.delta_threshold)
        return values if self.inner is None else values + self.inner.scale_zcdp

    def release(
        self, counts: Sequence[int], sensitivity: Fraction | float, noise: NoiseSource
    ) -> Release:
        """Perturb the present groups and tell which may be shown."""
        if self.inner is None:
            bound = math.ceil(at_least_one(sensitivity))
        else:
            bound = self.inner.draw_bound(sensitivity, noise)
        scale = Fraction(bound) / self.epsilon_value
        least = max(cutoff(bound, self.epsilon_value, self.delta_threshold), self.least)
        values = [c + noise.discrete_laplace(scale) for c in counts]
        return Release(values, scale, [v >= least for v in values])


def plan(
    epsilon: Fraction, delta: Fraction, degree: int, constant: bool, least: int = 0
) -> Threshold:
    """Plan; delta is halved between the scale and the threshold.

    Parameters
    ----------
    epsilon, delta : Fraction
        The budget; delta > 0.
    degree : int
        As for ``calibrated.plan``.
    constant : bool
        Whether the sensitivity is a public constant; then all of it goes to the threshold.
    least : int
        Groups whose noisy count is below are not reported either.
    """
    check_budget(epsilon, delta)
    need_delta(delta, "grouping by values that are not public")
    if constant:
        return Threshold(Guarantee(epsilon, delta), epsilon, delta, None, least)
    inner = calibrated.plan(epsilon, delta / 2, degree)
    return Threshold(Guarantee(epsilon, delta), inner.epsilon_value, delta / 2, inner, least)


def cutoff(bound: int, epsilon: Fraction, delta: Fraction, each: int | None = None) -> int:
    """Least integer threshold that is proved for the discrete law.

    New groups have counts of at least 1 with sum at most ``s = bound``; the chance that
    one of them is shown is at most ``exp(-T/b) max(s exp(1/b), exp(s/b))/(1 + exp(-1/b))``
    with ``b = s/epsilon`` (for ``T > s``).  If no new group counts more than ``each = 1`` it is the
    first of the two (for ``T > 1``).
    """
    inverse = float(epsilon) / bound  # 1/b; both factors below grow with its error
    one = math.log(bound) + inverse
    all_in_one = float(epsilon) if each is None else 0.0
    need = max(one, all_in_one) - math.log(float(delta)) - math.log1p(math.exp(-inverse))
    # T >= need * b, rounded outward; and T > s, where the tail formula holds
    exact = Fraction(max(need, 0.0) * (1 + 1e-9) + 1e-12) * bound / epsilon
    return max(math.ceil(exact), (bound if each is None else each) + 1)
