"""GReM-MLE and lazy updating against dense least squares."""

import math
from functools import reduce

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import decomp
from dpsql.workload.grem import Residuals, grem_ls
from dpsql.workload.lazy import LazyMarginals
from dpsql.workload.marginals import attributes_of, downward_closure, k_way, shape
from dpsql.workload.residual_bases import Dense, subtraction

SIZES = (3, 2, 4)
BASES = subtraction(SIZES)
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def kron(matrices):
    return reduce(np.kron, matrices, np.eye(1))


def dense_marginal(mask):
    return kron([np.eye(n) if mask >> i & 1 else np.ones((1, n)) for i, n in enumerate(SIZES)])


def dense_sub(n):
    return np.hstack([-np.ones((n - 1, 1)), np.eye(n - 1)])


def dense_residual(mask):
    return kron([dense_sub(n) if mask >> i & 1 else np.ones((1, n)) for i, n in enumerate(SIZES)])


def covariance(mask):
    return kron([dense_sub(SIZES[i]) @ dense_sub(SIZES[i]).T for i in attributes_of(mask)])


def likeliest(measurements):
    """Minimise the misfit over all data vectors; the shortest of equals leaves the rest zero.

    Each measurement is (matrix, value, covariance).
    """
    rows, values = [], []
    for matrix, value, spread in measurements:
        root = np.linalg.cholesky(np.linalg.inv(spread)).T
        rows.append(root @ matrix)
        values.append(root @ value)
    return np.linalg.pinv(np.vstack(rows)) @ np.concatenate(values)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def test_residuals_measured_repeatedly_against_dense_likelihood(rng):
    found = Residuals(BASES)
    measurements = []
    for mask, variance in [(0, 2.0), (1, 3.0), (4, 1.0), (5, 0.5), (5, 4.0), (1, 0.7), (3, 9.0)]:
        value = rng.normal(size=tuple(SIZES[i] - 1 for i in attributes_of(mask))) * 10
        found.add(mask, value, variance)
        measurements.append((dense_residual(mask), value.reshape(-1), variance * covariance(mask)))
    x = likeliest(measurements)
    for mask, table in found.marginals(range(8)):
        expected = (dense_marginal(mask) @ x).reshape(shape(SIZES, mask))
        np.testing.assert_allclose(table, expected, **CLOSE)


def test_marginals_and_residuals_together_against_dense_likelihood(rng):
    found = Residuals(BASES)
    measurements = []
    for mask, variance in [(3, 2.0), (5, 0.3), (5, 1.0), (4, 5.0)]:
        table = rng.normal(size=shape(SIZES, mask)) * 10
        found.add_marginal(mask, table, variance)
        measurements.append(
            (dense_marginal(mask), table.reshape(-1), variance * np.eye(table.size))
        )
    value = rng.normal(size=(1, 3))
    found.add(6, value, 0.5)
    measurements.append((dense_residual(6), value.reshape(-1), 0.5 * covariance(6)))
    x = likeliest(measurements)
    for mask, table in found.marginals(range(8)):
        expected = (dense_marginal(mask) @ x).reshape(shape(SIZES, mask))
        np.testing.assert_allclose(table, expected, **CLOSE)


def test_the_factor_of_summed_axes_matters(rng):
    """A mutant that forgets ``prod n_i`` gives other tables: the test above can fail."""
    right, wrong = Residuals(BASES), Residuals(BASES)
    for mask, variance in [(3, 2.0), (5, 0.3)]:
        table = rng.normal(size=shape(SIZES, mask)) * 10
        right.add_marginal(mask, table, variance)
        for below in downward_closure([mask]):
            wrong.add(below, decomp(table, mask, below, BASES), variance)
    difference = dict(right.marginals([1]))[1] - dict(wrong.marginals([1]))[1]
    assert np.abs(difference).max() > 0.01


def test_least_squares_of_noiseless_marginals_is_exact(rng):
    data = rng.integers(0, 20, SIZES).astype(float)
    tables = {3: data.sum(axis=2), 6: data.sum(axis=0)}
    found = grem_ls(tables, {3: 1.0, 6: 7.0}, BASES)
    for mask, table in found.marginals([1, 2, 3, 4, 6]):
        outside = tuple(i for i in range(3) if not mask >> i & 1)
        np.testing.assert_allclose(table, data.sum(axis=outside), **CLOSE)
    assert 5 not in found.values


def test_measurements_that_do_not_fit_are_refused():
    found = Residuals(BASES)
    with pytest.raises(InvalidParameter):
        found.add(1, np.zeros(3), 1.0)
    for variance in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidParameter):
            found.add(1, np.zeros(2), variance)
    with pytest.raises(InvalidParameter):
        found.add_marginal(3, np.zeros((2, 3)), 1.0)
    hilly = (Dense(np.eye(2, 3, dtype=int) * 5 - 2 * np.eye(2, 3, 1, dtype=int), 4), *BASES[1:])
    with pytest.raises(InvalidParameter):
        Residuals(hilly).add_marginal(3, np.zeros((3, 2)), 1.0)


def test_an_attribute_of_one_level_changes_nothing(rng):
    bases = subtraction((3, 1, 4))
    table = rng.normal(size=(3, 1, 4))
    found = grem_ls({7: table}, {7: 1.0}, bases)
    assert set(found.values) == {0, 1, 4, 5}
    np.testing.assert_allclose(dict(found.marginals([7]))[7], table, **CLOSE)


HILLY = Dense(np.eye(2, 3, dtype=int) * 5 - 2 * np.eye(2, 3, 1, dtype=int), 4)


@pytest.mark.parametrize(
    "bases", [subtraction((3, 2, 4, 2)), (HILLY, *subtraction((2, 4, 2)))], ids=["plain", "mixed"]
)
def test_lazy_marginals_equal_full_reconstruction(rng, bases):
    sizes = (3, 2, 4, 2)
    found = Residuals(bases)
    lazy = LazyMarginals(found)
    wanted = [0, *k_way(4, 1), *k_way(4, 2), *k_way(4, 3)]
    for _ in range(60):
        changes = {}
        for mask in rng.choice(wanted, size=rng.integers(1, 4), replace=False).tolist():
            value = rng.normal(size=tuple(sizes[i] - 1 for i in attributes_of(mask)))
            changes[mask] = found.add(mask, value, float(rng.uniform(0.1, 5)))
        lazy.changed(changes)
        for mask in rng.choice(wanted, size=3).tolist():
            ((_, expected),) = found.marginals([mask])
            np.testing.assert_allclose(lazy[mask], expected, **CLOSE)
        if HILLY in bases:
            continue
        norms = lazy.bounds(wanted)
        for mask, table in found.marginals(wanted):
            assert norms[mask][0] <= np.abs(table).sum() * (1 + 1e-9)
            assert np.abs(table).sum() <= norms[mask][1] * (1 + 1e-9)
            assert norms[mask][0] == pytest.approx(np.linalg.norm(table))


def test_lazy_marginals_touch_only_what_contains_the_change(rng):
    found = Residuals(BASES)
    found.add(0, np.array(10.0), 1.0)
    lazy = LazyMarginals(found)
    kept = lazy[3]
    assert lazy.held() == 6
    lazy.changed({4: found.add(4, rng.normal(size=3), 1.0)})
    assert lazy[3] is kept
    lazy.drop([3])
    assert lazy.held() == 0
    np.testing.assert_allclose(lazy[3], kept)
