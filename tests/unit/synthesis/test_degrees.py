"""Degrees that follow a law and fit the links of types."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.synthesis.degree_law import (
    LARGEST,
    LAYOUTS,
    draw_degrees,
    edges,
    exceed,
    fitting_edges,
    number_of_children,
    reaches,
    settled,
)
from dpsql.synthesis.degrees import assign, follow


@st.composite
def typed(draw):
    types = draw(st.integers(1, 4))
    of = np.array(draw(st.lists(st.integers(0, types - 1), max_size=20)), dtype=np.int64)
    most = draw(st.integers(1, 6))
    counts = np.bincount(of, minlength=types)
    sums = np.array([draw(st.integers(0, int(c) * most)) for c in counts], dtype=np.int64)
    wanted = np.array(
        draw(st.lists(st.integers(0, 9), min_size=of.size, max_size=of.size)), dtype=np.int64
    )
    return of, sums, wanted, most


@given(typed(), st.integers(0, 5))
def test_degrees_add_up_to_the_links_of_each_type(given_types, seed):
    of, sums, wanted, most = given_types
    found = follow(of, sums, wanted, most, np.random.default_rng(seed))
    assert found.min(initial=0) >= 0
    assert found.max(initial=0) <= most
    np.testing.assert_array_equal(np.bincount(of, weights=found, minlength=sums.size), sums)


@given(typed())
def test_degrees_that_fit_are_kept(given_types):
    of, _, wanted, _ = given_types
    sums = np.bincount(of, weights=wanted, minlength=4).astype(np.int64)
    found = follow(of, sums, wanted, 9, np.random.default_rng(1))
    linked = sums[of] > 0
    np.testing.assert_array_equal(found[linked], wanted[linked])


def test_more_links_than_rows_hold_are_refused():
    with pytest.raises(InvalidParameter, match="more links than its rows hold"):
        follow(np.zeros(2, int), np.array([5]), np.ones(2, int), 2, np.random.default_rng(1))


@given(st.integers(1, 10_000))
def test_bins_begin_at_one_and_reach_the_bound(most):
    found = edges(most)
    assert found[0] == 1
    assert found[-1] <= most
    assert most < max(found[-1] + 1, found[-1] * 5 // 4) or found[-1] == most
    assert all(a < b for a, b in pairwise(found))
    assert len(found) <= 16 + 30


def test_a_histogram_without_noise_comes_back():
    starts = edges(3)
    found = draw_degrees(np.array([5.0, 0.0, 2.0]), starts, 3, 10, np.random.default_rng(2))
    np.testing.assert_array_equal(np.bincount(found, minlength=4), [3, 5, 0, 2])


def test_more_parents_with_children_than_parents_leave_none_without():
    found = draw_degrees(np.array([30.0]), edges(1), 1, 10, np.random.default_rng(2))
    assert (found == 1).all()


def test_degrees_of_a_bin_are_spread_over_it():
    starts = edges(100)
    histogram = np.zeros(len(starts))
    histogram[-1] = 1000.0
    found = draw_degrees(histogram, starts, 100, 1000, np.random.default_rng(3))
    assert found.min() == starts[-1]
    assert found.max() == 100


def test_no_parents_have_no_degrees():
    assert draw_degrees(np.array([3.0]), edges(1), 1, 0, np.random.default_rng(1)).size == 0


def test_a_bound_below_one_is_refused():
    with pytest.raises(InvalidParameter, match="allows no link"):
        edges(0)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 3))
def test_all_degrees_are_given_out(degrees, seed):
    rng = np.random.default_rng(seed)
    given_out = assign(np.array(degrees, dtype=np.int64), rng.random(len(degrees)), rng)
    np.testing.assert_array_equal(np.sort(given_out), np.sort(degrees))


def test_rows_that_should_have_more_get_more():
    rng = np.random.default_rng(4)
    expected = np.repeat([1.0, 3.0], 5000)
    found = assign(rng.integers(0, 9, 10_000), expected, rng)
    assert found[5000:].mean() > 1.5 * found[:5000].mean()


def noisy(law, parents, sigma, seed):
    """Bins, a noisy histogram of degrees drawn by a law, and the degrees."""
    rng = np.random.default_rng(seed)
    true = law(rng, parents)
    starts = fitting_edges(LARGEST, parents, sigma)
    counts = np.bincount(np.searchsorted(starts, true, side="right") - 1, minlength=len(starts))
    return starts, counts + rng.normal(0, sigma, len(starts)), true


@pytest.mark.parametrize("seed", range(20))
def test_noise_in_empty_bins_makes_no_huge_degrees(seed):
    starts, histogram, true = noisy(lambda r, n: r.binomial(60, 0.25, n) + 1, 10_000, 20.0, seed)
    found = draw_degrees(histogram, starts, LARGEST, 10_000, np.random.default_rng(seed), 20.0)
    assert found.max() <= 128
    assert abs(int(found.sum()) - int(true.sum())) < 0.05 * true.sum()


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_no_parent(seed):
    starts = fitting_edges(LARGEST, 1000, 10.0)
    histogram = np.random.default_rng(seed).normal(0, 10, len(starts))
    assert not settled(histogram, 10.0, starts).any()


@pytest.mark.parametrize("seed", range(10))
def test_most_children_of_heavy_parents_are_kept(seed):
    def pareto(rng, parents):
        return np.minimum(np.floor(rng.random(parents) ** (-1 / 1.3)), 5000).astype(np.int64)

    starts, histogram, true = noisy(pareto, 20_000, 15.0, seed)
    found = draw_degrees(histogram, starts, LARGEST, 20_000, np.random.default_rng(seed), 15.0)
    cut = np.minimum(true, 20).sum()
    assert found.sum() > (cut + true.sum()) / 2 - 0.1 * true.sum()
    assert found.sum() < 1.6 * true.sum()


def test_few_parents_have_coarse_bins():
    assert len(fitting_edges(LARGEST, 100_000, 10.0)) > 60
    assert fitting_edges(LARGEST, 100, 10.0) == edges(LARGEST, LAYOUTS[-1])
    assert fitting_edges(1, 100, 10.0) == (1,)


def test_rows_beyond_the_bound_are_added_where_units_are_parents():
    degrees = np.array([1, 2, 30])
    assert number_of_children(13.2, degrees, 10, alone=True, more=True) == 13 + 20
    assert number_of_children(13.2, degrees, 10, alone=True, more=False) == 13
    assert number_of_children(13.2, degrees, 10, alone=False, more=True) == 33
    assert number_of_children(20.0, degrees, 10, alone=False, more=False) == 20
    assert number_of_children(-5.0, degrees[:0], 10, alone=True, more=True) == 0


def test_noise_alone_makes_no_children():
    """Parents with few children each, and noise that is a quarter of all of them."""
    for truth in ({1: 1600, 4: 400}, {4: 600}):
        starts = (1, *(4**n for n in range(1, 10)))
        rng = np.random.default_rng(20261123)
        exact = np.array([truth.get(start, 0) for start in starts], dtype=float)
        children = sum(degree * number for degree, number in truth.items())
        for _ in range(2000):
            noisy = exact + rng.normal(0, 64, exact.size)
            assert not reaches(noisy, starts, 64.0, 4)
            assert not exceed(noisy, starts, 64.0, float(children), 30.0)


def test_many_children_of_few_parents_are_seen():
    starts = (1, 2, 4, 8, 16, 32, 64, 128)
    rng = np.random.default_rng(20261123)
    exact = np.array([5000, 2500, 1200, 600, 300, 150, 80, 40], dtype=float)
    for _ in range(200):
        noisy = exact + rng.normal(0, 4, exact.size)
        assert reaches(noisy, starts, 4.0, 64)
        assert exceed(noisy, starts, 4.0, 30_000.0, 100.0)
        assert not exceed(noisy, starts, 4.0, 41_000.0, 100.0)


def test_only_parents_that_stand_out_beyond_the_bound_add_rows():
    starts = edges(LARGEST)
    histogram = np.zeros(len(starts))
    histogram[[0, 30]] = 1000.0
    assert reaches(histogram, starts, 10.0, starts[30] - 1)
    assert not reaches(histogram, starts, 10.0, starts[30])
    assert not reaches(histogram, starts, 500.0, 4)
    assert not reaches(np.zeros(len(starts)), starts, 1.0, 0)


@pytest.mark.parametrize(("deviations", "there"), [(5.5, False), (6.5, True)])
def test_noise_alone_makes_no_large_degrees(deviations: float, there: bool) -> None:
    """Some bin is 5 deviations off in one of 20,000 histograms, 6 in one of five million."""
    histogram = np.zeros(60)
    histogram[:3] = 900, 400, 100
    histogram[50] = deviations * 7
    assert (settled(histogram, 7.0, tuple(range(1, 61)))[50] > 0) == there
