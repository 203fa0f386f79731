"""Strategies whose problems are not convex: conditions of the first order, and bounds by cvxpy.

With Laplace noise what is found is a local minimum, and no more is promised.  What is checked: the
error is what the strategy's definition says; the optimum for Gaussian noise is below it, since
columns of L1 norm 1 have L2 norm 1 at most; no small step leads further down; and for weights the
convex problem that touches the error at the strategy has its minimum there.
Instances are a function of the seed that names the test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

from dpsql.workload.marginals import Floats
from dpsql.workload.matrix import Identity, Prefix, QueryMatrix, Total, Width
from dpsql.workload.opt0_laplace import PIdentity, opt0_laplace
from dpsql.workload.opt_marginals import opt_m
from dpsql.workload.opt_shared import opt_shared
from tests.property.convex import TOLERANCE, best_strategy, dense_error, kron, least, marginal, same
from tests.unit.workload import asked

#: What a step of the first order may still gain, as a part of the error: L-BFGS ends where its steps
#: gain a part of 1e-9 each, of which thousands may be left.
STATIONARY = 1e-3
#: The same of a search in one matrix.
STEEPEST = 1e-5


# -- p-Identity -----------------------------------------------------------------------------------


def p_identity(theta: Floats) -> Floats:
    """``[I; Theta] D`` with columns of L1 norm 1 (HDMM, Definition 13)."""
    return np.concatenate([np.eye(theta.shape[1]), theta]) / (1 + theta.sum(axis=0))


def gain(error: Callable[[Floats], float], point: Floats) -> float:
    """Return how much of the error the best step of the first order takes off.

    The gradient is that of the definition, by differences; cvxpy finds the direction of steepest
    descent among those that leave no entry negative; steps of many lengths are tried.
    """
    slope, here = np.zeros_like(point), error(point)
    for place in np.ndindex(*point.shape):
        ahead, behind = point.copy(), point.copy()
        ahead[place] += 1e-5
        behind[place] = max(behind[place] - 1e-5, 0.0)
        slope[place] = (error(ahead) - error(behind)) / (ahead[place] - behind[place])
    way = cp.Variable(point.shape)
    least(cp.sum(cp.multiply(slope / here, way)), [point + way >= 0, cp.norm(way, "fro") <= 1])
    steps = [np.maximum(point + length * way.value, 0) for length in np.geomspace(1e-4, 1, 40)]
    return 1 - min(error(step) for step in steps) / here


def check_p_identity(rows: Floats, found: PIdentity) -> None:
    gram = rows.T @ rows

    def error(theta: Floats) -> float:
        return dense_error(rows, p_identity(theta))

    assert np.abs(found.matrix()).sum(axis=0).max() <= 1 + 1e-12
    same(found.error, error(found.theta), 1e-6)
    assert found.error >= best_strategy(gram) * (1 - TOLERANCE)
    assert found.error <= float(np.trace(gram)) * (1 + 1e-9)  # Identity
    assert gain(error, found.theta) <= STEEPEST


QUERIES = {
    "prefixes": np.tri(12),
    "ranges of a width": Width(8, 6).dense(),
    "a total and cells": np.concatenate([np.ones((3, 8)), 0.5 * np.eye(8)]),
    "halves": np.concatenate([2 * np.kron(np.eye(2), np.ones((1, 4))), 0.3 * np.eye(8)]),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", QUERIES.values(), ids=QUERIES)
def test_p_identity_strategies_cannot_be_mended_by_small_steps(rows: Floats, seed: int) -> None:
    found = opt0_laplace(rows.T @ rows, seed=seed, p=2, restarts=6)
    check_p_identity(rows, found)
    assert found.error < 0.97 * float(
        (rows**2).sum()
    )  # not Identity, from where no step leads down


@pytest.mark.parametrize("rows", QUERIES.values(), ids=QUERIES)
def test_a_p_identity_strategy_that_stops_early_is_caught(rows: Floats) -> None:
    good = opt0_laplace(rows.T @ rows, seed=1, p=2, restarts=6)
    begun = np.random.default_rng(1).random(good.theta.shape)
    early = PIdentity(begun, dense_error(rows, p_identity(begun)))
    mutants = [early, PIdentity(good.theta, good.error * 0.999)]
    for mutant in mutants:
        with pytest.raises(AssertionError):
            check_p_identity(rows, mutant)


# -- weighted sets of attributes ------------------------------------------------------------------


def check_weighted(
    rows: Floats, grams: Sequence[Floats], theta: Floats, error: float, tolerance: float = 1e-4
) -> None:
    """Check weights ``theta`` of measurements that share epsilon: ``sum theta = 1``.

    With ``v = theta^2`` and ``g = -d error / d v`` the error is at most ``sum v_old^2 g / v``, since
    it is convex in ``v``, and ``min sum v_old^2 g / theta^2`` is convex in ``theta``.  It touches the
    error at ``theta``, so that a local minimum is a minimum of it.  Weights that are 0 stay so.
    """
    same(float(theta.sum()), 1.0, 1e-9)
    information = sum(t**2 * g for t, g in zip(theta, grams, strict=True))
    inverse = np.linalg.pinv(np.asarray(information), rcond=1e-11)
    same(float(np.trace(rows @ inverse @ rows.T)), error, 1e-6)
    half = rows @ inverse
    pull = np.array([float(np.vdot(half @ gram, half)) for gram in grams])
    same(float(theta**2 @ pull), error, 1e-6)
    some = theta > 1e-6
    ahead = cp.Variable(int(some.sum()), nonneg=True)
    costs = (theta**4 * pull)[some] / error
    best = least(costs @ cp.power(ahead, -2), [cp.sum(ahead) <= 1])
    assert 1 - tolerance <= best <= 1 + TOLERANCE, f"weights can be mended: {best}"
    assert error >= best_strategy(rows.T @ rows) * (1 - TOLERANCE)


@pytest.mark.parametrize("seed", range(5))
def test_weighted_marginals_are_a_local_minimum(seed: int) -> None:
    sizes, random = [(2, 3), (3, 2, 2)][seed % 2], np.random.default_rng(seed)
    count = 1 << len(sizes)
    masks = [int(m) for m in random.permutation(count)[:3]]
    weights = {mask: float(np.exp(random.normal())) for mask in masks}
    found = opt_m(sizes, weights, 1, seed=seed)
    rows = np.concatenate([np.sqrt(w) * marginal(sizes, mask) for mask, w in weights.items()])
    grams = [marginal(sizes, mask).T @ marginal(sizes, mask) for mask in range(count)]
    check_weighted(rows, grams, found.theta, found.error)
    kept = np.flatnonzero(found.theta > 0.01)
    if len(kept) > 1:  # a mutant
        other = found.theta.copy()
        other[kept[0]] *= 1.3
        other /= other.sum()
        inverse = np.linalg.pinv(sum(t**2 * g for t, g in zip(other, grams, strict=True)), 1e-11)
        with pytest.raises(AssertionError):
            check_weighted(rows, grams, other, float(np.trace(rows @ inverse @ rows.T)))


SHARED = {
    "prefix and totals": ((10, 2), [[Prefix(10), Total(2)], [Total(10), Identity(2)]]),
    "two ranges": ((5, 4), [[Width(5, 4), Total(4)], [Prefix(5), Width(4, 3)]]),
    "three": ((6, 2, 2), [[Width(6, 5), Identity(2), Total(2)], [Total(6), Total(2), Prefix(2)]]),
}


@pytest.mark.parametrize("case", SHARED.values(), ids=SHARED)
def test_shared_parts_are_a_local_minimum_in_their_weights(
    case: tuple[tuple[int, ...], list[list[QueryMatrix]]],
) -> None:
    sizes, products = case
    workload = asked.workload(sizes, *products)
    found = opt_shared(workload, seed=1, restarts=10)
    matrices = [np.eye(n) if m is None else m for n, m in zip(sizes, found.matrices, strict=True)]
    for matrix in matrices:
        assert np.abs(matrix).sum(axis=0).max() <= 1 + 1e-12
    theta, rows = np.array(list(found.theta.values())), asked.dense(workload)

    def grams(chosen: Sequence[Floats]) -> list[Floats]:
        every = []
        for mask in found.theta:
            parts = [m if mask >> i & 1 else np.ones((1, sizes[i])) for i, m in enumerate(chosen)]
            every.append(kron(parts).T @ kron(parts))
        return every

    # weights and matrices move together, until steps gain a part of 1e-9: flatter than weights alone
    check_weighted(rows, grams(matrices), theta, found.error, STATIONARY)

    def error(place: int, own: Floats) -> float:
        others = [*matrices[:place], p_identity(own), *matrices[place + 1 :]]
        information = sum(t**2 * g for t, g in zip(theta, grams(others), strict=True))
        return float(np.trace(rows @ np.linalg.pinv(information, rcond=1e-11) @ rows.T))

    optimised = 0
    for i, matrix in enumerate(found.matrices):
        if matrix is not None:
            own = matrix[sizes[i] :] / np.diagonal(matrix)
            same(error(i, own), found.error, 1e-6)
            assert gain(partial(error, i), own) <= STATIONARY
            optimised += bool(own.max() > 0.1)
            assert gain(partial(error, i), own + 0.3) > STATIONARY  # a mutant
    assert optimised  # not the identity everywhere
