"""Strategies whose problems are not convex: conditions of the first order, and bounds by cvxpy.

With Laplace noise, and for matrices that several sets of attributes share, what is found is a local
minimum, and no more is promised.  What is checked: the error is what the strategy's definition says;
the best strategy with Gaussian noise, which may be more than any with columns of L1 norm 1, is below
it; and the convex problem that touches the error at the strategy has its minimum there.
Instances are a function of the seed that names the test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

from dpsql.workload.marginals import Floats, spread_down
from dpsql.workload.matrix import AllRange, Dense, Identity, Prefix, QueryMatrix, Total, Width
from dpsql.workload.opt0_laplace import PIdentity, opt0_laplace
from dpsql.workload.opt_kron import opt_kron
from dpsql.workload.opt_marginals import opt_m
from dpsql.workload.opt_shared import opt_shared
from dpsql.workload.optimal_bases import optimal_bases
from dpsql.workload.residual_bases import Basis
from dpsql.workload.residual_bases import Dense as DenseBasis
from dpsql.workload.residual_planner import unit_squared_error
from dpsql.workload.workload import Workload
from tests.property.convex import TOLERANCE, best_strategy, kron, least, marginal, same
from tests.unit.workload import asked

#: What a step of the first order may still gain, as a part of the error: L-BFGS ends where its steps
#: gain a part of 1e-9 each, of which thousands may be left.
STATIONARY = 1e-3


def dense_error(rows: Floats, matrix: Floats) -> float:
    """``||W A^+||^2``."""
    return float((np.asarray(rows @ np.linalg.pinv(matrix)) ** 2).sum())


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
    assert gain(error, found.theta) <= STATIONARY


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("queries", [Prefix(9), AllRange(7), Width(8, 3)], ids=repr)
def test_p_identity_strategies_cannot_be_mended_by_small_steps(
    queries: QueryMatrix, seed: int
) -> None:
    rows = queries.dense()
    check_p_identity(rows, opt0_laplace(queries.gram(), seed=seed, p=2, restarts=3))


def test_a_p_identity_strategy_that_stops_early_is_caught() -> None:
    queries = Prefix(9)
    good = opt0_laplace(queries.gram(), seed=1, p=2, restarts=3)
    check_p_identity(queries.dense(), good)
    begun = np.random.default_rng(1).random((2, 9))
    early = PIdentity(begun, dense_error(queries.dense(), p_identity(begun)))
    for mutant in (early, PIdentity(good.theta, good.error * 0.999)):
        with pytest.raises(AssertionError):
            check_p_identity(queries.dense(), mutant)


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
    "prefix and totals": ((6, 3), [[Prefix(6), Total(3)], [Total(6), Identity(3)]]),
    "two ranges": ((5, 4), [[AllRange(5), Total(4)], [Prefix(5), AllRange(4)]]),
    "three": ((4, 2, 3), [[Prefix(4), Identity(2), Total(3)], [Total(4), Total(2), Prefix(3)]]),
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
    grams = []
    for mask in found.theta:
        parts = [m if mask >> i & 1 else np.ones((1, sizes[i])) for i, m in enumerate(matrices)]
        grams.append(kron(parts).T @ kron(parts))
    theta = np.array(list(found.theta.values()))
    # weights and matrices move together, until steps gain a part of 1e-9: flatter than weights alone
    check_weighted(asked.dense(workload), grams, theta, found.error, STATIONARY)


# -- one matrix for each attribute ----------------------------------------------------------------


def kron_factors(found: object) -> list[Floats]:
    return [factor.dense() for factor in found.queries.factors]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
def test_a_product_gets_the_best_strategy_of_all(seed: int) -> None:
    """With Gaussian noise the best strategy of a product of queries is one of products."""
    random = np.random.default_rng(seed)
    queries = [Dense(random.integers(0, 2, (4, 3)) + np.eye(4, 3)), Prefix(4)]
    workload = asked.workload((3, 4), queries)
    found = opt_kron(workload, 2, seed=1)
    rows = asked.dense(workload)
    best = best_strategy(rows.T @ rows)
    assert found.bound <= best * (1 + TOLERANCE)
    assert best * (1 - TOLERANCE) <= found.error <= best * (1 + 3e-4)
    same(dense_error(rows, kron(kron_factors(found))), found.error, 1e-4)
    assert float((rows**2).sum()) > best * (1 + 3e-4)  # a mutant: Identity


def check_factors(workload: Workload, factors: Sequence[Floats], error: float) -> None:
    """No factor can be changed alone for the better: each is a problem that is convex."""
    rows = asked.weights_of(workload)[:, None] * asked.dense(workload)
    same(dense_error(rows, kron(factors)), error, 1e-4)
    for matrix in factors:
        assert (matrix**2).sum(axis=0).max() <= 1 + 1e-9
    inverses = [np.linalg.pinv(m.T @ m, rcond=1e-9) for m in factors]
    for i, _ in enumerate(factors):
        total = 0.0
        for term in workload.gram_terms:
            others = [
                float(np.vdot(inverse, gram))
                for j, (inverse, gram) in enumerate(zip(inverses, term.factors, strict=True))
                if j != i
            ]
            total = total + term.coefficient * math.prod(others) * term.factors[i]
        assert error <= best_strategy(np.asarray(total)) * (1 + STATIONARY)
    assert error >= best_strategy(rows.T @ rows) * (1 - TOLERANCE)


@pytest.mark.parametrize("seed", range(3))
def test_no_factor_of_a_union_can_be_mended_alone(seed: int) -> None:
    products = [[Prefix(4), Identity(3)], [AllRange(4), Total(3)], [Identity(4), Prefix(3)]]
    weights = [float(x) for x in np.exp(np.random.default_rng(seed).normal(0, 1, 3))]
    workload = asked.workload((4, 3), *products, weights=weights)
    found = opt_kron(workload, 2, seed=seed, restarts=2)
    factors = kron_factors(found)
    check_factors(workload, factors, found.error)
    mutant = [np.eye(4), factors[1]]
    rows = asked.weights_of(workload)[:, None] * asked.dense(workload)
    with pytest.raises(AssertionError):
        check_factors(workload, mutant, dense_error(rows, kron(mutant)))


# -- bases of residuals ---------------------------------------------------------------------------


def unit_errors(basis: Basis, gram: Floats | None) -> tuple[float, float]:
    """Return ``t`` at a cost of 1, and ``s``."""
    own, spread = basis.errors(gram)
    return own * float(basis.privacy), spread


def check_basis(
    basis: DenseBasis, gram: Floats, total: Callable[[float, float], float], tolerance: float
) -> None:
    """Check an attribute's residual matrix, all others fixed, to first order.

    Of the error ``F(t, s)`` only the slopes count: ``t + lambda s`` with ``lambda = F_s / F_t`` is
    ``tr(V (M + 11^T / lambda)^-1)``, convex in ``M = S^T S`` whose diagonal is 1 at most.  ``M`` has
    a null vector ``u``; that it has one is no convex condition, so an excess ``u^T M u`` is charged,
    by more than it can be worth.  At a local minimum of ``F`` the least is attained.
    """
    own, spread = unit_errors(basis, gram)
    step = 1e-5
    by_own = (total(own * (1 + step), spread) - total(own * (1 - step), spread)) / own
    by_spread = (total(own, spread * (1 + step)) - total(own, spread * (1 - step))) / spread
    ratio = by_spread / by_own
    n = len(gram)
    matrix = np.asarray(basis.matrix, dtype=np.float64)
    found = matrix.T @ matrix
    found /= np.diagonal(found).max()
    null = np.linalg.eigh(found)[1][:, 0]
    null /= null.sum()
    squares = cp.Variable((n, n), PSD=True)
    ours = own + ratio * spread
    root = np.linalg.cholesky(gram / ours).T
    error = cp.matrix_frac(root.T, squares + np.ones((n, n)) / ratio)
    charge = 2 * ratio**2 * spread / ours
    best = least(error + charge * (null @ squares @ null), [cp.diag(squares) <= 1])
    assert 1 - tolerance <= best <= 1 + 1e-5, f"a basis can be mended: {best}"


def with_errors(
    weights: dict[int, float],
    pairs: Sequence[tuple[float, float]],
    i: int,
    own: float,
    spread: float,
) -> float:
    """``F = (sum_B sqrt(v_B))^2`` with another pair for one attribute."""
    changed = [*pairs[:i], (own, spread), *pairs[i + 1 :]]
    values = spread_down(weights, [t for t, _ in changed], [s for _, s in changed])
    return math.fsum(math.sqrt(v) for v in values.values()) ** 2


BASES = {
    "one": ((7,), {1: 1.0}, [0]),
    "a prefix and cells": ((5, 3), {0b11: 1.0, 0b01: 2.0}, [0]),
    "two prefixes": ((5, 4), {0b11: 1.0, 0b01: 0.3, 0b10: 3.0}, [0, 1]),
    "three": ((4, 3, 2), {0b011: 1.0, 0b101: 1.0, 0b110: 1.0}, [0, 1]),
}


@pytest.mark.parametrize("case", BASES.values(), ids=BASES)
def test_bases_are_a_local_minimum_and_of_one_attribute_the_best(
    case: tuple[tuple[int, ...], dict[int, float], list[int]],
) -> None:
    sizes, weights, special = case
    grams = {i: np.tri(sizes[i]).T @ np.tri(sizes[i]) for i in special}
    bases = optimal_bases(sizes, weights, grams, bits=16)
    error = unit_squared_error(weights, bases, grams)
    queries = [np.tri(n) if i in grams else np.eye(n) for i, n in enumerate(sizes)]
    rows = np.concatenate(
        [
            math.sqrt(w)
            * kron([q if mask >> i & 1 else np.ones((1, len(q))) for i, q in enumerate(queries)])
            for mask, w in weights.items()
        ]
    )
    best = best_strategy(rows.T @ rows)
    assert error >= best * (1 - TOLERANCE)
    if len(sizes) == 1:
        assert error <= best * (1 + 1e-4)
    pairs = [unit_errors(basis, grams.get(i)) for i, basis in enumerate(bases)]
    for i in special:
        basis = bases[i]
        assert isinstance(basis, DenseBasis)
        total = partial(with_errors, weights, pairs, i)
        same(total(*pairs[i]), error, 1e-9)
        check_basis(basis, grams[i], total, 1e-4)
        even = np.hstack([np.eye(sizes[i] - 1), -np.ones((sizes[i] - 1, 1)) / (sizes[i] - 1)])
        mutant = DenseBasis(np.rint(even * 2**10).astype(np.int64), 2**11)
        with pytest.raises(AssertionError):
            check_basis(mutant, grams[i], total, 1e-4)
