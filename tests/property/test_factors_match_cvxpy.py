"""One matrix for each attribute: each is the best while the others stay, by cvxpy.

Where queries are a single product, or about a single attribute, that is the best strategy of all;
elsewhere the problem is not convex, and what is found is a local minimum.  Instances are a function
of the seed that names the test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

from dpsql.workload.marginals import Floats, spread_down
from dpsql.workload.matrix import AllRange, Dense, Identity, Prefix, Total
from dpsql.workload.opt_kron import opt_kron
from dpsql.workload.optimal_bases import optimal_bases
from dpsql.workload.residual_bases import Basis
from dpsql.workload.residual_bases import Dense as DenseBasis
from dpsql.workload.residual_planner import unit_squared_error
from dpsql.workload.workload import Workload
from tests.property.convex import TOLERANCE, best_strategy, dense_error, kron, least, same
from tests.unit.workload import asked

#: What another factor may still gain, as a part of the error: OPT_0 ends at a gap of 1e-4, and turns
#: of the factors at an improvement of as much.
STATIONARY = 1e-3

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
