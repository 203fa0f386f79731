"""Residuals and marginals are measured as precisely as cvxpy finds best.

With Gaussian noise these problems are convex in the precisions.  Instances are a function of the
seed that names the test.
"""

from __future__ import annotations

from collections.abc import Sequence

import cvxpy as cp
import numpy as np
import pytest

from dpsql.workload import residual_planner
from dpsql.workload.conditional_planner import conditional_plan, water_fill
from dpsql.workload.marginals import Floats
from dpsql.workload.opt_marginals import opt_m
from dpsql.workload.opt_marginals import svd_bound as marginals_bound
from dpsql.workload.residual_bases import subtraction
from dpsql.workload.residual_planner import plan, plan_max, privacy, unit_squared_error
from tests.property.convex import (
    POINT,
    TOLERANCE,
    best_strategy,
    kron,
    least,
    marginal,
    residual,
    same,
    squared_error,
)

SIZES = [(2, 3), (4, 2), (2, 2, 3), (3, 1, 3)]


def some_marginals(sizes: Sequence[int], random: np.random.Generator) -> dict[int, float]:
    masks = random.permutation(1 << len(sizes))[: random.integers(1, 4)]
    return {int(mask): float(np.exp(random.normal())) for mask in masks}


def stacked(sizes: Sequence[int], weights: dict[int, float]) -> Floats:
    return np.concatenate([np.sqrt(w) * marginal(sizes, mask) for mask, w in weights.items()])


# -- marginals and residuals ----------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_marginals_and_residuals_are_as_good_as_any_strategy(
    sizes: tuple[int, ...], seed: int
) -> None:
    """Three formulas and the best strategy of all, for marginals; OPT_M's if it is of full form."""
    weights = some_marginals(sizes, np.random.default_rng(seed))
    asked_ = stacked(sizes, weights)
    best = best_strategy(asked_.T @ asked_)
    same(unit_squared_error(weights, subtraction(sizes)), best, 1e-6)
    vector = np.zeros(1 << len(sizes))
    vector[list(weights)] = list(weights.values())
    same(marginals_bound(sizes, vector), best, 1e-6)
    found = opt_m(sizes, weights, 2)
    if any(mask != len(vector) - 1 for mask in weights):  # a mutant, but where it is the best
        with pytest.raises(AssertionError):
            same(float((asked_**2).sum()), best, 1e-6)
    grams = [m.T @ m for m in (marginal(sizes, mask) for mask in range(len(vector)))]
    squares = cp.Variable(len(vector), nonneg=True)
    information = sum(s * g for s, g in zip(squares, grams, strict=True))
    same(found.error, least(squared_error(asked_, information), [cp.sum(squares) <= 1]), 1e-6)
    same(float((found.theta**2).sum()), 1.0, 1e-12)
    assert found.error >= best * (1 - TOLERANCE)


def check_plan(
    sizes: tuple[int, ...],
    cost: float,
    wanted: Sequence[Floats],
    chosen: residual_planner.ResidualPlan,
    error: float,
    tolerance: float,
) -> None:
    """``min max`` of the errors over precisions ``x``: ``diag(sum x_B R_B) <= cost``."""
    masks = range(1 << len(sizes))
    used = [mask for mask in masks if float(privacy(subtraction(sizes), mask)) > 0]
    parts = [residual(sizes, mask) for mask in used]
    x = cp.Variable(len(used), nonneg=True)
    information = sum(a * b for a, b in zip(x, parts, strict=True))
    worst = cp.maximum(*[squared_error(rows, information) for rows in wanted], 0)
    best = least(worst, [cp.diag(information) <= cost])
    assert best * (1 - TOLERANCE) <= error <= best * (1 + tolerance + TOLERANCE)
    # what the plan says of itself: its price, and the error of least squares from what it measures
    bought = {mask: 1 / v for mask, v in chosen.variances.items()}
    measured = sum(bought.get(mask, 0) * part for mask, part in zip(used, parts, strict=True))
    same(float(np.diagonal(measured).max()), cost, 1e-9)
    inverse = np.linalg.pinv(measured, rcond=1e-10)
    same(max(float(np.trace(rows @ inverse @ rows.T)) for rows in wanted), error, 1e-8)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_plans_are_the_best_for_their_price(sizes: tuple[int, ...], seed: int) -> None:
    """The sum of all errors in closed form; the largest error up to its own certificate."""
    random = np.random.default_rng(seed)
    weights, bases = some_marginals(sizes, random), subtraction(sizes)
    cost = float(np.exp(random.normal()))
    chosen = plan(weights, bases, cost)
    check_plan(sizes, cost, [stacked(sizes, weights)], chosen, chosen.squared_error(weights), 1e-6)
    each = [np.sqrt(w) * marginal(sizes, mask) for mask, w in weights.items()]
    chosen, excess = plan_max(weights, bases, cost)
    errors = chosen.squared_errors(weights)
    worst = max(w * errors[mask] for mask, w in weights.items())
    check_plan(sizes, cost, each, chosen, worst, 1e-3)
    assert excess <= 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_plans_of_prefixes_are_the_best_of_subtraction(seed: int) -> None:
    sizes, random = (4, 3), np.random.default_rng(seed)
    weights, rows = {0b11: 1.0, 0b01: float(np.exp(random.normal()))}, {0: np.tri(4)}
    grams = {0: np.tri(4).T @ np.tri(4)}
    queries = [kron([np.tri(4), np.eye(3)]), weights[1] ** 0.5 * kron([rows[0], np.ones((1, 3))])]
    chosen = plan(weights, subtraction(sizes), 2.0, grams)
    error = chosen.squared_error(weights, grams)
    check_plan(sizes, 2.0, [np.concatenate(queries)], chosen, error, 1e-6)


def test_plans_that_are_not_the_best_are_caught() -> None:
    sizes, weights = (2, 3), {0b11: 1.0, 0b01: 2.0}
    bases, rows = subtraction(sizes), [stacked(sizes, weights)]
    good = plan(weights, bases)
    check_plan(sizes, 1.0, rows, good, good.squared_error(weights), 1e-6)
    price = sum(float(privacy(bases, mask)) for mask in good.variances)
    even = residual_planner.ResidualPlan(bases, dict.fromkeys(good.variances, price))
    cheap = residual_planner.ResidualPlan(bases, {b: v * 0.99 for b, v in good.variances.items()})
    for mutant in (even, cheap):
        with pytest.raises(AssertionError):
            check_plan(sizes, 1.0, rows, mutant, mutant.squared_error(weights), 1e-6)


# -- what one more round measures -----------------------------------------------------------------


def check_filled(
    terms: dict[int, tuple[float, float, float]], cost: float, bought: dict[int, float]
) -> None:
    """``min sum v / (a + x)`` over ``x >= 0`` with ``sum p x = cost``: one point is the best."""
    v, p, a = (np.array(column) for column in zip(*terms.values(), strict=True))
    x = cp.Variable(len(terms), nonneg=True)  # shares of the cost
    precise = a + cp.multiply(cost / p, x)
    scale = float((v / (a + cost / p)).sum())
    best = least((v / scale) @ cp.inv_pos(precise), [cp.sum(x) == 1]) * scale
    ours = np.array([bought[key] for key in terms])
    assert (ours >= 0).all()
    same(float(p @ ours), cost, 1e-12)
    same(float((v / (a + ours)).sum()), best, TOLERANCE)
    np.testing.assert_allclose(ours * p / cost, x.value, atol=POINT)


@pytest.mark.parametrize("seed", range(12))
def test_water_is_filled_in_as_cvxpy_does(seed: int) -> None:
    """With nothing known that is the paper's closed form (Theorem D.1)."""
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 9))
    v, p = np.exp(random.normal(0, 1, (2, size)))
    a = np.exp(random.normal(0, 1, size)) * (random.random(size) < 0.7 * (seed > 2))
    terms = {k: (float(v[k]), float(p[k]), float(a[k])) for k in range(size)}
    cost = float(np.exp(random.normal(0, 1)))
    check_filled(terms, cost, water_fill(terms, cost))


def test_water_at_a_wrong_level_is_caught() -> None:
    terms = {0: (1.0, 1.0, 0.0), 1: (4.0, 1.0, 1.0), 2: (1.0, 2.0, 9.0)}
    good = water_fill(terms, 3.0)
    check_filled(terms, 3.0, good)
    assert good[2] == 0
    without_floors = water_fill({k: (v, p, 0.0) for k, (v, p, _) in terms.items()}, 3.0)
    moved = {0: good[0] + 0.01, 1: good[1] - 0.01, 2: 0.0}
    for mutant in (without_floors, moved, {k: x * 1.001 for k, x in good.items()}):
        with pytest.raises(AssertionError):
            check_filled(terms, 3.0, mutant)


@pytest.mark.parametrize("seed", range(6))
def test_conditional_plans_are_the_best_for_what_is_known(seed: int) -> None:
    """All residuals, also those of a small share (``least=0``), in matrices written down."""
    random = np.random.default_rng(seed)
    sizes = SIZES[seed % 3]
    target = int(random.integers(1, 1 << len(sizes)))
    known = {
        mask: float(np.exp(random.normal()))
        for mask in range(1 << len(sizes))
        if random.random() < 0.5
    }
    cost, rows = float(np.exp(random.normal())), marginal(sizes, target)
    chosen = conditional_plan(target, known, subtraction(sizes), cost, least=0)
    parts = [residual(sizes, mask) for mask in range(1 << len(sizes))]
    x = cp.Variable(len(parts), nonneg=True)
    bought = sum(a * b for a, b in zip(x, parts, strict=True))
    before = sum((known[mask] * parts[mask] for mask in known), np.zeros_like(parts[0]))
    best = least(squared_error(rows, before + bought), [cp.diag(bought) <= cost])
    ours = sum((parts[mask] / v for mask, v in chosen.items()), np.zeros_like(parts[0]))
    same(float(np.diagonal(ours).max()), cost, 1e-9)

    def check(own: Floats) -> None:
        inverse = np.linalg.pinv(before + own, rcond=1e-10)
        same(float(np.trace(rows @ inverse @ rows.T)), best, 1e-6)

    check(ours)
    with pytest.raises(AssertionError):
        check(ours * 0.999)
