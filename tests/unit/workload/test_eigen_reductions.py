"""Separation, principal vectors, leading eigen-queries, and queries scaled to norm 1."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import eigen_reductions as module
from dpsql.workload.domain import Domain
from dpsql.workload.eigen_design import EigenStrategy, eigen_design, eigen_queries
from dpsql.workload.eigen_reductions import (
    Normalised,
    leading_queries,
    principal_vectors,
    relative_workload,
    separated,
)
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import (
    AllRange,
    Dense,
    Identity,
    Permuted,
    Prefix,
    QueryMatrix,
    Stacked,
    Total,
    Width,
)
from dpsql.workload.svd_bound import svd_bound
from dpsql.workload.workload import Product, Workload


def measured(strategy: EigenStrategy, matrix: np.ndarray) -> float:
    """Compute the error from the matrix, whose columns are at most 1 long."""
    a = strategy.matrix()
    assert (a**2).sum(0).max() <= 1 + 1e-12
    return float((np.linalg.lstsq(a.T, matrix.T, rcond=None)[0] ** 2).sum())


@pytest.mark.parametrize("matrix", [AllRange(24), Prefix(24)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("complete", [False, True])
def test_reductions_that_reduce_nothing_find_the_optimum(
    matrix: QueryMatrix, complete: bool
) -> None:
    design = eigen_queries(matrix.gram())
    full = eigen_design(design, complete=complete, gap=1e-7)
    for same in (
        separated(design, group=1, complete=complete, gap=1e-7),
        separated(design, group=24, complete=complete, gap=1e-7, group_gap=1e-7),
        principal_vectors(design, count=24, complete=complete, gap=1e-7),
        principal_vectors(design, count=23, complete=complete, gap=1e-7),
    ):
        assert same.error == pytest.approx(full.error, rel=1e-5)


@pytest.mark.parametrize("matrix", [AllRange(40), Prefix(40)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("complete", [False, True])
def test_errors_are_what_the_matrix_says(matrix: QueryMatrix, complete: bool) -> None:
    design = eigen_queries(matrix.gram())
    optimum = eigen_design(design, complete=False)
    for strategy in (
        separated(design, complete=complete),
        separated(design, group=7, complete=complete),
        principal_vectors(design, complete=complete),
        principal_vectors(design, count=5, rooted=True, complete=complete),
    ):
        assert strategy.error == pytest.approx(measured(strategy, matrix.dense()), rel=1e-6)
        assert strategy.weights_bound <= strategy.error or complete
        if not complete:
            assert strategy.error >= optimum.weights_bound


def test_separation_keeps_equal_eigenvalues_together(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload.of(
        Domain.of(6, 5), [Identity(6), Total(5)], [Total(6), Identity(5)], [Identity(6), Total(5)]
    )
    design = eigen_queries(workload.gram())
    strategy = separated(design, group=2, complete=False, gap=1e-7)
    assert strategy.ratio == pytest.approx(1, abs=1e-6)
    monkeypatch.setattr(module, "SAME", -1.0)  # split anywhere
    assert separated(design, group=2, complete=False, gap=1e-7).ratio > 1.01


def test_no_principal_vectors_leave_known_strategies() -> None:
    gram = Prefix(30).gram()
    design = eigen_queries(gram)
    alike = principal_vectors(design, count=0)
    assert alike.error == pytest.approx(np.trace(gram))  # Identity
    rooted = principal_vectors(design, count=0, rooted=True, complete=False)
    weights = np.sqrt(design.values)
    largest = (weights @ design.rows**2).max()
    assert rooted.error == pytest.approx(weights.sum() * largest)


def test_reductions_are_as_near_to_the_bound_as_the_paper_s() -> None:
    # section 5.2: within 12 % at 8192 cells; bench/eigen.py has those
    gram = AllRange(1024).gram()
    design, bound = eigen_queries(gram), svd_bound(gram)
    assert separated(design, group=16, complete=False).ratio < 1.05
    assert principal_vectors(design, count=102, complete=False).ratio < 1.12
    assert principal_vectors(design, count=32, rooted=True, complete=False).ratio < 1.04
    leading = principal_vectors(leading_queries(gram, 102))
    assert np.isnan(leading.bound)
    assert (leading.error / bound) ** 0.5 < 1.12


def test_rough_leading_queries_have_exact_errors() -> None:
    matrix = Prefix(40)
    for count, rounds in ((6, 1), (6, 4), (39, 1), (40, 2)):
        design = leading_queries(matrix.gram(), count, rounds=rounds)
        assert design.rows @ design.rows.T == pytest.approx(np.eye(len(design.rows)))
        strategy = principal_vectors(design)
        assert strategy.error == pytest.approx(measured(strategy, matrix.dense()), rel=1e-4)
    part = principal_vectors(leading_queries(matrix.gram(), 12), count=4)
    assert len(part.squares) == 4
    assert part.error == pytest.approx(measured(part, matrix.dense()), rel=1e-6)


def test_leading_queries_do_not_depend_on_anything_but_the_arguments() -> None:
    gram = AllRange(60).gram()
    one, same, other = (leading_queries(gram, 5, seed=s, rounds=1) for s in (1, 1, 2))
    assert (one.rows == same.rows).all()
    assert (one.rows != other.rows).any()


def test_a_part_of_the_eigen_queries_is_refused_where_all_are_needed() -> None:
    part = leading_queries(AllRange(20).gram(), 5)
    with pytest.raises(InvalidParameter, match="all eigen-queries"):
        separated(part)
    with pytest.raises(InvalidParameter, match="all eigen-queries"):
        principal_vectors(part, rooted=True)
    full = eigen_queries(AllRange(20).gram())
    with pytest.raises(InvalidParameter, match="one at least"):
        separated(full, group=0)
    with pytest.raises(InvalidParameter, match="negative"):
        principal_vectors(full, count=-1)
    assert separated(eigen_queries(np.zeros((3, 3)))).error == 0


@pytest.mark.parametrize(
    "matrix",
    [
        Total(5),
        Prefix(5),
        AllRange(5),
        Width(5, 2),
        Dense(np.array([[1.0, -2], [0, 0], [3, 1]])),
        Normalised(Prefix(3)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_queries_of_norm_one(matrix: QueryMatrix) -> None:
    scaled = Normalised(matrix)
    dense = matrix.dense()
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    expected = dense / np.where(norms > 0, norms, 1)
    assert scaled.dense() == pytest.approx(expected)
    assert scaled.gram() == pytest.approx(expected.T @ expected)
    assert scaled.column_norms(2) == pytest.approx((expected**2).sum(0))
    random = np.random.default_rng(0)
    x, y = random.random((dense.shape[1], 3)), random.random((dense.shape[0], 3))
    assert scaled.matvec(x) == pytest.approx(expected @ x)
    assert scaled.rmatvec(y) == pytest.approx(expected.T @ y)
    assert scaled.matvec(x[:, 0]) == pytest.approx(expected @ x[:, 0])


def test_workloads_are_scaled_factor_by_factor() -> None:
    stacked = Stacked((Identity(3), Prefix(3)), (1.0, 7.0))
    permuted = Permuted(Prefix(4), (2, 0, 3, 1))
    product = Product(Kronecker.of(stacked, permuted), 5.0)
    scaled = relative_workload(Workload(Domain.of(3, 4), (product,)))
    dense = product.queries.dense()
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    assert scaled.gram() == pytest.approx(dense.T @ dense)
    either = Product(Kronecker.of(Prefix(3), Prefix(4)), either=(0, 1))
    with pytest.raises(InvalidParameter, match="relative error"):
        relative_workload(Workload(Domain.of(3, 4), (either,)))


def test_strategies_for_relative_error_answer_small_queries_better() -> None:
    # the total has 64 times a cell's squared norm
    workload = Workload.of(Domain.of(64), [Stacked.of(Identity(64), Total(64))])
    scaled = relative_workload(workload)
    absolute = eigen_design(eigen_queries(workload.gram()))
    relative = eigen_design(eigen_queries(scaled.gram()))
    assert relative.error < 0.95 * scaled.dense_error(absolute.gram())
    assert absolute.error < 0.95 * workload.dense_error(relative.gram())
