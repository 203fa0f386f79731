"""Estimates, tables and roundings that are the nearest are those that cvxpy finds.

Instances are a function of the seed that names the test.
"""

from __future__ import annotations

import math
import random as plain_random
import sys

import cvxpy as cp
import numpy as np
import pytest

from dpsql.workload.grem import Residuals, grem_ls
from dpsql.workload.joint import normal_inverse
from dpsql.workload.marginals import Floats, subsets
from dpsql.workload.nonnegative import Asked, nonnegative
from dpsql.workload.pgm import Settings, fit_model
from dpsql.workload.postprocess import project_simplex, round_to_total
from dpsql.workload.residual_bases import subtraction
from tests.property.convex import POINT, TOLERANCE, kron, least, marginal, same
from tests.unit.workload import asked

# -- least squares --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_consistent_marginals_are_the_least_squares(seed: int) -> None:
    """``min sum |M_A x - y_A|^2 / variance`` over all data vectors; what was measured is unique."""
    sizes, random = [(3, 2, 2), (4, 3), (2, 1, 3)][seed % 3], np.random.default_rng(seed)
    masks = [int(m) for m in random.permutation(1 << len(sizes))[:3]]
    variances = {mask: float(np.exp(random.normal(0, 1))) for mask in masks}
    shapes = {m: [n for i, n in enumerate(sizes) if m >> i & 1] for m in masks}
    tables = {mask: random.normal(5, 3, shapes[mask]) for mask in masks}
    found = dict(grem_ls(tables, variances, subtraction(sizes)).marginals(masks))
    x = cp.Variable(math.prod(sizes))
    misfit = sum(
        cp.sum_squares(marginal(sizes, mask) @ x - tables[mask].ravel()) / variances[mask]
        for mask in masks
    )
    best = least(misfit, [])
    ours = sum(float(((found[m] - tables[m]) ** 2).sum()) / variances[m] for m in masks)
    assert abs(ours - best) <= TOLERANCE * (1 + best)
    for mask in masks:
        np.testing.assert_allclose(found[mask].ravel(), marginal(sizes, mask) @ x.value, atol=POINT)
    # a mutant: measurements count alike, whatever their variance
    alike = dict(grem_ls(tables, dict.fromkeys(masks, 1.0), subtraction(sizes)).marginals(masks))
    wrong = sum(float(((alike[m] - tables[m]) ** 2).sum()) / variances[m] for m in masks)
    assert wrong >= best * (1 - TOLERANCE)
    if any(set(subsets(a)) & set(subsets(b)) for a in masks for b in masks if a != b):
        assert wrong > best * (1 + 100 * TOLERANCE)


@pytest.mark.parametrize("seed", range(4))
def test_joint_estimates_are_the_least_squares(seed: int) -> None:
    """From two Kronecker strategies, one of deficient rank: the answers to what both can tell."""
    random = np.random.default_rng(seed)
    sizes = (3, 4)
    matrices = [
        [random.normal(size=(4, 3)), random.normal(size=(5, 4))],
        [np.ones((1, 3)), random.normal(size=(3, 4))],
    ]
    weights = [1.0, float(np.exp(random.normal()))]
    tables = [random.normal(3, 2, (kron(m).shape[0],)) for m in matrices]
    grams = [[m.T @ m for m in own] for own in matrices]
    inverse = normal_inverse(grams, weights)
    pull = sum(w * kron(m).T @ y for w, m, y in zip(weights, matrices, tables, strict=True))
    found = inverse.solve(pull.reshape(sizes)).ravel()
    x = cp.Variable(math.prod(sizes))
    terms = [
        w * cp.sum_squares(kron(m) @ x - y)
        for w, m, y in zip(weights, matrices, tables, strict=True)
    ]
    best = least(sum(terms), [])

    def misfit(point: Floats) -> float:
        return sum(
            w * float(((kron(m) @ point - y) ** 2).sum())
            for w, m, y in zip(weights, matrices, tables, strict=True)
        )

    same(misfit(found), best, TOLERANCE)
    np.testing.assert_allclose(found, x.value, atol=POINT)
    with pytest.raises(AssertionError):
        same(misfit(found * 1.01), best, TOLERANCE)


# -- without negative entries ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_nearest_table_with_a_total(seed: int) -> None:
    """``min |x - t|^2`` over ``x >= 0`` with a given sum: one point."""
    random = np.random.default_rng(seed)
    table = random.normal(1, 3, (int(random.integers(1, 5)), int(random.integers(1, 6))))
    total = float(np.exp(random.normal(1, 1)))
    x = cp.Variable(table.shape, nonneg=True)
    best = least(cp.sum_squares(x - table), [cp.sum(x) == total])
    found = project_simplex(table, total)

    def check(point: Floats) -> None:
        assert point.min() >= 0
        same(float(point.sum()), total, 1e-12)
        assert abs(float(((point - table) ** 2).sum()) - best) <= TOLERANCE * (1 + best)
        np.testing.assert_allclose(point, x.value, atol=POINT)

    check(found)
    if table.size > 1:  # a mutant: what is negative is cut off, and the rest scaled
        cut = np.maximum(table, 1e-3)
        with pytest.raises(AssertionError):
            check(cut * (total / cut.sum()))


def test_answers_of_a_table_without_negative_entries_are_nearly_the_nearest() -> None:
    """``min |W (x - x')|^2`` over ``x >= 0``, always the same workloads.

    Descent ends when ten steps lower the objective by less than a part of 1e-4: the distance is the
    least but for a part of 1e-3, and for as small a part of the answers' length.
    """
    random, numbers = plain_random.Random(7), np.random.default_rng(7)
    checked = seen = 0
    while checked < 15:
        workload = asked.drawn(random)
        if all(product.nothing for product in workload.products):
            continue
        multiply = Asked(workload)
        weights = asked.weights_of(workload)
        rows = (weights / abs(weights).max())[:, None] * asked.dense(workload)
        if multiply.total:
            extra = math.sqrt(multiply._terms[-1].coefficient)
            rows = np.concatenate([rows, np.full((1, rows.shape[1]), extra)])
        full = numbers.normal(0.5, 3, workload.domain.sizes)
        goal = rows @ full.ravel()
        x = cp.Variable(full.size, nonneg=True)
        distance = math.sqrt(max(least(cp.sum_squares(rows @ x - goal), []), 0.0))
        estimate = multiply.reduced(full)

        def off(table: Floats, multiply: Asked = multiply, own: Floats = estimate) -> float:
            return math.sqrt(max(float(np.vdot(table - own, multiply(table - own))), 0.0))

        slack = POINT * float(np.linalg.norm(goal))
        found, cut = nonnegative(multiply, estimate), np.maximum(estimate, 0)
        assert found.min() >= 0
        assert off(found) >= distance - slack
        assert off(found) <= 1.001 * distance + slack
        checked += 1
        if off(cut) > 1.1 * distance + 10 * slack:
            seen += 1
    assert seen > 5  # cutting off, a mutant, is not the nearest


@pytest.mark.skipif(sys.version_info < (3, 11), reason="mbi needs Python 3.11")
def test_graphical_models_fit_as_well_as_any_table() -> None:
    """``min chi^2`` over tables without negative entries that have the measured total.

    The misfit ends within two percent of its own size above the least one.
    """
    pytest.importorskip("mbi")
    sizes, random = (3, 2, 3), np.random.default_rng(0)
    residuals, variances = Residuals(subtraction(sizes)), {0b011: 4.0, 0b110: 1.0}
    data = random.multinomial(80, random.dirichlet(np.full(18, 0.2))).reshape(sizes)
    tables = {}
    for mask, variance in variances.items():
        exact = (marginal(sizes, mask) @ data.ravel()).reshape(
            [n for i, n in enumerate(sizes) if mask >> i & 1]
        )
        tables[mask] = exact + random.normal(0, 3 * math.sqrt(variance), exact.shape)
        residuals.add_marginal(mask, tables[mask], variance)
    total = float(residuals.values[0])
    model = fit_model(residuals, Settings(steps=1000, gain=1e-9, stop=0.0))

    def centred(mask: int) -> Floats:
        """Leave the total out, which is given."""
        table = marginal(sizes, mask)
        return np.asarray(table - table.mean(axis=0))

    x = cp.Variable(18, nonneg=True)
    misfit = sum(
        cp.sum_squares(centred(m) @ x - (tables[m] - tables[m].mean()).ravel()) / v
        for m, v in variances.items()
    )
    best = least(misfit, [cp.sum(x) == total])

    def of_model(which: dict[int, Floats]) -> float:
        return sum(
            float((((t - t.mean()) - (tables[m] - tables[m].mean())) ** 2).sum()) / variances[m]
            for m, t in which.items()
        )

    found = of_model({m: model.marginal(m) for m in variances})
    assert best * (1 - TOLERANCE) <= found <= best * 1.02 + 0.02
    even = {m: np.full(t.shape, total / t.size) for m, t in tables.items()}
    assert of_model(even) > best * 1.02 + 0.02


# -- whole numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_rounding_to_a_total_moves_cells_the_least(seed: int) -> None:
    """``min sum |r - t|`` over whole numbers with the rounded total, by branch and bound."""
    random = np.random.default_rng(seed)
    table = random.gamma(1, 2, (int(random.integers(1, 4)), int(random.integers(2, 6))))
    goal = round(float(table.sum()))
    rounded = cp.Variable(table.shape, integer=True)
    moved = cp.Variable(table.shape, nonneg=True)
    problem = cp.Problem(
        cp.Minimize(cp.sum(moved)),
        [cp.sum(rounded) == goal, rounded >= 0, moved >= rounded - table, moved >= table - rounded],
    )
    problem.solve(
        solver=cp.SCIPY
    )  # not HIGHS: its threads would be the process's, and ours has one
    assert problem.status == cp.OPTIMAL

    def check(whole: Floats) -> None:
        assert int(whole.sum()) == goal
        assert float(np.abs(whole - table).sum()) <= problem.value + TOLERANCE

    found = round_to_total(table)
    check(found)
    assert float(np.abs(found - table).sum()) >= problem.value - TOLERANCE
    ahead = found.copy().ravel()
    ahead[int(np.argmin(table))] += 2
    ahead[int(np.argmax(table))] -= 2
    with pytest.raises(AssertionError):
        check(ahead.reshape(table.shape))
