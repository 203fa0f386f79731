"""Non-negative and integral tables."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsql.errors import InvalidParameter
from dpsql.workload.postprocess import clip_and_rescale, project_simplex, round_to_total

tables = arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.floats(-1e4, 1e4)
)
totals = st.floats(0.01, 1e4)


@given(tables, totals)
@example(np.array([[2.2e-313]]), 1.0)
@example(np.array([[5e-324, 0.0], [-1.0, 5e-324]]), 1e4)
def test_clipped_tables_have_the_total(table, total):
    found = clip_and_rescale(table, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)


@given(tables, totals)
def test_the_projection_satisfies_the_conditions_of_optimality(table, total):
    found = project_simplex(table, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, rel=1e-6, abs=1e-6)
    moved = table - found
    positive = moved[found > 1e-6]
    if positive.size:
        assert positive.max() - positive.min() < 1e-6
        assert (moved <= positive.max() + 1e-6).all()


def test_a_distribution_is_its_own_projection():
    table = np.array([[0.0, 3.0], [5.0, 2.0]])
    np.testing.assert_allclose(project_simplex(table, 10.0), table)
    assert not project_simplex(table, 0.0).any()
    assert not project_simplex(table, -3.0).any()
    np.testing.assert_allclose(clip_and_rescale(-table, 8.0), np.full((2, 2), 2.0))


@given(
    arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.floats(0, 1e4))
)
def test_rounding_keeps_the_total_and_moves_less_than_one(table):
    found = round_to_total(table)
    assert found.dtype == np.int64
    assert found.sum() == round(float(table.sum()))
    assert np.abs(found - table).max() <= 1
    assert found.min() >= 0


def test_negative_tables_are_not_rounded():
    with pytest.raises(InvalidParameter):
        round_to_total(np.array([1.0, -0.5]))
