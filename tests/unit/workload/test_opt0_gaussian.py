"""OPT_0 for Gaussian noise: feasible, certified, as good as published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.workload import opt0_gaussian as module
from dpsql.workload.matrix import AllRange, Identity, Permuted, Prefix, QueryMatrix, Total, Width
from dpsql.workload.opt0_gaussian import GaussianStrategy, opt0_gaussian
from dpsql.workload.svd_bound import svd_bound

SIGMA = 4.224679  # analytic Gaussian mechanism at epsilon 1, delta 1e-6, sensitivity 1


def permuted(n: int) -> Permuted:
    return Permuted(AllRange(n), tuple(int(i) for i in np.random.default_rng(1).permutation(n)))


def check(strategy: GaussianStrategy, matrix: np.ndarray, slack: float = 1e-6) -> None:
    """Compare what is said about a strategy with its matrix, by other means."""
    a = strategy.matrix()
    assert (a**2).sum(0).max() <= 1 + 1e-12
    error = (np.linalg.lstsq(a.T, matrix.T, rcond=None)[0] ** 2).sum()
    assert strategy.error == pytest.approx(error, rel=1e-5)
    bound = np.linalg.svd(matrix, compute_uv=False).sum() ** 2 / len(a)
    assert strategy.bound >= bound * (1 - slack)
    assert strategy.error >= strategy.bound


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([0, 0, 1, 1, -1, 3]), min_size=n, max_size=n),
            min_size=1,
            max_size=8,
        )
    )
)
def test_any_workload_gets_a_feasible_strategy_and_a_valid_bound(rows: list[list[int]]) -> None:
    matrix = np.array(rows, dtype=np.float64)
    strategy = opt0_gaussian(matrix.T @ matrix)
    if not matrix.any():
        assert strategy.error == strategy.bound == 0
        return
    check(strategy, matrix)
    assert strategy.error <= (matrix**2).sum() * (1 + 1e-6)  # Identity
    assert strategy.error <= (matrix**2).sum(0).max() * np.linalg.matrix_rank(matrix) * (1 + 1e-5)
    assert strategy.gap < 1e-3


@pytest.mark.parametrize(
    ("matrix", "best"),
    [(Identity(5), 5.0), (Total(5), 1.0), (Prefix(1), 1.0), (Permuted(Total(3), (1, 2, 0)), 1.0)],
)
def test_known_optima(matrix: QueryMatrix, best: float) -> None:
    strategy = opt0_gaussian(matrix.gram())
    check(strategy, matrix.dense())
    assert strategy.error == pytest.approx(best, rel=1e-5)
    assert strategy.bound == pytest.approx(best, rel=1e-5)


def test_the_optimum_of_two_levels() -> None:
    # X = [[1, x], [x, 1]], V = [[a, b], [b, c]]: tr = (a + c - 2 b x) / (1 - x^2), by a fine search.
    matrix = np.array([[1.0, 0], [1, 1], [3, 1]])
    a, b, c = 11.0, 4.0, 2.0
    x = np.linspace(-0.999, 0.999, 200_001)
    best = ((a + c - 2 * b * x) / (1 - x**2)).min()
    strategy = opt0_gaussian(matrix.T @ matrix, gap=1e-8)
    check(strategy, matrix)
    assert strategy.error == pytest.approx(best, rel=1e-6)
    assert strategy.bound == pytest.approx(best, rel=1e-6)
    assert strategy.bound > svd_bound(matrix.T @ matrix) * 1.05  # the SVD bound is not tight


@pytest.mark.parametrize(
    ("matrix", "paper"),
    [
        (AllRange(64), 9.73),
        (AllRange(256), 12.26),
        (Prefix(64), 8.87),
        (Prefix(256), 10.66),
        (Width(64, 32), 8.74),
        (Width(256, 32), 9.93),
        (permuted(256), 12.26),
    ],
    ids=lambda case: "" if isinstance(case, float) else f"{type(case).__name__}{case.shape[1]}",
)
def test_errors_are_at_most_the_published_ones(matrix: QueryMatrix, paper: float) -> None:
    # HDMM, Table 5, column OPT_0, printed with two digits.
    strategy = opt0_gaussian(matrix.gram())
    assert SIGMA * (strategy.error / matrix.shape[0]) ** 0.5 < paper + 0.0055
    assert strategy.gap <= module.GAP
    assert strategy.bound >= svd_bound(matrix.gram()) * (1 - 1e-9)


def test_the_certificate_catches_a_search_that_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gram = Prefix(64).gram()
    good = opt0_gaussian(gram)
    monkeypatch.setattr(module, "POWER", 0.0)  # the multipliers never move
    stuck = opt0_gaussian(gram, iterations=5)
    assert stuck.iterations == 5
    assert stuck.gap > 100 * good.gap
    check(stuck, Prefix(64).dense())
    assert stuck.bound == pytest.approx(svd_bound(gram))


def test_workloads_of_deficient_rank_are_solved_as_well() -> None:
    # Shrinking columns one by one tilts the row space, which costs a tenth here.
    random = np.random.default_rng(0)
    for matrix in (random.integers(-1, 2, (10, 40)) * 1.0, (random.random((20, 60)) < 0.3) * 1.0):
        strategy = opt0_gaussian(matrix.T @ matrix)
        assert strategy.gap <= module.GAP
        check(strategy, matrix)
        assert opt0_gaussian(matrix.T @ matrix, iterations=60).gap < 1e-3


def test_scale_and_order_of_levels_do_not_matter() -> None:
    gram = Prefix(20).gram()
    order = np.random.default_rng(2).permutation(20)
    one, other = opt0_gaussian(gram), opt0_gaussian(1e9 * gram[np.ix_(order, order)])
    assert other.error == pytest.approx(1e9 * one.error, rel=1e-6)
    assert other.bound == pytest.approx(1e9 * one.bound, rel=1e-6)


def test_no_gram_matrix_is_refused() -> None:
    for refused in (
        np.ones((2, 3)),
        np.array([[1.0, 2], [0, 1]]),
        np.array([[1.0, 2], [2, 1]]),
        np.array([[np.nan]]),
    ):
        with pytest.raises(InvalidParameter, match="Gram matrix"):
            opt0_gaussian(refused)
