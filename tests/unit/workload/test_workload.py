"""Unions of products: answers, Gram matrices, errors and the SVD bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.workload.domain import Domain
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
    gram_pinv,
)
from dpsql.workload.svd_bound import joint_spectrum, svd_bound, workload_bound
from dpsql.workload.workload import Product, Workload

SIGMA = 4.224679  # analytic Gaussian mechanism at epsilon 1, delta 1e-6, sensitivity 1
LAPLACE = 2**0.5
CPS = (50, 100, 7, 4, 2)
ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)


def written(workload: Workload) -> np.ndarray:
    """Write the workload down, query by query, from the predicates."""
    rows = []
    for product in workload.products:
        dense = [factor.dense() for factor in product.queries.factors]
        for chosen in itertools.product(*(range(len(m)) for m in dense)):
            row = np.empty(workload.domain.sizes)
            for cell in itertools.product(*map(range, workload.domain.sizes)):
                values = [dense[i][chosen[i], t] for i, t in enumerate(cell)]
                rest = np.prod([v for i, v in enumerate(values) if i not in product.either])
                some = any(values[i] for i in product.either) or not product.either
                row[cell] = product.weight * rest * some
            rows.append(row.ravel())
    return np.array(rows)


def marginals(
    sizes: tuple[int, ...], subsets: list[tuple[int, ...]], prefixes: set[int] | None = None
) -> Workload:
    known: dict[tuple[int, bool], QueryMatrix] = {}
    for i, n in enumerate(sizes):
        known[i, True] = Prefix(n) if i in (prefixes or ()) else Identity(n)
        known[i, False] = Total(n)
    return Workload.of(
        Domain.of(*sizes),
        *([known[i, i in subset] for i in range(len(sizes))] for subset in subsets),
    )


def up_to(d: int, *orders: int) -> list[tuple[int, ...]]:
    return [s for k in orders for s in itertools.combinations(range(d), k)]


def loans(prefixes: bool) -> Workload:
    small = [
        s for s in up_to(12, *range(13)) if np.prod([LOANS[i] for i in s], dtype=float) <= 5000
    ]
    return marginals(LOANS, small, {0, 1, 2, 3} if prefixes else None)


factor_of = {
    2: [Identity(2), Total(2), Prefix(2), Stacked((Identity(2), Total(2)), (1.0, -0.5))],
    3: [Identity(3), Total(3), Prefix(3), AllRange(3), Dense(np.array([[1.0, 0, 1]]))],
}
products = st.builds(
    lambda a, b, c, weight, either: Product(
        Kronecker.of(a, b, c), weight, () if isinstance(a, Stacked) else either
    ),
    st.sampled_from(factor_of[2]),
    st.sampled_from(factor_of[3]),
    st.sampled_from(factor_of[2][:3]),
    st.sampled_from([1.0, 2.0, -0.5]),
    st.sampled_from([(), (), (0, 1), (1, 2), (0, 1, 2), (1,)]),
)
workloads = st.lists(products, min_size=1, max_size=3).map(
    lambda chosen: Workload(Domain.of(2, 3, 2), tuple(chosen))
)


@given(workloads, st.integers(0, 2**32 - 1))
def test_a_workload_is_the_union_of_its_products(workload: Workload, seed: int) -> None:
    matrix = written(workload)
    assert workload.queries == len(matrix)
    np.testing.assert_allclose(workload.gram(), matrix.T @ matrix, atol=1e-9)
    assert workload.trace == pytest.approx((matrix**2).sum())
    table = np.random.default_rng(seed).normal(size=(2, 3, 2))
    answers = np.concatenate([answer.ravel() for answer in workload.matvec(table)])
    np.testing.assert_allclose(answers, matrix @ table.ravel(), atol=1e-9)
    if not any(product.either for product in workload.products):
        assert workload.sensitivity(1) == pytest.approx(abs(matrix).sum(0).max())
        assert workload.sensitivity(2) == pytest.approx((matrix**2).sum(0).max() ** 0.5)


@given(workloads)
def test_errors_are_those_of_written_matrices(workload: Workload) -> None:
    matrix = written(workload)
    identity_total = Stacked((Identity(3), Total(3)), (1.0, 0.7))
    strategy = Kronecker.of(Prefix(2), identity_total, Identity(2))
    dense = strategy.dense()
    expected = (matrix @ np.linalg.pinv(dense)) ** 2
    for order, norm in ((1, abs(dense).sum(0).max()), (2, (dense**2).sum(0).max() ** 0.5)):
        found = workload.kronecker_error(strategy, order)
        assert found == pytest.approx(norm**2 * expected.sum())
    assert workload.dense_error(dense.T @ dense) == pytest.approx(expected.sum())


@given(workloads)
def test_the_bound_is_that_of_the_written_gram_matrix(workload: Workload) -> None:
    values = np.linalg.svd(written(workload), compute_uv=False)
    bound = workload_bound(workload)
    assert bound.exact
    assert bound.value == pytest.approx(values.sum() ** 2 / 12, rel=1e-6)


def test_a_strategy_that_does_not_support_the_workload_is_refused() -> None:
    workload = Workload.of(Domain.of(3, 2), [Identity(3), Total(2)], [Total(3), Identity(2)])
    with pytest.raises(InvalidParameter, match="support"):
        workload.kronecker_error(Kronecker.of(Identity(3), Total(2)), 2)
    with pytest.raises(InvalidParameter, match="support"):
        workload.dense_error(np.kron(np.eye(3), np.ones((2, 2))))
    # A strategy of deficient rank that does support it has the error of its pseudo-inverse.
    gram = workload.gram()
    assert np.linalg.matrix_rank(gram) == 4
    assert workload.dense_error(gram) == pytest.approx(4)
    np.testing.assert_allclose(gram @ gram_pinv(gram) @ gram, gram, atol=1e-9)


def test_errors_of_identity_and_of_the_workload_itself() -> None:
    # Columns "identity" and "workload" of the published tables; CPS, Adult and Loans.
    both = [Stacked.of(Identity(n), Total(n)) for n in CPS]
    cps = Workload.of(Domain.of(*CPS), both)
    prefix = Workload.of(Domain.of(*CPS), [Prefix(50), Prefix(100), *both[2:]])
    adult = marginals(ADULT, up_to(14, 0, 1, 2, 3))
    adult_prefix = marginals(ADULT, up_to(14, 2), {0, 1, 2, 3, 4})
    for workload, queries, identity, laplace, gaussian in (
        (cps, 618_120, 5.38, 45.25, 23.90),
        (prefix, 600_000, 98.06, 56_568.5, 844.9),
        (adult, 21_043_262, 5.35e6, 664.68, 91.59),
        (adult_prefix, 148_137, 4.76e8, 138_603, 1_322.6),
        (loans(False), 279_751, 3.33e6, 265.87, 57.92),
        (loans(True), 279_751, 1.53e7, 11_013.9, 372.83),
    ):
        assert workload.queries == queries
        assert workload.rmse(workload.trace, LAPLACE) == pytest.approx(identity, rel=4e-3)
        assert LAPLACE * workload.sensitivity(1) == pytest.approx(laplace, rel=2e-4)
        assert SIGMA * workload.sensitivity(2) == pytest.approx(gaussian, rel=2e-4)


def test_the_sensitivity_is_that_of_no_single_level_that_leads_everywhere() -> None:
    # Levels 0 and 2 lead in one product each; the sum of both norms is largest in between.
    rising = Dense(np.array([[0.0, 2.5, 4]]))
    falling = Permuted(rising, (2, 1, 0))
    workload = Workload.of(Domain.of(3, 2), [rising, Prefix(2)], [falling, Identity(2)])
    matrix = written(workload)
    assert workload.sensitivity(1) == abs(matrix).sum(0).max() == 8
    assert workload.sensitivity(2) == pytest.approx((matrix**2).sum(0).max() ** 0.5)


def test_the_bound_of_marginals_is_the_published_optimum() -> None:
    # The optimum of marginals in closed form equals the SVD bound; no Gram matrix fits here.
    for workload, best in (
        (Workload.of(Domain.of(*CPS), [Stacked.of(Identity(n), Total(n)) for n in CPS]), 7.852),
        (marginals(ADULT, up_to(14, 0, 1, 2, 3)), 45.056),
        (loans(False), 34.670),
    ):
        bound = workload_bound(workload)
        assert bound.exact
        assert workload.rmse(bound.value, SIGMA) == pytest.approx(best, abs=6e-4)
    for sizes, orders, best in (
        (CPS, (1,), 1.7439),
        (CPS, (2,), 2.0346),
        (CPS, (3,), 2.0477),
        (ADULT, (2,), 6.3587),
        (LOANS, (1, 2, 3, 0), 8.8756),
    ):
        workload = marginals(sizes, up_to(len(sizes), *orders))
        assert workload.rmse(workload_bound(workload).value) == pytest.approx(best, abs=6e-5)


def test_the_bound_of_a_product_with_prefixes() -> None:
    both = [Stacked.of(Identity(n), Total(n)) for n in CPS[2:]]
    workload = Workload.of(Domain.of(*CPS), [Prefix(50), Prefix(100), *both])
    bound = workload_bound(workload)
    assert bound.exact
    assert workload.rmse(bound.value, SIGMA) == pytest.approx(27.849, abs=6e-4)


def test_a_basis_of_some_attributes_makes_blocks_of_the_others() -> None:
    workload = Workload.of(
        Domain.of(6, 3, 2),
        [Prefix(6), Identity(3), Total(2)],
        [Total(6), Identity(3), Identity(2)],
        [AllRange(6), Total(3), Total(2)],
    )
    values = np.maximum(np.linalg.eigvalsh(workload.gram()), 0)
    found = workload_bound(workload, most_cells=35)  # of 36 cells
    assert found.exact
    assert found.value == pytest.approx(np.sqrt(values).sum() ** 2 / 36, rel=1e-6)


def test_where_no_basis_is_common_the_bound_stays_below() -> None:
    workload = Workload.of(
        Domain.of(6, 5), [Prefix(6), Identity(5)], [Total(6), Prefix(5)], [AllRange(6), Total(5)]
    )
    assert joint_spectrum([Prefix(6).gram(), Total(6).gram()]) is None
    exact = workload_bound(workload)
    assert exact.exact
    below = workload_bound(workload, most_cells=29)
    assert not below.exact
    assert 0.3 * exact.value < below.value < exact.value
    disjunction = Workload(
        Domain.of(6, 5), (Product(Kronecker.of(Prefix(6), Identity(5)), either=(0, 1)),)
    )
    assert workload_bound(disjunction, most_cells=29).value == 0
    assert not workload_bound(disjunction, most_cells=29).exact


def test_a_common_basis_is_found_with_multiplicities() -> None:
    n = 7
    found = joint_spectrum([np.eye(n), np.ones((n, n)), 2.0 * np.eye(n)])
    assert found is not None
    values, counts = found
    assert sorted(zip(counts, *values.T.round(9), strict=True)) == [(1, 1, n, 2), (n - 1, 1, 0, 2)]


def test_one_dimensional_bounds_are_the_published_ones() -> None:
    # HDMM, Tables 4 and 5, column SVDB, times the noise's standard deviation.
    for n, laplace, gaussian in ((64, 3.22, 9.62), (256, 4.07, 12.15)):
        unit = (svd_bound(AllRange(n).gram()) / AllRange(n).shape[0]) ** 0.5
        assert LAPLACE * unit == pytest.approx(laplace, abs=6e-3)
        assert SIGMA * unit == pytest.approx(gaussian, abs=6e-3)


def test_wrong_workloads_are_refused() -> None:
    identity = Kronecker.of(Identity(2))
    for refused in (
        lambda: Workload(Domain.of(2), ()),
        lambda: Workload.of(Domain.of(2), [Identity(3)]),
        lambda: Workload.of(Domain.of(2, 2), [Identity(2)]),
        lambda: Product(identity, 0),
        lambda: Product(identity, float("nan")),
        lambda: Product(identity, either=(1,)),
        lambda: Product(identity, either=(0, 0)),
        lambda: Product(Kronecker.of(Dense(np.full((1, 2), 0.5))), either=(0,)),
        lambda: Workload(Domain.of(2), (Product(identity, either=(0,)),)).sensitivity(1),
    ):
        with pytest.raises(InvalidParameter):
            refused()
