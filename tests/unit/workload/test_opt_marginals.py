"""The marginal Gram algebra against dense matrices, and OPT_M against the paper."""

import math
from functools import reduce

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import opt_marginals as om
from dpsql.workload.marginals import at_most_k_way, dense_weights, k_way, small, total_cells
from dpsql.workload.residual_bases import subtraction
from dpsql.workload.residual_planner import unit_squared_error

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
CPS = (50, 100, 7, 4, 2)
GAUSS = 4.224679
SIZES = (2, 3, 4)


def dense(sizes, weights):
    def factor(n, inside):
        return np.eye(n) if inside else np.ones((n, n))

    return sum(
        w * reduce(np.kron, [factor(n, a >> i & 1) for i, n in enumerate(sizes)])
        for a, w in enumerate(weights)
    )


def queries(sizes, theta):
    return np.vstack(
        [
            t
            * reduce(
                np.kron, [np.eye(n) if a >> i & 1 else np.ones((1, n)) for i, n in enumerate(sizes)]
            )
            for a, t in enumerate(theta)
            if t > 0
        ]
    )


@pytest.fixture
def rng():
    return np.random.default_rng(13)


def test_products_and_inverses(rng):
    u, v = rng.random(8), rng.random(8)
    assert dense(SIZES, om.multiply(SIZES, u, v)) == pytest.approx(
        dense(SIZES, u) @ dense(SIZES, v)
    )
    inverse = om.pseudo_inverse(SIZES, u)
    assert dense(SIZES, inverse) == pytest.approx(np.linalg.inv(dense(SIZES, u)))
    singular = np.array([1.0, 2, 0, 3, 0, 0, 0, 0])
    inverse = om.pseudo_inverse(SIZES, singular)
    assert dense(SIZES, inverse) == pytest.approx(np.linalg.pinv(dense(SIZES, singular)))
    assert om.from_eigenvalues(SIZES, om.eigenvalues(SIZES, u)) == pytest.approx(u)
    with pytest.raises(InvalidParameter, match="negative"):
        om.pseudo_inverse(SIZES, -u)


def test_eigenvalues_with_their_multiplicities(rng):
    u = rng.random(8)
    ours = np.repeat(om.eigenvalues(SIZES, u), om.multiplicities(SIZES).astype(int))
    assert np.sort(ours) == pytest.approx(np.linalg.eigvalsh(dense(SIZES, u)))
    roots = np.sqrt(np.linalg.eigvalsh(dense(SIZES, u)))
    assert om.svd_bound(SIZES, u) == pytest.approx(roots.sum() ** 2 / 24)


@pytest.mark.parametrize("order", [1, 2])
def test_the_objective_against_the_matrix_mechanism(rng, order):
    theta, weights = rng.random(8), rng.random(8)
    theta[3] = 0.0
    value, slope = om.squared_error(SIZES, theta, weights, order)
    strategy, workload = queries(SIZES, theta), queries(SIZES, np.sqrt(weights))
    sensitivity = np.linalg.norm(strategy, ord=order, axis=0).max()
    error = np.linalg.norm(workload @ np.linalg.pinv(strategy), "fro")
    assert value == pytest.approx((sensitivity * error) ** 2)
    for a in range(8):
        step = np.zeros(8)
        step[a] = 1e-6
        up, down = (
            om.squared_error(SIZES, abs(theta + s * step), weights, order)[0] for s in (1, -1)
        )
        if theta[a] > 0:
            assert slope[a] == pytest.approx((up - down) / 2e-6, rel=1e-5)


def test_a_strategy_that_does_not_support_the_workload_is_infinitely_bad():
    theta = np.array([1.0, 1, 0, 0, 0, 0, 0, 0])
    assert om.squared_error(SIZES, theta, dense_weights(3, {2: 1.0}), 2)[0] == math.inf
    assert om.squared_error(SIZES, theta, dense_weights(3, {1: 1.0}), 2)[0] < math.inf


def test_the_marginal_approximation_has_the_same_traces(rng):
    first = [np.tri(2), np.tri(3), np.eye(4)]
    second = [np.ones((1, 2)), np.array([[1.0, 1, 0], [0, 1, 1]]), np.tri(4)]
    gram = 2.0 * reduce(np.kron, [f.T @ f for f in first]) + reduce(
        np.kron, [f.T @ f for f in second]
    )

    def told(factors):
        return [(float((f * f).sum()), float((f.sum(axis=1) ** 2).sum())) for f in factors]

    w = om.marginal_approximation(SIZES, [(2.0, told(first)), (1.0, told(second))])
    for _ in range(5):
        other = dense(SIZES, rng.normal(size=8))
        assert np.trace(other @ dense(SIZES, w)) == pytest.approx(np.trace(other @ gram))


def test_table_3_of_the_paper():
    sizes, weights = (2, 5, 50, 100), dict.fromkeys(k_way(4, 2), 1.0)
    found = om.opt_m(sizes, weights, 1)
    assert found.error == pytest.approx(62886, abs=1)
    assert found.theta.sum() == pytest.approx(1.0)
    again = om.opt_m(sizes, weights, 1)
    assert np.array_equal(again.theta, found.theta)


@pytest.mark.parametrize(
    ("sizes", "masks", "paper", "restarts"),
    [
        (CPS, range(32), 4.84, 40),
        (LOANS, small(LOANS, 5000), 100.92, 20),
        (ADULT, at_most_k_way(14, 3), 225.35 * 1.02, 12),
    ],
)
def test_laplace_marginals_reach_the_paper(sizes, masks, paper, restarts):
    found = om.opt_m(sizes, dict.fromkeys(masks, 1.0), 1, restarts=restarts, iterations=100)
    assert math.sqrt(2 * found.error / total_cells(sizes, masks)) <= paper


@pytest.mark.parametrize(
    ("sizes", "masks", "paper"),
    [
        (CPS, range(32), 7.853),
        (LOANS, small(LOANS, 5000), 34.91),
        (ADULT, at_most_k_way(14, 3), 46.44),
    ],
)
def test_gaussian_marginals_reach_the_paper(sizes, masks, paper):
    weights = dict.fromkeys(masks, 1.0)
    found = om.opt_m(sizes, weights, 2)
    assert GAUSS * math.sqrt(found.error / total_cells(sizes, masks)) <= paper
    assert found.theta @ found.theta == pytest.approx(1.0)
    bound = om.svd_bound(sizes, dense_weights(len(sizes), weights))
    assert found.error >= bound * (1 - 1e-9)
    # the residual planner attains the bound
    assert unit_squared_error(weights, subtraction(sizes)) == pytest.approx(bound)


def test_the_closed_form_is_optimal_where_it_is_real():
    weights = dense_weights(5, dict.fromkeys(range(32), 1.0))
    theta, real = om.closed_form(CPS, weights)
    assert real
    error, slope = om.squared_error(CPS, theta, weights, 2)
    assert error == pytest.approx(om.svd_bound(CPS, weights))
    assert np.abs(slope * theta).max() < 1e-9 * error
    assert not om.closed_form(LOANS, dense_weights(12, dict.fromkeys(small(LOANS, 5000), 1.0)))[1]


def test_the_laplace_step_never_rises(rng):
    objective = om.of_marginals(CPS, dense_weights(5, dict.fromkeys(k_way(5, 2), 1.0)))
    theta = rng.random(32)
    last = objective(theta, 1)[0]
    for _ in range(30):
        theta = om._descend_laplace(objective, theta, 1)
        now = objective(theta, 1)[0]
        assert now <= last * (1 + 1e-12)
        last = now


@pytest.mark.parametrize("order", [1, 2])
def test_marginals_that_memory_cannot_hold_are_not_measured(order):
    sizes, masks = (8,) * 6, dict.fromkeys(k_way(6, 3), 1.0)
    free = om.opt_m(sizes, masks, order, seed=1)
    held = om.opt_m(sizes, masks, order, seed=1, most_cells=8**3)
    largest = [max(a.bit_count() for a in np.flatnonzero(s.theta).tolist()) for s in (free, held)]
    assert largest[1] == 3
    assert largest[0] > 3 or order == 2
    assert free.error * (1 - 1e-9) <= held.error < 3 * free.error


def test_bad_input_is_named():
    with pytest.raises(InvalidParameter, match="no marginal of positive weight"):
        om.opt_m((2, 3), {}, 2)
    with pytest.raises(InvalidParameter, match="21 attributes"):
        om.opt_m((2,) * 21, {1: 1.0}, 2)
