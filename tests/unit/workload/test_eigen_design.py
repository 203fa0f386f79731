"""Eigen-Design: what its strategies claim, against dense algebra and the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.workload import eigen_design as module
from dpsql.workload.domain import Domain
from dpsql.workload.eigen_design import (
    EigenStrategy,
    eigen_design,
    eigen_queries,
    kronecker_eigen_queries,
)
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import AllRange, Dense, Identity, Prefix, QueryMatrix, Total
from dpsql.workload.svd_bound import svd_bound, workload_bound
from dpsql.workload.workload import Product, Workload

EXAMPLE = np.array(  # the paper's figure 1(b)
    [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 1],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0, 1, 1],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, -1, -1, -1, -1],
    ],
    dtype=np.float64,
)


def root(gram: np.ndarray) -> np.ndarray:
    """Find a workload of this Gram matrix."""
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.sqrt(np.maximum(values, 0))).T


def check(strategy: EigenStrategy, matrix: np.ndarray) -> None:
    """Compare what is said about a strategy with its matrix, by other means."""
    a = strategy.matrix()
    norms = (a**2).sum(0)
    assert norms.max() <= 1 + 1e-12
    assert norms.max() == pytest.approx(1)
    assert strategy.gram() == pytest.approx(a.T @ a)
    error = (np.linalg.lstsq(a.T, matrix.T, rcond=None)[0] ** 2).sum()
    assert strategy.error == pytest.approx(error, rel=1e-5)
    assert strategy.error >= strategy.bound * (1 - 1e-9)
    assert strategy.bound == pytest.approx(svd_bound(matrix.T @ matrix), rel=1e-6)


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([0, 0, 1, 1, -1, 3]), min_size=n, max_size=n),
            min_size=1,
            max_size=8,
        )
    )
)
def test_any_workload_gets_what_is_claimed(rows: list[list[int]]) -> None:
    matrix = np.array(rows, dtype=np.float64)
    design = eigen_queries(matrix.T @ matrix)
    if not matrix.any():
        assert eigen_design(design).error == 0
        assert eigen_design(design).ratio == 1
        return
    plain, completed = eigen_design(design, complete=False), eigen_design(design)
    check(plain, matrix)
    check(completed, matrix)
    assert not plain.missing.any()
    assert completed.error <= plain.error
    assert plain.weights_bound <= plain.error
    if completed.missing.any():
        assert (completed.matrix() ** 2).sum(0) == pytest.approx(1)


def test_the_example_of_the_paper() -> None:
    # Example 4: the workload as its own strategy 47.78 (40 in units), ours 29.79, the bound 29.18.
    unit = 47.78 / 40**0.5
    strategy = eigen_design(eigen_queries(EXAMPLE.T @ EXAMPLE))
    check(strategy, EXAMPLE)
    assert len(strategy.squares) == 4  # the rank; the paper weighs two eigenvectors of value 0 too
    assert unit * strategy.bound**0.5 == pytest.approx(29.18, rel=1e-3)
    assert unit * strategy.error**0.5 < 29.79


@pytest.mark.parametrize(
    ("matrix", "plain", "completed"),
    [(AllRange(256), 1.0381, 1.02), (Prefix(256), 1.2870, 1.26), (Identity(9), 1.0, 1.0)],
    ids=lambda case: "" if isinstance(case, float) else type(case).__name__,
)
def test_ratios_to_the_bound(matrix: QueryMatrix, plain: float, completed: float) -> None:
    # without completion the optimum of Program 1, whose bound proves it
    design = eigen_queries(matrix.gram())
    strategy = eigen_design(design, complete=False)
    assert strategy.ratio == pytest.approx(plain, abs=1e-3)
    assert strategy.weights_bound >= strategy.error * (1 - 1.1e-4)
    assert eigen_design(design).ratio <= completed + 1e-9


def marginals(sizes: tuple[int, ...], masks: list[int]) -> Workload:
    products = [
        Product(
            Kronecker(tuple(Identity(n) if a >> i & 1 else Total(n) for i, n in enumerate(sizes))),
            1.0 + a,
        )
        for a in masks
    ]
    return Workload(Domain.of(*sizes), tuple(products))


@pytest.mark.parametrize("masks", [[3, 5, 6], [1, 2, 4, 7], [5], [0, 6]])
def test_marginals_reach_the_bound(masks: list[int]) -> None:
    workload = marginals((3, 4, 2), masks)
    dense = eigen_design(eigen_queries(workload.gram()))
    design = kronecker_eigen_queries(workload)
    assert design is not None
    product = eigen_design(design)
    for strategy in (dense, product):
        assert strategy.iterations == 1
        assert strategy.ratio == pytest.approx(1, abs=1e-7)
        check(strategy, root(workload.gram()))
    assert product.error == pytest.approx(workload_bound(workload).value)


@pytest.mark.parametrize("complete", [False, True])
def test_products_equal_what_is_written_down(complete: bool) -> None:
    # distinct eigenvalues; those of AllRange(4) and Prefix(2) have products in common
    workload = Workload.of(
        Domain.of(4, 3, 2), [AllRange(4), Prefix(3), Dense(np.array([[1.0, 3]]))]
    )
    design = kronecker_eigen_queries(workload)
    assert design is not None
    product = eigen_design(design, complete=complete, gap=1e-7)
    dense = eigen_design(eigen_queries(workload.gram()), complete=complete, gap=1e-7)
    assert product.error == pytest.approx(dense.error, rel=1e-6)
    assert product.missing.any() == complete
    check(product, workload.products[0].queries.dense())


def test_a_million_cells_by_products() -> None:
    sizes = (100, 100, 25, 4)
    design = kronecker_eigen_queries(marginals(sizes, [3, 5, 9, 10, 14]))
    assert design is not None
    assert design.cells == 1_000_000
    assert eigen_design(design, complete=False).ratio == pytest.approx(1, abs=1e-6)


def test_products_of_small_eigenvalues_are_not_dropped() -> None:
    design = kronecker_eigen_queries(
        Workload.of(Domain.of(60, 60, 60, 10), [*[AllRange(60)] * 3, AllRange(10)])
    )
    assert design is not None
    assert design.values.min() > 0
    assert design.values.max() > 1e11 * design.values.min()
    half = kronecker_eigen_queries(Workload.of(Domain.of(4, 3), [Total(4), Prefix(3)]))
    assert half is not None
    assert np.count_nonzero(half.values) == 3


def test_unions_without_a_common_basis_are_said_to_have_none() -> None:
    domain = Domain.of(4, 3)
    union = Workload.of(domain, [AllRange(4), Total(3)], [Total(4), Prefix(3)])
    assert kronecker_eigen_queries(union) is None
    either = Product(Kronecker.of(Prefix(4), Identity(3)), either=(0, 1))
    assert kronecker_eigen_queries(Workload(domain, (either,))) is None
    check(eigen_design(eigen_queries(union.gram())), root(union.gram()))


def test_scale_and_order_of_levels_do_not_matter() -> None:
    # Proposition 5; the eigenvalues are distinct
    gram = Prefix(20).gram()
    order = np.random.default_rng(2).permutation(20)
    one = eigen_design(eigen_queries(gram), gap=1e-6)
    other = eigen_design(eigen_queries(1e9 * gram[np.ix_(order, order)]), gap=1e-6)
    assert other.error == pytest.approx(1e9 * one.error, rel=1e-5)


def test_columns_that_are_completed_wrongly_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(
        rows: np.ndarray, squares: np.ndarray, missing: np.ndarray, *_: object
    ) -> np.ndarray:
        return (rows.T * squares) @ rows + np.diag(missing) / 2

    design = eigen_queries(Prefix(16).gram())
    monkeypatch.setattr(module, "_gram", halved)
    wrong = eigen_design(design)
    monkeypatch.undo()
    assert wrong.missing.any()
    with pytest.raises(AssertionError):
        check(wrong, Prefix(16).dense())


def test_no_gram_matrix_is_refused() -> None:
    for refused in (
        np.ones((2, 3)),
        np.array([[1.0, 2], [0, 1]]),
        np.array([[1.0, 2], [2, 1]]),
        np.array([[np.nan]]),
    ):
        with pytest.raises(InvalidParameter, match="Gram matrix"):
            eigen_queries(refused)
