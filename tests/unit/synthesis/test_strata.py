"""How many rows of each unit count, which strata there are, and rows drawn by their weights."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.synthesis.strata import Strata, best_strata, joined, weighed
from dpsql.workload.mixture import Mixture

#: A few units have most rows.
HEAVY = np.concatenate([np.full(3000, 2), np.full(300, 40), np.full(100, 150)])


@given(
    st.lists(st.integers(0, 5000), max_size=30),
    st.integers(1, 60),
    st.fractions(Fraction(1, 10**6), 10**6),
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
)
def test_strata_give_all_rows_their_weight(degrees, most, rho, sizes):
    found = best_strata(np.array(degrees, dtype=np.int64), most, rho, sizes)
    assert 1 <= found.rows <= most
    assert list(found.starts) == sorted(set(found.starts))
    assert len(found.weights) == len(found.starts) + 1
    assert all(start >= found.rows for start in found.starts)
    which = np.searchsorted(np.array(found.starts, dtype=int), degrees, side="left")
    kept = np.minimum(degrees, found.rows).astype(float)
    if sum(degrees) and all(np.bincount(which, degrees, len(found.weights)) > 0):
        whole = (kept * np.array(found.weights)[which]).sum()
        assert whole == pytest.approx(sum(degrees))


def test_more_budget_tells_more_strata_apart_and_where_no_unit_has_more_there_are_none():
    few, many = (best_strata(HEAVY, 20, Fraction(rho), [8, 8]) for rho in (1e-7, 1e3))
    assert not few.starts
    assert len(many.starts) >= 2
    assert best_strata(np.full(100, 16), 16, Fraction(1000), [8]) == Strata(16, (), (1.0,))
    assert best_strata(HEAVY, 20, Fraction(1000), [8], parted=False).starts == ()


def test_noise_lets_fewer_rows_of_a_unit_count():
    uneven = np.concatenate([np.full(5000, 3), np.arange(1, 101)])
    few, many = (
        best_strata(uneven, 100, rho, [8, 8], parted=False)
        for rho in (Fraction(1, 1000), Fraction(10**9))
    )
    assert few.rows == 16
    assert many == Strata(100, (), (1.0,))


def test_weighed_strata_have_as_many_rows_as_their_weights_say():
    rng = np.random.default_rng(3)  # not random
    levels = tuple(rng.dirichlet(np.ones(n), 7).T.astype(np.float32) for n in (4, 3))
    model = Mixture(levels, rng.dirichlet(np.ones(7)).astype(np.float32), 1000.0)
    found = weighed(model, (1.0, 2.0, 9.0))
    both = model.marginal(3) * np.array([1.0, 2.0, 9.0])
    np.testing.assert_allclose(found.marginal(3), both * 1000 / both.sum(), rtol=1e-4)
    np.testing.assert_allclose(joined(model.marginal(3), (1.0, 2.0, 9.0)), both.sum(axis=1))
