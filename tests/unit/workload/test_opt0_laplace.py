"""OPT_0 for Laplace noise: the objective, its gradient, and the published errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import AllRange, Identity, Permuted, Prefix, QueryMatrix, Total, Width
from dpsql.workload.opt0_laplace import PIdentity, opt0_laplace, p_identity_objective
from dpsql.workload.svd_bound import svd_bound


def written_error(theta: np.ndarray, matrix: np.ndarray) -> float:
    """HDMM, Definitions 13 and 14, literally."""
    d = np.diag(1 / (1 + theta.sum(0)))
    a = np.concatenate([np.eye(theta.shape[1]), theta]) @ d
    return float(((matrix @ np.linalg.pinv(a)) ** 2).sum())


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_objective_and_its_gradient(n: int, p: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(random.integers(1, 9), n))
    theta = random.random((p, n)) * random.choice([0.1, 1, 5])
    objective = p_identity_objective(matrix.T @ matrix)
    error, gradient = objective(theta.ravel())
    assert error == pytest.approx(written_error(theta, matrix), rel=1e-8)
    h = 1e-5
    for i in range(n * p):
        step = np.zeros(n * p)
        step[i] = h
        slope = (objective(theta.ravel() + step)[0] - objective(theta.ravel() - step)[0]) / (2 * h)
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-4 * error)


def test_the_papers_example() -> None:
    # HDMM, Example 10.
    strategy = PIdentity(np.array([[1.0, 2, 3], [1, 1, 1]]), 0.0)
    expected = [
        [1 / 3, 0, 0],
        [0, 1 / 4, 0],
        [0, 0, 1 / 5],
        [1 / 3, 1 / 2, 3 / 5],
        [1 / 3, 1 / 4, 1 / 5],
    ]
    np.testing.assert_allclose(strategy.matrix(), expected)
    np.testing.assert_allclose(strategy.gram(), np.transpose(expected) @ expected)


@pytest.mark.parametrize("matrix", [Prefix(20), AllRange(12), Width(12, 5), Total(6)])
def test_a_strategy_is_what_it_says(matrix: QueryMatrix) -> None:
    strategy = opt0_laplace(matrix.gram(), seed=1, p=3, restarts=4)
    a = strategy.matrix()
    np.testing.assert_allclose(abs(a).sum(0), 1)
    assert (strategy.theta >= 0).all()
    np.testing.assert_allclose(strategy.gram(), a.T @ a, atol=1e-12)
    dense = matrix.dense()
    assert strategy.error == pytest.approx(((dense @ np.linalg.pinv(a)) ** 2).sum(), rel=1e-6)
    assert svd_bound(matrix.gram()) <= strategy.error <= np.trace(matrix.gram())


def test_total_is_nearly_reached_without_cancellation() -> None:
    # Its best strategy has error 1 and no identity; an unbounded Theta gave -33.
    strategy = opt0_laplace(np.ones((6, 6)), seed=1, p=3, restarts=4)
    assert 1 <= strategy.error < 1.01


def test_identity_is_the_worst_that_comes_out() -> None:
    strategy = opt0_laplace(np.eye(8), seed=1, restarts=1)
    assert strategy.error == pytest.approx(8, rel=1e-6)
    assert opt0_laplace(np.zeros((3, 3)), seed=1).error == 0
    # One step cannot make it worse, either.
    assert opt0_laplace(Identity(8).gram(), seed=1, restarts=1, iterations=1).error <= 8


@pytest.mark.parametrize(
    ("matrix", "paper"),
    [
        (AllRange(64), 5.55),
        (Prefix(64), 5.32),
        (Width(64, 32), 5.88),
        (
            Permuted(AllRange(64), tuple(int(i) for i in np.random.default_rng(1).permutation(64))),
            5.55,
        ),
        (AllRange(256), 8.07),
        (Prefix(256), 7.35),
        (Width(256, 32), 6.34),
    ],
    ids=lambda case: "" if isinstance(case, float) else f"{type(case).__name__}{case.shape[1]}",
)
def test_errors_are_the_published_ones(matrix: QueryMatrix, paper: float) -> None:
    # HDMM, Table 4, column OPT_0; within the 0.5 % aimed at.
    strategy = opt0_laplace(matrix.gram(), seed=0, restarts=6)
    rmse = (2 * strategy.error / matrix.shape[0]) ** 0.5
    assert rmse < paper * 1.005
    assert rmse > paper * 0.98  # an error below what is known would be an error


def test_the_result_is_a_function_of_the_seed() -> None:
    gram = Prefix(32).gram()
    one, same, other = (opt0_laplace(gram, seed=s, restarts=1, iterations=20) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.theta, same.theta)
    assert (one.theta != other.theta).any()


def test_arguments_out_of_range_are_refused() -> None:
    for gram, options in (
        (np.ones((2, 3)), {}),
        (np.eye(2), {"p": 0}),
        (np.eye(2), {"restarts": 0}),
        (np.eye(2), {"iterations": 0}),
    ):
        with pytest.raises(InvalidParameter):
            opt0_laplace(gram, seed=1, **options)
