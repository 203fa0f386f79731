"""Query matrices and their Kronecker products against what they are when written down."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker, dense_product
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
    gram_pinv,
)


def ranges(n: int, keep: Callable[[int, int], bool]) -> np.ndarray:
    """Write the ranges down that ``keep`` takes, by start and stop, one loop a level."""
    rows = []
    for start, stop in itertools.product(range(n), range(1, n + 1)):
        if start < stop and keep(start, stop):
            rows.append([1.0 if start <= i < stop else 0.0 for i in range(n)])
    return np.array(rows)


WRITTEN = [
    (Identity(4), np.eye(4)),
    (Total(5), np.ones((1, 5))),
    (Prefix(6), ranges(6, lambda start, _: start == 0)),
    (AllRange(1), np.ones((1, 1))),
    (AllRange(7), ranges(7, lambda *_: True)),
    (Width(7, 1), np.eye(7)),
    (Width(7, 3), ranges(7, lambda start, stop: stop - start == 3)),
    (Width(7, 6), ranges(7, lambda start, stop: stop - start == 6)),
    (Width(7, 7), np.ones((1, 7))),
    (Dense(np.array([[1.0, -2, 0], [0, 3, 1]])), np.array([[1.0, -2, 0], [0, 3, 1]])),
    (Permuted(Prefix(3), (2, 0, 1)), np.array([[0.0, 0, 1], [1, 0, 1], [1, 1, 1]])),
    (
        Stacked((Identity(3), Total(3), Dense(-np.eye(3))), (1, -2, 0.5)),
        np.concatenate([np.eye(3), np.full((1, 3), -2), -np.eye(3) / 2]),
    ),
]


def name(case: object) -> str:
    return repr(case)[:40] if isinstance(case, QueryMatrix) else ""


@pytest.mark.parametrize(("matrix", "written"), WRITTEN, ids=name)
def test_a_matrix_is_what_it_says(matrix: QueryMatrix, written: np.ndarray) -> None:
    assert matrix.shape == written.shape
    np.testing.assert_array_equal(matrix.dense(), written)
    np.testing.assert_allclose(matrix.gram(), written.T @ written, atol=1e-12)
    np.testing.assert_allclose(matrix.column_norms(1), abs(written).sum(0))
    np.testing.assert_allclose(matrix.column_norms(2), (written**2).sum(0))
    assert matrix.sensitivity(1) == pytest.approx(abs(written).sum(0).max())
    assert matrix.sensitivity(2) == pytest.approx((written**2).sum(0).max() ** 0.5)


@pytest.mark.parametrize(("matrix", "written"), WRITTEN, ids=name)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_products_go_along_any_axis(matrix: QueryMatrix, written: np.ndarray, axis: int) -> None:
    random = np.random.default_rng(3)
    for product, rows, by in (
        (matrix.matvec, written.shape[1], written),
        (matrix.rmatvec, written.shape[0], written.T),
    ):
        shape = [2, 3, 4]
        shape[axis] = rows
        table = random.normal(size=shape)
        expected = np.moveaxis(np.tensordot(by, table, axes=(1, axis)), 0, axis)
        np.testing.assert_allclose(product(table, axis), expected, atol=1e-12)


@pytest.mark.parametrize(("matrix", "written"), WRITTEN, ids=name)
def test_pseudo_inverses(matrix: QueryMatrix, written: np.ndarray) -> None:
    inverse, expected = matrix.pinv(), np.linalg.pinv(written)
    assert inverse.shape == expected.shape
    np.testing.assert_allclose(inverse.dense(), expected, atol=1e-10)
    random = np.random.default_rng(4)
    y, x = random.normal(size=written.shape[0]), random.normal(size=written.shape[1])
    np.testing.assert_allclose(inverse.matvec(y), expected @ y, atol=1e-10)
    np.testing.assert_allclose(inverse.rmatvec(x), expected.T @ x, atol=1e-10)


def test_the_gram_matrix_of_many_ranges_takes_no_rows() -> None:
    # 8 million rows: writing them down is refused.
    ranges_4096 = AllRange(4096)
    gram = ranges_4096.gram()
    assert gram[0, 0] == 4096
    assert gram[0, 4095] == 1
    assert gram[2047, 2048] == 2048 * 2048
    assert ranges_4096.sensitivity(1) == 2048 * 2049
    with pytest.raises(InvalidParameter, match="too large"):
        ranges_4096.dense()


def test_a_gram_matrix_of_deficient_rank_is_inverted_on_its_row_space() -> None:
    gram = Width(9, 4).gram()
    np.testing.assert_allclose(gram_pinv(gram), np.linalg.pinv(gram, hermitian=True), atol=1e-10)


factors = st.one_of(
    st.integers(1, 4).map(Identity),
    st.integers(1, 4).map(Total),
    st.integers(1, 4).map(Prefix),
    st.integers(1, 3).map(AllRange),
    st.integers(2, 4).map(lambda n: Width(n, 2)),
    st.integers(2, 4).map(lambda n: Permuted(Prefix(n), tuple(reversed(range(n))))),
    st.integers(1, 3).map(lambda n: Stacked((Identity(n), Total(n)), (1.0, 0.5))),
    st.integers(0, 99).map(lambda s: Dense(np.random.default_rng(s).integers(-2, 3, (3, 2)) * 1.0)),
)


@given(st.lists(factors, min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_a_kronecker_product_is_what_numpy_makes(chosen: list[QueryMatrix], seed: int) -> None:
    product = Kronecker(tuple(chosen))
    written = np.ones((1, 1))
    for factor in chosen:
        written = np.kron(written, factor.dense())
    random = np.random.default_rng(seed)
    x, y = random.normal(size=written.shape[1]), random.normal(size=written.shape[0])
    assert product.shape == written.shape
    np.testing.assert_allclose(product.dense(), written)
    np.testing.assert_allclose(product.matvec(x).ravel(), written @ x, atol=1e-9)
    np.testing.assert_allclose(product.rmatvec(y).ravel(), written.T @ y, atol=1e-9)
    np.testing.assert_allclose(product.matvec(x.reshape(product.columns)), product.matvec(x))
    np.testing.assert_allclose(dense_product(product.grams()), written.T @ written, atol=1e-9)
    np.testing.assert_allclose(
        product.pinv().matvec(y).ravel(), np.linalg.pinv(written) @ y, atol=1e-6
    )
    assert product.sensitivity(1) == pytest.approx(abs(written).sum(0).max())
    assert product.sensitivity(2) == pytest.approx((written**2).sum(0).max() ** 0.5)


def test_a_large_product_is_multiplied_without_being_written_down() -> None:
    # 625 million cells times 10^9 queries when written down.
    product = Kronecker.of(Total(25), Prefix(40), Total(25), AllRange(25))
    table = np.arange(25 * 40 * 25 * 25, dtype=np.float64).reshape(25, 40, 25, 25)
    answers = product.matvec(table)
    assert answers.shape == (1, 40, 1, 325)
    assert answers[0, 7, 0, 1] == table[:, :8, :, :2].sum()


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="does not fit"):
        Prefix(3).matvec(np.ones(4))
    with pytest.raises(InvalidParameter, match="does not fit"):
        AllRange(3).rmatvec(np.ones((6, 2)), axis=1)
    with pytest.raises(InvalidParameter, match="does not fit"):
        Kronecker.of(Identity(2), Identity(3)).matvec(np.ones(5))
    for refused in (
        lambda: Width(3, 4),
        lambda: Width(3, 0),
        lambda: Permuted(Prefix(3), (0, 1, 1)),
        lambda: Dense(np.ones((0, 3))),
        lambda: Dense(np.array([[np.nan]])),
        lambda: Stacked((), ()),
        lambda: Stacked.of(Identity(2), Total(3)),
        lambda: Kronecker(()),
        lambda: Domain(("a",), (1, 2)),
        lambda: Domain(("a", "a"), (1, 2)),
        lambda: Domain.of(0),
        lambda: Domain.of(2).index("b"),
    ):
        with pytest.raises(InvalidParameter):
            refused()


def test_a_domain_counts_its_cells() -> None:
    domain = Domain(("sex", "age", "flag"), (2, 115, 1))
    assert domain.cells == 230
    assert domain.index("age") == 1
    assert domain.project(("flag", "age")) == Domain(("flag", "age"), (1, 115))
