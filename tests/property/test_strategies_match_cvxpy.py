"""Strategies that are optimal have the error that cvxpy finds for the problem as it is defined.

With Gaussian noise these problems are convex in ``X = A^T A``: semi-definite programs.  Instances
are a function of the seed that names the test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import cvxpy as cp
import numpy as np
import pytest

from dpsql.workload import eigen_weights, opt0_gaussian
from dpsql.workload.eigen_design import EigenQueries, EigenStrategy, eigen_design, eigen_queries
from dpsql.workload.eigen_reductions import leading_queries, principal_vectors, separated
from dpsql.workload.eigen_weights import query_weights
from dpsql.workload.joint import best_shares
from dpsql.workload.marginals import Floats
from dpsql.workload.matrix import AllRange, Dense, Prefix, QueryMatrix, Total, Width
from dpsql.workload.opt0_gaussian import GaussianStrategy
from dpsql.workload.opt_plus import opt_plus
from dpsql.workload.svd_bound import svd_bound
from dpsql.workload.workload import GramTerm
from tests.property.convex import (
    POINT,
    TOLERANCE,
    best_strategy,
    between,
    factor_of,
    kron,
    least,
    same,
    squared_error,
)
from tests.unit.workload import asked

#: What solvers that certify what they find are asked for.
GAP = 1e-4

NAMED: list[QueryMatrix] = [Prefix(7), AllRange(6), Width(8, 3), Total(5)]


def workload(seed: int) -> Floats:
    """Draw queries of any rank: fewer or more than there are levels, some of them negative."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 8))
    rows = int(random.integers(1, 2 * n))
    return random.integers(-1, 4, (rows, n)) * np.exp(random.normal(0, 1, (rows, 1)))


# -- OPT_0 ----------------------------------------------------------------------------------------


def check_opt0(gram: Floats, strategy: GaussianStrategy, gap: float) -> None:
    best = best_strategy(gram)
    between(strategy.bound, best, strategy.error, gap)
    same(float(np.trace(np.linalg.solve(strategy.gram, gram))), strategy.error, 1e-5)
    assert np.diagonal(strategy.gram).max() <= 1 + 1e-12
    assert svd_bound(gram) <= best * (1 + TOLERANCE)


@pytest.mark.parametrize("seed", range(12))
def test_opt_0_finds_the_best_strategy(seed: int) -> None:
    """The error is within the gap of the optimum, the certificate below it."""
    rows = workload(seed)
    gram = rows.T @ rows
    # of deficient rank the multipliers settle slowly: test_opt0_gaussian.py allows as much
    check_opt0(gram, opt0_gaussian.opt0_gaussian(gram), 1e-3)


@pytest.mark.parametrize("queries", NAMED, ids=lambda q: type(q).__name__)
def test_opt_0_finds_the_best_strategy_of_ranges(queries: QueryMatrix) -> None:
    gram = queries.gram()
    check_opt0(gram, opt0_gaussian.opt0_gaussian(gram), GAP)


def test_an_opt_0_that_stops_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = Prefix(7).gram()
    good = opt0_gaussian.opt0_gaussian(gram)
    too_low = GaussianStrategy(good.gram, good.error * 0.99, good.bound, 1)
    too_sure = GaussianStrategy(good.gram, good.error, good.error * 1.001, 1)
    longer = GaussianStrategy(good.gram * 1.001, good.error / 1.001, good.bound, 1)
    monkeypatch.setattr(opt0_gaussian, "POWER", 0.0)  # the multipliers never move
    stuck = opt0_gaussian.opt0_gaussian(gram, iterations=5)
    for mutant in (stuck, too_low, too_sure, longer):
        with pytest.raises(AssertionError):
            check_opt0(gram, mutant, GAP)


# -- Eigen-Design ---------------------------------------------------------------------------------


def program_1(costs: Floats, squares: Floats) -> float:
    """``min sum c_i / u_i`` with ``sum_i u_i q_ij^2 <= 1`` for every cell (eigen-design, 3.1)."""
    some, scale = costs > 0, costs.sum()
    weights = cp.Variable(int(some.sum()))
    error = (costs[some] / scale) @ cp.inv_pos(weights)
    return least(error, [squares[some].T @ weights <= 1]) * float(scale)


def check_weights(costs: Floats, squares: Floats, found: eigen_weights.QueryWeights) -> None:
    between(found.bound, program_1(costs, squares), found.error, GAP)
    assert (squares.T @ found.squares).max() <= 1 + 1e-12
    some = costs > 0
    same(float((costs[some] / found.squares[some]).sum()), found.error, 1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_weights_of_queries_are_those_of_program_1(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, cells = (int(n) for n in random.integers(1, 9, 2))
    costs = np.exp(random.normal(0, 2, rows))
    if seed % 2:
        costs[random.random(rows) < 0.4] = 0
        costs[0] = 1
    squares = random.gamma(1, 1, (rows, cells))
    check_weights(costs, squares, query_weights(costs, Dense(squares)))


def test_weights_that_stop_early_are_caught() -> None:
    squares = np.random.default_rng(1).gamma(1, 1, (6, 5))
    costs = np.arange(1.0, 7)
    check_weights(costs, squares, query_weights(costs, Dense(squares)))
    with pytest.raises(AssertionError):
        check_weights(costs, squares, query_weights(costs, Dense(squares), iterations=1))
    binding = int((squares.T @ query_weights(costs, Dense(squares)).squares).argmax())
    fewer = Dense(np.delete(squares, binding, axis=1))
    with pytest.raises(AssertionError):  # a constraint is missing
        check_weights(costs, squares, query_weights(costs, fewer))


def diagonal_in(design: EigenQueries, gram: Floats, first: int, groups: Sequence[Floats]) -> float:
    """Return the least error of weighted eigen-queries; those of a group share one factor.

    In terms of ``X = Q^T diag(u) Q``, not of Program 1.
    """
    directions = [np.outer(row, row) for row in design.rows[:first]]
    directions += list(groups)
    factors = cp.Variable(len(directions), nonneg=True)
    information = sum(f * d for f, d in zip(factors, directions, strict=True))
    scale = float(np.trace(gram))
    root = np.linalg.cholesky(gram / scale).T
    error = squared_error(root, (information + information.T) / 2)
    return least(error, [cp.diag(information) <= 1]) * scale


def check_design(gram: Floats, strategy: EigenStrategy, best: float) -> None:
    between(strategy.weights_bound, best, strategy.error, GAP)
    written = strategy.gram()
    same(float(np.trace(np.linalg.solve(written, gram))), strategy.error, 1e-6)
    assert np.diagonal(written).max() <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_eigen_designs_have_the_best_weights_of_their_queries(seed: int) -> None:
    """Completed columns may go below, never below the best strategy of all."""
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 7))
    rows = np.concatenate([np.tri(n), random.normal(0, 1, (n, n))])
    gram = rows.T @ rows
    design = eigen_queries(gram)
    plain, done = eigen_design(design, complete=False), eigen_design(design)
    check_design(gram, plain, diagonal_in(design, gram, n, []))
    assert best_strategy(gram) * (1 - TOLERANCE) <= done.error <= plain.error * (1 + 1e-9)
    first = 2
    rest = np.eye(n) - design.rows[:first].T @ design.rows[:first]
    principal = principal_vectors(design, count=first, complete=False)
    best = diagonal_in(design, gram, first, [rest])
    check_design(gram, principal, best)
    with pytest.raises(AssertionError):  # other weights
        check_design(gram, plain, best)
    rooted = principal_vectors(design, count=first, rooted=True, complete=False)
    roots = np.sqrt(design.values[first:])
    shaped = design.rows[first:].T @ (roots[:, None] * design.rows[first:])
    check_design(gram, rooted, diagonal_in(design, gram, first, [shaped]))
    known = leading_queries(gram, first)
    some = principal_vectors(known, complete=False)
    rest = np.eye(n) - known.rows.T @ known.rows
    check_design(gram, some, diagonal_in(known, gram, first, [rest]))


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_eigen_queries_get_the_best_factors(seed: int) -> None:
    """Weights within a group are the best for the group alone, which is all that is promised."""
    random = np.random.default_rng(seed)
    rows = np.concatenate([np.tri(6), random.normal(0, 1, (6, 6))])
    gram = rows.T @ rows
    design = eigen_queries(gram)
    found = separated(design, group=2, complete=False)
    groups = []
    for start in (0, 2, 4):
        own = design.rows[start : start + 2]
        groups.append(own.T @ (found.squares[start : start + 2, None] * own))
    best = diagonal_in(design, gram, 0, groups)
    check_design(gram, found, best)
    assert found.error >= diagonal_in(design, gram, 6, []) * (1 - TOLERANCE)
    tilted = groups[0] + 2 * groups[1] + groups[2]  # a mutant
    error = float(np.trace(np.linalg.solve(tilted / np.diagonal(tilted).max(), gram)))
    with pytest.raises(AssertionError):
        between(found.weights_bound, best, error, GAP)


# -- shares of the budget -------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
def test_groups_get_the_best_shares(order: int) -> None:
    """``min sum e_g / s_g^2`` with ``sum s_g^order = 1``, each group by itself."""
    products = [[Prefix(5), Total(3)], [Total(5), AllRange(3)], [Prefix(5), AllRange(3)]]
    found = opt_plus(asked.workload((5, 3), *products), order, seed=1, restarts=1)  # type: ignore[arg-type]
    errors = np.array([part.strategy.error for part in found.parts])
    powers = cp.Variable(len(errors), nonneg=True)  # of the shares
    best = least(errors @ cp.power(powers, -2 / order), [cp.sum(powers) <= 1])
    same(found.error, best, 1e-6)
    np.testing.assert_allclose(
        [part.share**order for part in found.parts], powers.value, atol=POINT
    )


def joint_error(grams: list[list[Floats]], shares: Sequence[float], rows: Floats) -> float:
    normal = sum(s**2 * kron(own) for s, own in zip(shares, grams, strict=True))
    return float(np.trace(rows @ np.linalg.pinv(normal, rcond=1e-12) @ rows.T))


@pytest.mark.parametrize("seed", range(6))
def test_strategies_get_the_best_shares_of_joint_estimates(seed: int) -> None:
    """``min tr(V (sum_g w_g N_g)^-1)`` with ``sum w = 1``; a share has a least part of the largest."""
    random = np.random.default_rng(seed)
    sizes, count = (3, 4), 2
    grams = []
    for _ in range(count):
        matrices = [random.random((n + 1, n)) for n in sizes]
        matrices = [m / np.sqrt((m**2).sum(axis=0)) for m in matrices]
        grams.append([m.T @ m for m in matrices])
    queries = [random.integers(0, 2, (5, n)) + np.eye(5, n) for n in sizes]
    terms = [GramTerm(1.0, tuple(q.T @ q for q in queries))]
    shares = best_shares(grams, [(1 / count) ** 0.5] * count, 2, terms)
    rows = kron(queries)
    weights = cp.Variable(count, nonneg=True)
    normal = sum(w * kron(own) for w, own in zip(weights, grams, strict=True))
    scale = float((rows**2).sum())
    error = cp.matrix_frac(factor_of(rows.T @ rows / scale).T, normal)
    best = least(error, [cp.sum(weights) <= 1]) * scale
    same(sum(s**2 for s in shares), 1.0, 1e-9)
    found = joint_error(grams, shares, rows)
    # a share that should be 0 falls slowly, and steps are few
    assert best * (1 - TOLERANCE) <= found <= best * (1 + 1e-3)
    off = np.sqrt(np.clip(np.square(shares) + (0.3 if shares[0] < shares[1] else -0.3), 0.01, 1))
    off[1] = math.sqrt(max(1 - off[0] ** 2, 0.01))  # a mutant
    assert joint_error(grams, list(off), rows) > best * (1 + 1e-3)
