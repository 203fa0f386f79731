"""Conditional ResidualPlanner: optimality conditions, the paper's closed form, a solver."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpsql.errors import InvalidParameter
from dpsql.workload.conditional_planner import conditional_plan, water_fill
from dpsql.workload.marginals import subsets
from dpsql.workload.residual_bases import subtraction
from dpsql.workload.residual_planner import coefficients, plan, privacy

BASES = subtraction((3, 5, 4))

positive = st.floats(1e-3, 1e3)
known = st.one_of(st.just(0.0), st.floats(1e-4, 1e4))
terms = st.lists(st.tuples(positive, positive, known), min_size=1, max_size=9)


def error(values, bought):
    return sum(v / (a + bought[k]) for k, (v, _, a) in values.items())


@given(terms, st.floats(1e-4, 1e4))
def test_the_level_satisfies_the_conditions_of_optimality(found, cost):
    """Convex problem: KKT conditions are sufficient, so this is a proof of each answer."""
    values = dict(enumerate(found))
    bought = water_fill(values, cost)
    assert min(bought.values()) >= 0
    assert sum(p * bought[k] for k, (_, p, _) in values.items()) == pytest.approx(cost, rel=1e-9)
    gains = {
        k: v / (p * (a + bought[k]) ** 2) for k, (v, p, a) in values.items() if a + bought[k] > 0
    }
    assert len(gains) == len(values)
    price = max(gains.values())
    for k, gain in gains.items():
        if bought[k] > 1e-6 * (values[k][2] + bought[k]):
            assert gain == pytest.approx(price, rel=1e-5)


def test_little_is_bought_beside_much_that_is_known():
    assert water_fill({0: (1.0, 1.0, 1e16)}, 1e-3) == pytest.approx({0: 1e-3})
    values = {0: (1.0, 1.0, 1e16), 1: (1e-9, 1.0, 0.0), 2: (3.0, 0.5, 1e16)}
    assert sum(p * water_fill(values, 1e-3)[k] for k, (_, p, _) in values.items()) == (
        pytest.approx(1e-3)
    )


def test_against_a_general_solver():
    rng = np.random.default_rng(5)
    for _ in range(20):
        v, p, a = rng.uniform(0.1, 3, (3, 6))
        values = {k: (v[k], p[k], a[k]) for k in range(6)}
        bought = water_fill(values, 1.0)
        solved = minimize(
            lambda x, v=v, a=a: (v / (a + x)).sum(),
            np.full(6, 1 / p.sum()),
            bounds=[(0, None)] * 6,
            constraints={"type": "eq", "fun": lambda x, p=p: p @ x - 1},
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        assert error(values, bought) <= solved.fun * (1 + 1e-9)
        assert error(values, bought) == pytest.approx(solved.fun, rel=1e-6)


def test_where_all_are_measured_it_is_the_papers_closed_form():
    # Theorem D.1: x = (1 + Q) / S sqrt(v / p) - a, in units of the cost
    values = {0: (1.0, 1.0, 0.1), 1: (2.0, 0.5, 0.05), 2: (0.7, 0.8, 0.0)}
    roots = sum(math.sqrt(p * v) for v, p, _ in values.values())
    known = sum(p * a for _, p, a in values.values())
    for k, x in water_fill(values, 1.0).items():
        v, p, a = values[k]
        assert x == pytest.approx((1 + known) / roots * math.sqrt(v / p) - a)
        assert x > 0


def test_without_earlier_estimates_it_is_residual_planner():
    for target in (0b011, 0b101, 0b111):
        expected = plan({target: 1.0}, BASES, 0.3).variances
        found = conditional_plan(target, {}, BASES, 0.3, least=0.0)
        assert found == pytest.approx(expected)


def test_residuals_known_well_are_not_measured_and_the_budget_is_used():
    precisions = {0: 50.0, 1: 9.0, 2: 1e-6}
    found = conditional_plan(0b011, precisions, BASES, 0.3)
    assert set(found) == {2, 3}
    assert sum(float(privacy(BASES, m)) / v for m, v in found.items()) == pytest.approx(0.3)


def test_conditional_is_no_worse_than_independent_noise():
    precisions = {0: 0.2, 1: 0.4, 2: 0.1, 3: 0.01}
    errors = coefficients({3: 1.0}, BASES)
    found = conditional_plan(3, precisions, BASES, 0.5, least=0.0)
    variances = {m: math.prod(BASES[i].size for i in (0, 1) if not m >> i & 1) for m in subsets(3)}
    cost = sum(float(privacy(BASES, m)) / v for m, v in variances.items())
    assert cost == pytest.approx(1.0)  # a marginal with unit noise, which one row costs 1

    def after(bought):
        return sum(errors[m] / (precisions[m] + bought.get(m, 0.0)) for m in subsets(3))

    independent = {m: 0.5 / v for m, v in variances.items()}
    assert after({m: 1 / v for m, v in found.items()}) < 0.97 * after(independent)


def test_parameters_out_of_range_and_attributes_of_one_level():
    for cost in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidParameter):
            conditional_plan(1, {}, BASES, cost)
    with pytest.raises(InvalidParameter):
        conditional_plan(1, {}, BASES, 1.0, least=1.0)
    assert set(conditional_plan(3, {}, subtraction((1, 4)), 1.0)) == {0, 2}
