"""Residuals of any domain, basis and workload: exact round trips, costs and errors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.workload import residual_planner as rp
from dpsql.workload.axis import decompose, reconstruct, reconstruct_all, sub_marginals
from dpsql.workload.marginals import attributes_of, dense_weights, downward_closure
from dpsql.workload.opt_marginals import squared_error, svd_bound
from dpsql.workload.optimal_bases import optimal_bases
from dpsql.workload.residual_bases import Subtraction

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@st.composite
def domains(draw):
    """Sizes, a basis for each attribute, and a workload."""
    sizes = draw(SIZES)
    masks = st.integers(0, 2 ** len(sizes) - 1)
    weights = draw(st.dictionaries(masks, st.floats(0.01, 100), min_size=1, max_size=5))
    prefix = {i: np.tri(n).T @ np.tri(n) for i, n in enumerate(sizes) if draw(st.booleans())}
    bases = optimal_bases(sizes, weights, prefix, bits=6, iterations=5)
    return sizes, bases, weights, prefix


@settings(max_examples=60, deadline=None)
@given(domains(), st.integers(0, 2**32 - 1))
def test_noisy_answers_agree_with_each_other(domain, seed):
    """What is reconstructed from any residuals is consistent, and linear in them."""
    sizes, bases, weights, _ = domain
    rng = np.random.default_rng(seed)
    cube = rng.integers(0, 20, sizes).astype(np.int64)
    full = 2 ** len(sizes) - 1
    assert reconstruct(decompose(cube.astype(float), bases), bases) == pytest.approx(cube, abs=1e-6)
    tables = sub_marginals({full: cube}, sizes)
    residuals = {
        mask: rp.measure(
            tables[mask], mask, bases, rng.integers(-99, 100, rp.noise_shape(bases, mask))
        )
        for mask in downward_closure(weights)
    }
    found = dict(reconstruct_all(residuals, residuals, bases))
    for mask, table in found.items():
        for axis, i in enumerate(attributes_of(mask)):
            assert table.sum(axis=axis) == pytest.approx(found[mask ^ 1 << i], abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(domains(), st.floats(1e-3, 1e3))
def test_the_integer_noise_never_costs_more_than_was_allowed(domain, cost):
    _, bases, weights, grams = domain
    chosen = rp.plan(weights, bases, cost, grams)
    exact = rp.exact_cost(bases, rp.noise_variances(chosen))
    assert exact <= cost * (1 + 1e-12)
    measured = {mask for mask in chosen.variances if mask}
    assert math.isclose(float(exact), cost, rel_tol=1e-6) or not measured


@settings(max_examples=60, deadline=None)
@given(SIZES, st.data())
def test_the_planner_attains_the_bound_that_no_marginal_strategy_passes(sizes, data):
    count = len(sizes)
    masks = st.integers(0, 2**count - 1)
    weights = data.draw(st.dictionaries(masks, st.floats(0.01, 100), min_size=1, max_size=5))
    vector = dense_weights(count, weights)
    bound = svd_bound(sizes, vector)
    bases = [Subtraction(n) for n in sizes]
    assert rp.unit_squared_error(weights, bases) == pytest.approx(bound, rel=1e-9)
    theta = np.array(data.draw(st.lists(st.floats(0.01, 1), min_size=2**count, max_size=2**count)))
    assert squared_error(sizes, theta, vector, 2)[0] >= bound * (1 - 1e-9)
    assert squared_error(sizes, theta, vector, 1)[0] >= bound * (1 - 1e-9)
