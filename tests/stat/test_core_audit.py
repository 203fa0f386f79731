"""Audits by sampling: claims hold on worst-case neighbours, mutants break them.

Each comparison uses an event fixed in advance and Clopper-Pearson limits at confidence
``1 - 1e-11`` per side, so that a correct mechanism fails with probability below 2e-11: this file
with less than 1e-9.  Mutants are missed with probability below 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from dpsql.core.mechanisms import calibrated, cauchy, laplace, threshold
from dpsql.core.rng import SystemNoise

pytestmark = pytest.mark.stat
ALPHA = 1e-11
NOISE = SystemNoise()


def violates(
    here: Callable[[], bool], there: Callable[[], bool], epsilon: float, delta: float, runs: int
) -> bool:
    """Tell whether ``P(here) > e^eps P(there) + delta`` is established."""
    from scipy.stats import beta

    a, b = (sum(event() for _ in range(runs)) for event in (here, there))
    low = float(beta.ppf(ALPHA, a, runs - a + 1)) if a else 0.0
    high = float(beta.ppf(1 - ALPHA, b + 1, runs - b)) if b < runs else 1.0
    return low > math.exp(epsilon) * high + delta


def global_pair(plan):
    return (
        lambda: plan.release([1], 1, NOISE).values[0] >= 1,
        lambda: plan.release([0], 1, NOISE).values[0] >= 1,
    )


def test_global_laplace_and_a_mutant_with_half_the_noise() -> None:
    plan = laplace.plan_global(Fraction(1))
    assert not violates(*global_pair(plan), 1.0, 0.0, 20_000)
    mutant = laplace.plan_global(Fraction(2))
    assert violates(*global_pair(mutant), 1.0, 0.0, 20_000)


def smooth_pair(plan, size):
    """Scales differ by ``e**beta``; the event is the far tail of the wider law."""
    wide = size * math.exp(plan.beta)
    far = size * 6.0 / float(plan.guarantee.epsilon)
    return (
        lambda: abs(plan.release([0], wide, NOISE).values[0]) > far,
        lambda: abs(plan.release([0], size, NOISE).values[0]) > far,
    )


def test_smooth_laplace_and_a_mutant_with_a_wrong_beta() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    plan = laplace.plan_smooth(epsilon, delta)
    assert not violates(*smooth_pair(plan, 20.0), 1.0, 0.01, 20_000)
    assert violates(*smooth_pair(replace(plan, beta=1.5), 20.0), 1.0, 0.01, 20_000)


def shifted_pair(plan, size):
    return (
        lambda: plan.release([size], size, NOISE).values[0] >= size,
        lambda: plan.release([0], size, NOISE).values[0] >= size,
    )


def test_smooth_laplace_and_a_mutant_without_the_factor_two() -> None:
    plan = laplace.plan_smooth(Fraction(1), Fraction(1, 100))
    assert not violates(*shifted_pair(plan, 5), 1.0, 0.01, 20_000)
    mutant = replace(plan, factor=plan.factor / 4)
    assert violates(*shifted_pair(mutant, 5), 1.0, 0.01, 20_000)


def test_cauchy_and_a_mutant_with_too_little_noise() -> None:
    plan = cauchy.plan(Fraction(2))
    assert not violates(*shifted_pair(plan, 5), 2.0, 0.0, 20_000)
    mutant = replace(plan, slope=plan.slope * 3)
    assert violates(*shifted_pair(mutant, 5), 2.0, 0.0, 20_000)


def scale_pair(plan, size, near):
    level = calibrated.power(plan.gamma, plan.exponent(near) + plan.shift)
    scale = Fraction(level) / plan.epsilon_value
    return (
        lambda: plan.release([0], near, NOISE).scale >= scale,
        lambda: plan.release([0], size, NOISE).scale >= scale,
    )


def test_calibrated_scale_and_a_mutant_with_a_finer_grid() -> None:
    plan = calibrated.plan(Fraction(2), Fraction(1, 20), 2)
    size = 1000.0
    near = size * math.exp(plan.beta)
    epsilon = float(plan.epsilon_scale)
    assert not violates(*scale_pair(plan, size, near), epsilon, 0.05, 20_000)
    mutant = replace(plan, gamma=plan.gamma / 4)  # its exponent moves by 4
    assert violates(*scale_pair(mutant, size, near), epsilon, 0.05, 20_000)


def test_threshold_and_a_mutant_without_s() -> None:
    """One row creates 30 groups; the textbook threshold looks at one."""
    plan = threshold.plan(Fraction(1), Fraction(1, 20), 0, constant=True)

    def shown() -> bool:
        return any(plan.release([1] * 30, 30, NOISE).shown or [])

    def textbook() -> bool:
        values = plan.release([1] * 30, 30, NOISE).values
        return any(v >= 1 + 30 * math.log(1 / (2 * 0.05)) for v in values)

    assert not violates(shown, lambda: False, 1.0, 0.05, 1500)
    assert violates(textbook, lambda: False, 1.0, 0.05, 1500)
