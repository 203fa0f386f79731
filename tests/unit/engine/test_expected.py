"""Expected errors against the laws themselves, summed term by term."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.core.mechanisms import calibrated, cauchy, laplace, linear, threshold, truncation
from dpsql.engine.expected import expected, laplace_mean, quartic
from dpsql.engine.methods.base import Method
from dpsql.engine.methods.bounds import CountedBound
from dpsql.engine.methods.multi_unit import MultiUnitMethod
from dpsql.engine.methods.rows import RowMethod
from dpsql.engine.methods.units import UnitMethod
from dpsql.model import JoinQuery, Weight
from tests.expressions import parsed

QUERY = JoinQuery((), ())
EPSILON, DELTA, LEVEL = Fraction(1, 2), Fraction(1, 10**8), Fraction(95, 100)


def quoted(mechanism: Any, query: JoinQuery = QUERY, *, constant: bool = False) -> Method:
    limits = truncation.Limits(1000)
    if isinstance(mechanism, truncation.Quantile | truncation.RaceToTheTop):
        return UnitMethod(query, mechanism, limits)
    if isinstance(mechanism, linear.LinearRace | linear.LinearQuantile):
        return MultiUnitMethod(query, mechanism, limits)
    return RowMethod(query, mechanism, CountedBound("residual", True, constant, frozenset()))


def cut_off(mechanism: str, largest: int) -> Any:
    return truncation.plan(mechanism, EPSILON, None, truncation.Limits(largest), single=True)


def test_the_error_of_a_sum_is_in_its_own_unit() -> None:
    weight = Weight(parsed("r0.x"), frozenset({0}), digits=2, low=-300, high=700, integer=False)
    query = replace(QUERY, weights=(weight,))
    plan = laplace.plan_global(EPSILON)
    found = expected(quoted(plan, query, constant=True), LEVEL)
    assert found.scale == 2 * Fraction(700, 100)
    assert found.mean == pytest.approx(14, rel=1e-3)
    assert found.within == pytest.approx(14 * 3, rel=0.01)


@pytest.mark.parametrize(
    ("loose", "limits", "says"),
    [
        (False, truncation.Limits(70_000, least=11), "between 0.11 and 700, the most that"),
        (True, truncation.Limits(10**24, least=100), "from 1.28 on, since nobody"),
    ],
)
@pytest.mark.parametrize("several", [False, True])
def test_what_the_bound_of_a_sum_is_drawn_from_is_in_its_own_unit(
    loose: bool, limits: truncation.Limits, says: str, several: bool
) -> None:
    weight = Weight(parsed("r0.x"), frozenset({0}), 2, -300, 700, integer=False, loose=loose)
    plan: Any = truncation.plan("auto", EPSILON, None, limits, single=True)
    if several:
        plan = linear.plan("auto", EPSILON, limits, (1, -1))
    found = expected(quoted(plan, replace(QUERY, weights=(weight,))), LEVEL)
    assert f"which is drawn, {says}" in found.note
    assert "dp.max_contribution" not in found.note


@pytest.mark.parametrize("scale", [Fraction(1, 900), Fraction(1, 10), Fraction(1), Fraction(200)])
def test_the_mean_of_discrete_laplace_noise(scale: Fraction) -> None:
    rate = float(1 / scale)
    masses = [math.exp(-x * rate) for x in range(math.ceil(60 * float(scale)) + 5)]
    total = 2 * math.fsum(masses) - 1
    mean = 2 * math.fsum(x * mass for x, mass in enumerate(masses)) / total
    assert laplace_mean(scale) == pytest.approx(mean, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5), Fraction(300)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999999])
def test_mean_and_quantile_of_cauchy_noise(scale: Fraction, level: float) -> None:
    b = float(scale)
    masses = [1 / (1 + (x / b) ** 4) for x in range(int(3000 * b) + 3000)]
    total = 2 * math.fsum(masses) - 1
    mean, within = quartic(scale, level)
    exact = 2 * math.fsum(x * mass for x, mass in enumerate(masses)) / total
    assert mean == pytest.approx(exact, rel=1e-3)
    held = (2 * math.fsum(masses[: within + 1]) - 1) / total
    assert held >= level - 1e-7
    assert (2 * math.fsum(masses[: max(within, 1)]) - 1) / total < level + 1e-6 or within == 0


def test_large_cauchy_scales_are_those_of_the_continuous_law() -> None:
    mean, within = quartic(Fraction(10**6), 0.95)
    assert mean == pytest.approx(10**6 / math.sqrt(2), rel=1e-3)
    assert within == pytest.approx(1000 * quartic(Fraction(1000), 0.95)[1], rel=1e-9)


def test_a_public_scale_is_told_as_it_is() -> None:
    found = expected(quoted(laplace.plan_global(EPSILON), constant=True), LEVEL)
    assert (found.known, found.scale, found.note) == (True, 2, "")
    assert found.within == 6  # 2 exp(-7/2)/(1 + exp(-1/2)) < 0.05 < that of 6
    fixed = cut_off("auto", 1)
    found = expected(quoted(fixed), LEVEL)
    assert (found.known, found.scale) == (True, 1 / Fraction(fixed.epsilon_value))


@pytest.mark.parametrize(
    ("plan", "scale", "says"),
    [
        (laplace.plan_global(EPSILON), Fraction(2), "this or more: times"),
        (laplace.plan_smooth(EPSILON, DELTA), Fraction(4), "this or more: times"),
        (cut_off("auto", 1000), None, "2.67 times the bound"),
        (cut_off("auto", 1000), None, "from 1 to 1000"),
        (cut_off("r2t", 1000), None, "too low"),
        (linear.plan("r2t", EPSILON, truncation.Limits(1000)), None, "too low"),
        (linear.plan("r2t", EPSILON, truncation.Limits(1000), (1, -1)), None, "0.9 off by"),
    ],
)
def test_a_scale_that_follows_rows_is_told_at_least(
    plan: object, scale: Fraction | None, says: str
) -> None:
    found = expected(quoted(plan), LEVEL)
    assert not found.known
    assert found.scale == scale
    assert (found.mean is None) == (scale is None)
    assert says.replace("from 1 to", "between 1 and") in found.note


def test_what_follows_the_sensitivity_is_never_below_that_of_one() -> None:
    """The least scale is reached where the join's sensitivity is 1, with the drawn part at its middle."""
    plan = calibrated.plan(EPSILON, DELTA, 1)
    found = expected(quoted(plan), LEVEL)
    assert found.scale is not None
    release = plan.release([0], Fraction(1), _Silent())
    assert release.scale == found.scale
    hidden = threshold.plan(EPSILON, DELTA, 1, constant=False)
    found = expected(quoted(hidden), LEVEL)
    assert hidden.release([5], Fraction(1), _Silent()).scale == found.scale
    assert "of the groups that are shown" in found.note
    free = expected(quoted(cauchy.plan(EPSILON)), LEVEL)
    assert free.mean is not None
    assert free.mean > 0


def test_an_unknown_mechanism_says_nothing() -> None:
    class Other:
        name = "other"
        law = None

    found = expected(quoted(Other()), LEVEL)
    assert (found.known, found.mean, found.within) == (False, None, None)


class _Silent:
    """No noise at all: the middle of every law."""

    def key(self) -> bytes:
        raise AssertionError

    def discrete_laplace(self, scale: Fraction) -> int:
        return 0

    def geometric(self, scale: Fraction) -> int:
        return 0

    def discrete_cauchy(self, scale: Fraction) -> int:
        return 0

    def gaussians(self, variance, count, tick=None):
        yield np.zeros(count, dtype=np.int64)

    laplaces = gaussians
