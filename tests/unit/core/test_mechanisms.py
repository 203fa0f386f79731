"""Certificates and constants of the mechanisms, by exact laws (no sampling)."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dpsql.core.mechanisms import calibrated, cauchy, laplace, select, threshold
from dpsql.core.mechanisms.interval import interval
from dpsql.errors import InvalidParameter


def laplace_law(scale: float, reach: int) -> dict[int, float]:
    norm = math.tanh(1 / (2 * scale))
    return {x: norm * math.exp(-abs(x) / scale) for x in range(-reach, reach + 1)}


def hockey_stick(epsilon: float, b: float, other: float, shift: int) -> float:
    """``sum (p(x) - e^eps p'(x + shift))_+`` for discrete Laplace laws."""
    total, reach = 0.0, int(60 * b) + 50
    for x, p in laplace_law(b, reach).items():
        q = math.tanh(1 / (2 * other)) * math.exp(-abs(x + shift) / other)
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1, 0.1), (0.5, 1e-3), (3, 1e-6), (12.8, 1e-4), (20, 1e-6)]
)
@pytest.mark.parametrize("size", [1.0, 1.7, 12.0])
def test_smooth_laplace_keeps_its_guarantee_on_worst_case_neighbours(epsilon, delta, size) -> None:
    plan = laplace.plan_smooth(Fraction(epsilon), Fraction(delta))
    factor = float(plan.factor)
    for ratio in (math.exp(plan.beta), math.exp(plan.beta / 2), 1.0):
        for here, there in ((size * ratio, size), (size, size * ratio)):
            for shift in {0, int(min(here, there))}:
                spent = hockey_stick(epsilon, factor * here, factor * there, shift)
                assert spent <= delta * (1 + 1e-9)


def test_the_published_laplace_rule_overspends_above_epsilon_one() -> None:
    """``beta = eps/(2 ln(2/delta))`` with scale ``2 S/eps``, at a large smooth bound."""
    size = 500
    for epsilon, delta, least in ((12.8, 1e-4, 1.015), (20.0, 1e-6, 5.0)):
        beta = epsilon / (2 * math.log(2 / delta))
        b, other = 2 * size * math.exp(beta) / epsilon, 2 * size / epsilon
        spent = hockey_stick(epsilon, b, other, size)
        assert spent > least * delta
        assert not laplace.certified(
            beta, Fraction(2) / Fraction(epsilon), Fraction(epsilon), Fraction(delta), 1
        )


@pytest.mark.parametrize("groups", [1, 2, 5, 40])
def test_vector_bound_is_the_gamma_hockey_stick(groups) -> None:
    """Against numeric integration of the Gamma law."""
    beta, room, factor = 0.05, 0.05 * (groups + 8), 1e9
    theta, start = math.expm1(beta), room / math.expm1(beta)
    steps, width = 200_000, 100.0 / 200_000
    total = 0.0
    for i in range(steps):
        x = start + (i + 0.5) * width
        log_density = (groups - 1) * math.log(x) - x - math.lgamma(groups)
        total += math.exp(log_density) * -math.expm1(-theta * (x - start)) * width
    assert laplace.overspend(beta, room, factor, groups) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1, 5, 30])
@pytest.mark.parametrize("size", [1.0, 1.3, 9.0])
def test_cauchy_loss_is_at_most_epsilon_everywhere(epsilon, size) -> None:
    plan = cauchy.plan(Fraction(epsilon))
    worst = 0.0
    for here, there in ((size, size * math.exp(plan.beta)), (size * math.exp(plan.beta), size)):
        b, other = here / float(plan.slope), there / float(plan.slope)
        reach = int(4000 * max(b, 1))
        norms = [sum(1 / (1 + (x / s) ** 4) for x in range(1, reach)) * 2 + 1 for s in (b, other)]
        for shift in {0, int(min(here, there)), -int(min(here, there))}:
            for x in range(-int(50 * b) - 5, int(50 * b) + 6):
                p = 1 / (1 + (x / b) ** 4) / norms[0]
                q = 1 / (1 + ((x + shift) / other) ** 4) / norms[1]
                worst = max(worst, math.log(p / q))
    assert worst <= epsilon * (1 + 1e-9)
    assert worst >= epsilon * 0.2


def test_cauchy_constants() -> None:
    assert float(cauchy.SHIFT) >= 3**0.75
    assert cauchy.kappa(0.1) == 4
    assert cauchy.kappa(50.0) == pytest.approx(3)
    for b in (0.7, 1.0, 2.0):

        def log_norm(s):
            return math.log(sum(1 / (1 + (x / s) ** 4) for x in range(-4000, 4001)))

        slope = (log_norm(b * 1.0001) - log_norm(b)) / math.log(1.0001)
        assert abs(slope - 1) <= cauchy.kappa(b) - 3 + 1e-6


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (0.1, 1e-2), (8, 1e-9)])
def test_calibrated_exponent_moves_by_one_and_covers_the_bound(epsilon, delta, degree) -> None:
    plan = calibrated.plan(Fraction(epsilon), Fraction(delta), degree)
    e = float(plan.epsilon_scale)
    tail = math.exp(-(plan.shift + 1) * e) / (1 + math.exp(-e))
    assert tail <= delta
    assert plan.shift == 0 or tail * math.exp(e) > delta * (1 - 1e-9)
    assert plan.epsilon_scale + plan.epsilon_value == plan.guarantee.epsilon
    for i in range(400):
        size = math.exp(0.05 * i)
        j = plan.exponent(size)
        assert calibrated.power(plan.gamma, j) >= max(size, 1)
        near = size * math.exp(plan.beta) * (1 + 1e-9)
        assert 0 <= plan.exponent(near) - j <= 1


def test_power_is_exact_beyond_floats() -> None:
    assert calibrated.power(0.5, -3) == 1
    assert calibrated.power(0.25, 8) == 8
    assert len(str(calibrated.power(0.5, 4000))) == 869


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 0.05), (4.0, 1e-3)])
def test_threshold_hides_new_groups(bound, epsilon, delta) -> None:
    """Worst splits of ``s`` new results over groups, by the exact tail."""
    b = bound / epsilon
    least = threshold.cutoff(bound, Fraction(epsilon), Fraction(delta))

    def shown(count: int) -> float:
        return math.exp(-(least - count) / b) / (1 + math.exp(-1 / b))

    for part in range(1, bound + 1):
        groups, rest = divmod(bound, part)
        chance = groups * shown(part) + (shown(rest) if rest else 0)
        assert chance <= delta * (1 + 1e-9)


class Silent:
    """Adds nothing."""

    def discrete_laplace(self, scale: Fraction) -> int:
        return 0


def test_a_group_below_the_least_count_asked_for_is_not_shown() -> None:
    counts = [10, 999, 1000, 5000]
    for least, shown in ((0, [False, *[True] * 3]), (1000, [False, False, True, True])):
        plan = select.choose(
            "auto", Fraction(1), Fraction(1, 10**8), 0, False, True, 1, least=least
        )
        found = plan.release(counts, 1, Silent())
        assert (found.values, found.shown) == (counts, shown)


def test_published_threshold_is_too_low_for_the_discrete_law_at_one() -> None:
    """``s + (s/eps) ln(s/(2 delta))`` with ``s = 1``: up to twice delta."""
    epsilon, delta = math.log(2), 2.0**-11
    level = 1 + math.log(1 / (2 * delta)) / epsilon  # 11, an integer
    chance = math.exp(-(round(level) - 1) * epsilon) / (1 + math.exp(-epsilon))
    assert chance > 1.3 * delta
    assert threshold.cutoff(1, Fraction(epsilon), Fraction(delta)) == 12


def test_interval_has_the_stated_confidence_and_no_more() -> None:
    for scale in (0.3, 1.0, 17.5):
        low, high = interval(100, Fraction(scale), 0.95)
        half = high - 100
        assert low == 100 - half
        law = laplace_law(scale, 4000)

        def inside(h, law=law):
            return sum(law[x] for x in range(-h, h + 1))

        assert inside(half) >= 0.95
        assert half == 0 or inside(half - 1) < 0.95


def test_choice_follows_public_facts() -> None:
    one, small = Fraction(1), Fraction(1, 10**6)
    assert isinstance(
        select.choose("auto", one, Fraction(0), 9, True, True, 1), laplace.GlobalLaplace
    )
    assert isinstance(select.choose("auto", one, small, 1, True, False, 3), laplace.SmoothLaplace)
    assert isinstance(select.choose("auto", one, Fraction(0), 1, True, False, 3), cauchy.Cauchy)
    assert isinstance(select.choose("auto", one, small, 5, True, False, 3), calibrated.Calibrated)
    assert isinstance(
        select.choose("auto", one, small, 1, True, False, 3, True), calibrated.Calibrated
    )
    assert isinstance(select.choose("auto", one, small, 0, False, False, 3), threshold.Threshold)


@pytest.mark.parametrize(
    "arguments",
    [
        ("gauss", 1, 0, 1, True, False, 2),
        ("laplace", 1, 0, 1, True, False, 2),
        ("cauchy", 1, 0, 2, True, False, 2),
        ("calibrated", 1, 0, 2, True, False, 2),
        ("auto", 1, 0, 2, False, True, 1),
        ("laplace", 1, 1e-6, 2, False, False, 2),
        ("auto", 0, 0, 1, True, True, 1),
        ("auto", -1, 0, 1, True, True, 1),
        ("auto", 1, 0.6, 1, True, True, 1),
        ("laplace", 1, 1e-6, 1, True, False, 2, True),
    ],
)
def test_impossible_choices_are_refused(arguments) -> None:
    mechanism, epsilon, delta, *rest = arguments
    with pytest.raises(InvalidParameter):
        select.choose(mechanism, Fraction(epsilon), Fraction(delta), *rest)
