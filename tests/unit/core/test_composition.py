"""zCDP prices against the laws that they are claimed for, computed exactly."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.core.composition import Zcdp, delta_of_distance, rho_of, zcdp, zcdp_with_distance
from dpsql.core.mechanisms import calibrated, cauchy, laplace, threshold
from dpsql.model import Guarantee

EPSILONS = st.fractions(min_value=Fraction(1, 10**6), max_value=100, max_denominator=10**6)


def true_rho(epsilon: Fraction) -> Fraction:
    """``epsilon tanh(epsilon/2)`` by the series of the exponential, to about 100 digits."""
    with decimal.localcontext(decimal.Context(prec=200)):
        e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        term = exponential = Decimal(1)
        for n in range(1, 700):
            term = term * e / n
            exponential += term
        return Fraction(e * (exponential - 1) / (exponential + 1))


@given(EPSILONS)
def test_rho_is_never_below_the_true_one_and_hardly_above(epsilon: Fraction) -> None:
    rho = rho_of(epsilon)
    true = true_rho(epsilon)
    assert true - Fraction(1, 10**90) <= rho <= true * (1 + Fraction(1, 10**20))
    assert rho <= min(epsilon * epsilon / 2, epsilon)


def test_nothing_spent_costs_nothing() -> None:
    assert rho_of(Fraction(0)) == 0


@given(EPSILONS.filter(lambda e: e < 30), st.floats(min_value=1.0001, max_value=500))
def test_randomised_response_keeps_its_rho_at_every_order(epsilon: Fraction, order: float) -> None:
    context = decimal.Context(prec=80, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
    with decimal.localcontext(context):
        e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        a = Decimal(order)
        # E_Q (P/Q)^a for P = (p, 1 - p), Q = (1 - p, p), p = e^eps/(1 + e^eps)
        p = e.exp() / (1 + e.exp())
        moment = p * (e * (a - 1)).exp() + (1 - p) * (-e * (a - 1)).exp()
        rho = Decimal(rho_of(epsilon).numerator) / Decimal(rho_of(epsilon).denominator)
        assert moment.ln() <= a * (a - 1) * rho * (1 + Decimal("1e-60")) + Decimal("1e-60")


def test_randomised_response_needs_this_rho() -> None:
    """At orders near 1 a rho smaller by a thousandth fails: the price is tight."""
    epsilon, a = 1.0, 1 + 1e-4
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    moment = p * math.exp(epsilon * (a - 1)) + (1 - p) * math.exp(-epsilon * (a - 1))
    assert math.log(moment) > a * (a - 1) * float(rho_of(Fraction(1))) * 0.999


def log_moment(p: list[float], q: list[float], order: float) -> float:
    terms = [order * x + (1 - order) * y for x, y in zip(p, q, strict=True)]
    top = max(terms)
    return top + math.log(math.fsum(math.exp(t - top) for t in terms))


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1, 3])
@pytest.mark.parametrize("shift", [1, 3, 10])
def test_discrete_laplace_keeps_the_price_at_every_order(epsilon: float, shift: int) -> None:
    scale, reach = shift / epsilon, int(60 * shift / epsilon) + 50
    normal = math.log(math.tanh(1 / (2 * scale)))
    p = [normal - abs(x) / scale for x in range(-reach, reach)]
    q = [normal - abs(x - shift) / scale for x in range(-reach, reach)]
    rho = float(rho_of(Fraction(epsilon)))
    for order in (1.001, 1.1, 2, 5, 20, 100):
        assert log_moment(p, q, order) <= order * (order - 1) * rho + 1e-9


@pytest.mark.parametrize("slope", [0.5, 1.0])
def test_cauchy_keeps_the_price_of_its_epsilon(slope: float) -> None:
    """Worst neighbours of the pure mechanism: shift by S and scale by e^beta at once."""
    plan = cauchy.plan(Fraction(slope))
    b = float(1 / plan.slope)
    wide = b * math.exp(plan.beta)
    grid = range(-4000, 4000)
    p = [-math.log1p((x / b) ** 4) for x in grid]
    q = [-math.log1p(((x - 1) / wide) ** 4) for x in grid]
    mass_p, mass_q = log_moment(p, p, 1), log_moment(q, q, 1)
    p = [x - mass_p for x in p]
    q = [x - mass_q for x in q]
    cost = zcdp(plan, plan.guarantee)
    assert cost == Zcdp(rho_of(Fraction(slope)), Fraction(0))
    for order in (1.01, 2, 10, 50):
        assert log_moment(p, q, order) <= order * (order - 1) * float(cost.rho) + 1e-9
        assert log_moment(q, p, order) <= order * (order - 1) * float(cost.rho) + 1e-9


def test_each_part_of_calibrated_pays_for_itself() -> None:
    plan = calibrated.plan(Fraction(1), Fraction(1, 10**6), 2)
    cost = zcdp(plan, plan.guarantee)
    assert cost.rho == rho_of(plan.epsilon_scale) + rho_of(plan.epsilon_value)
    assert cost.delta == plan.guarantee.delta
    assert cost.rho < rho_of(plan.guarantee.epsilon) * Fraction(6, 10)


@pytest.mark.parametrize("constant", [True, False])
def test_threshold_pays_both_deltas(constant: bool) -> None:
    plan = threshold.plan(Fraction(1), Fraction(1, 10**6), 2, constant)
    cost = zcdp(plan, plan.guarantee)
    assert cost.delta == plan.guarantee.delta
    assert cost.rho <= rho_of(plan.guarantee.epsilon)
    if constant:
        assert cost.rho == rho_of(Fraction(1))


def test_a_mechanism_that_knows_no_rho_pays_for_its_epsilon() -> None:
    plan = laplace.plan_smooth(Fraction(1), Fraction(1, 10**6))
    assert zcdp(plan, plan.guarantee) == Zcdp(rho_of(Fraction(1)), Fraction(1, 10**6))
    own = type("Plan", (), {"zcdp": Zcdp(Fraction(1, 100), Fraction(0))})()
    assert zcdp(own, Guarantee(Fraction(1), Fraction(0))).rho == Fraction(1, 100)


def cut_gaussian(variance: float, reach: int, shift: int, window: int) -> tuple[list, list, float]:
    """An exact discrete Gaussian, the same cut at ``reach``, both shifted, and their distance."""
    weights = [math.exp(-((x - shift) ** 2) / (2 * variance)) for x in range(-window, window + 1)]
    total = math.fsum(weights)
    exact = [w / total for w in weights]
    inside = [abs(x - shift) <= reach for x in range(-window, window + 1)]
    kept = math.fsum(p for p, b in zip(exact, inside, strict=True) if b)
    cut = [p / kept if b else 0.0 for p, b in zip(exact, inside, strict=True)]
    return exact, cut, 1 - kept


@pytest.mark.parametrize(
    ("variance", "reach", "shift"), [(4, 9, 1), (4, 9, 3), (9, 20, 2), (1, 6, 2)]
)
def test_noise_that_is_cut_keeps_the_price_with_its_distance(variance, reach, shift) -> None:
    """Trim as the proof does; the rest keeps every moment, and no more than delta is lost."""
    window = 3 * reach + 10
    p, p_cut, n = cut_gaussian(variance, reach, shift, window)
    q, q_cut, _ = cut_gaussian(variance, reach, 0, window)
    rho = Fraction(shift**2, 2 * variance)
    price = zcdp_with_distance(Zcdp(rho, Fraction(0)), Fraction(n))
    assert price.rho == rho
    trimmed = [
        min(a * min(1, d / b), c) if b > 0 else 0.0
        for a, b, c, d in zip(p, q, p_cut, q_cut, strict=True)
    ]
    lost = 1 - math.fsum(trimmed)
    assert lost <= price.delta
    # and the distance alone would not do: a neighbour has no mass where this one still has some
    assert math.fsum(a for a, d in zip(p_cut, q_cut, strict=True) if d == 0) > n
    for order in (1.001, 1.1, 2, 5, 20):
        pairs = [(math.log(t), math.log(d)) for t, d in zip(trimmed, q_cut, strict=True) if t > 0]
        moment = log_moment(*zip(*pairs, strict=True), order)
        assert moment <= order * (order - 1) * float(rho) + 1e-9
    # what follows from the price for events, at any epsilon
    for epsilon in (0.5, 1, 2, 4, 8):
        reached = math.fsum(
            max(a - math.exp(epsilon) * d, 0) for a, d in zip(p_cut, q_cut, strict=True)
        )
        orders = [1 + k / 50 for k in range(1, 600)]
        converted = min(
            math.exp((a - 1) * (a * float(rho) - epsilon)) * (1 - 1 / a) ** a / (a - 1)
            for a in orders
        )
        assert reached <= converted + float(price.delta)


RHOS = st.fractions(min_value=Fraction(1, 10**6), max_value=20, max_denominator=10**6)


@given(RHOS, st.integers(30, 126), st.floats(min_value=1e-3, max_value=100))
def test_no_other_trim_is_much_cheaper_and_the_closed_form_is_kept(rho, bits, other) -> None:
    n = Fraction(3, 2**bits)
    price = zcdp_with_distance(Zcdp(rho, Fraction(1, 10**9)), n)
    added = float(price.delta - Fraction(1, 10**9))
    logarithm, r = -math.log(n), float(rho)
    if math.sqrt(logarithm) - math.sqrt(r) < 0.5:
        assert 0 < added <= 1
        return
    # 40 decimals, and at most the closed form with the distance itself
    closed = 2 * math.exp(-((math.sqrt(logarithm) - math.sqrt(r)) ** 2)) + float(n)
    assert min(closed, 1 - 1e-9) * (1 - 1e-6) <= added <= closed * (1 + 1e-4) + 2e-40
    if other > r:
        cost = float(n) * (1 + math.exp(other)) + math.exp(-((other - r) ** 2) / (4 * r))
        assert added <= 2 * cost + 2e-40


def test_exact_noise_costs_nothing_more_and_hopeless_noise_everything() -> None:
    exact = Zcdp(Fraction(1, 3), Fraction(1, 10**7))
    assert zcdp_with_distance(exact, Fraction(0)) == exact
    assert zcdp_with_distance(exact, Fraction(1)).delta == 1
    assert zcdp_with_distance(Zcdp(Fraction(90), Fraction(0)), Fraction(1, 2**126)).delta == 1
    free = zcdp_with_distance(Zcdp(Fraction(0), Fraction(0)), Fraction(1, 10**20))
    assert free == Zcdp(Fraction(0), Fraction(2, 10**20))


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(29, 10)])
def test_what_a_distance_adds_to_delta(epsilon) -> None:
    n = Fraction(1, 10**30)
    least = (1 + math.exp(epsilon)) * 1e-30
    assert least * (1 - 1e-12) <= delta_of_distance(epsilon, n) <= 3.1 * least
    assert delta_of_distance(epsilon, Fraction(2)) == 1
