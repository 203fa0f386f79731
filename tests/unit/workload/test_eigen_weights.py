"""Program 1 of Eigen-Design: feasible weights, a valid bound, the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.workload import eigen_weights as module
from dpsql.workload.eigen_weights import QueryWeights, query_weights
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import AllRange, Dense, Prefix


def rotation(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


def check(found: QueryWeights, costs: np.ndarray, squares: np.ndarray) -> None:
    """Compare what is said about weights with what they are."""
    assert (found.squares >= 0).all()
    assert (found.squares @ squares).max() <= 1 + 1e-12
    asked = costs > 0
    assert found.error == pytest.approx((costs[asked] / found.squares[asked]).sum(), rel=1e-9)
    assert found.bound <= found.error


@given(st.integers(1, 12), st.integers(0, 1000), st.booleans())
def test_weights_are_feasible_and_certified(n: int, seed: int, deficient: bool) -> None:
    random = np.random.default_rng(seed)
    costs = np.exp(random.normal(0, 3, n))
    if deficient:
        costs[random.random(n) < 0.5] = 0
    squares = rotation(n, seed) ** 2
    found = query_weights(costs, Dense(squares))
    check(found, costs, squares)
    assert found.gap <= module.GAP
    if costs.any():
        assert found.bound >= np.sqrt(costs).sum() ** 2 / n * (1 - 1e-9)
        for _ in range(20):  # no other weights go below the bound
            other = found.squares * np.exp(random.normal(0, 0.3, n))
            other /= (other @ squares).max()
            asked = costs > 0
            assert (costs[asked] / other[asked]).sum() >= found.bound * (1 - 1e-12)


@given(st.floats(0.05, 0.7), st.floats(0.01, 100))
def test_two_queries_by_a_fine_search(angle: float, cost: float) -> None:
    s, c = np.sin(angle) ** 2, np.cos(angle) ** 2
    squares, costs = np.array([[c, s], [s, c]]), np.array([1.0, cost])
    part = np.linspace(1e-5, 1 - 1e-5, 100_001)
    largest = np.maximum(part * c + (1 - part) * s, part * s + (1 - part) * c)
    best = ((1 / part + cost / (1 - part)) * largest).min()
    found = query_weights(costs, Dense(squares), gap=1e-7)
    assert found.error == pytest.approx(best, rel=1e-5)
    assert found.bound == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize(
    ("n", "ratio"), [(64, 1.0437903), (128, 1.0411181), (256, 1.0380542)], ids=str
)
def test_a_conic_solver_finds_the_same(n: int, ratio: float) -> None:
    # All ranges; root mean squared error beside the SVD bound, by Clarabel 0.11.1 to 1e-8.
    values, vectors = np.linalg.eigh(AllRange(n).gram())
    found = query_weights(values, Dense(vectors.T**2), gap=1e-5)
    bound = np.sqrt(values).sum() ** 2 / n
    assert (found.bound / bound) ** 0.5 <= ratio * (1 + 1e-7)
    assert (found.error / bound) ** 0.5 == pytest.approx(ratio, rel=1e-5)


def test_products_are_weighed_without_writing_them_down() -> None:
    factors = [rotation(3, 1) ** 2, rotation(4, 2) ** 2]
    costs = np.random.default_rng(3).random(12)
    one = query_weights(costs, Kronecker(tuple(Dense(f) for f in factors)))
    other = query_weights(costs, Dense(np.kron(*factors)))
    assert one.squares == pytest.approx(other.squares)
    assert one.bound == pytest.approx(other.bound)


def test_the_certificate_catches_a_search_that_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, vectors = np.linalg.eigh(Prefix(64).gram())
    squares = vectors.T**2
    good = query_weights(values, Dense(squares))
    assert good.iterations < 60
    monkeypatch.setattr(module, "_moved", lambda logs, step: logs)
    stuck = query_weights(values, Dense(squares), iterations=60)
    assert stuck.iterations == 60
    assert stuck.gap > 1000 * good.gap
    check(stuck, values, squares)


def test_growing_powers_save_steps_and_the_safe_one_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, vectors = np.linalg.eigh(AllRange(64).gram())
    squares = Dense(vectors.T**2)
    quick = query_weights(values, squares)
    monkeypatch.setattr(module, "GROW", 1.0)
    safe = query_weights(values, squares, iterations=5000)
    assert safe.gap <= module.GAP
    assert safe.iterations > 2 * quick.iterations
    assert safe.error == pytest.approx(quick.error, rel=2 * module.GAP)


def test_costs_are_checked() -> None:
    for costs in (np.ones(2), np.array([1, -1.0, 1]), np.array([1, np.nan, 1])):
        with pytest.raises(InvalidParameter, match="needs one cost"):
            query_weights(costs, Dense(np.eye(3)))
    assert query_weights(np.zeros(3), Dense(np.eye(3))).error == 0
