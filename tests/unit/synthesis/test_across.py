"""What is measured across references, and what is made of it: profiles, coarse levels, raking."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.statistics.tabulation import MEMORY_LIMIT
from dpsql.synthesis.coarsening import (
    MOST_COUNTED,
    MOST_NOISE,
    best_across,
    groups,
    kept_by_fewer,
    merged,
)
from dpsql.synthesis.profile import Profile, deal, groups_of
from dpsql.synthesis.raking import fitted, shrunk
from dpsql.synthesis.records import cross_shape


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.floats(0, 0.4))
def test_levels_of_few_rows_are_one_group(counts, share):
    found = np.array(groups(np.array(counts, dtype=float), share))
    assert sorted(set(found)) == list(range(found.max() + 1))
    alone = np.bincount(found)[found] == 1
    assert (np.array(counts)[~alone] < share * sum(counts)).all()
    assert len(set(found[~alone])) <= 1


def test_noise_of_what_is_measured_is_bounded_and_more_budget_measures_more():
    left, right = ([np.full(n, 10_000.0 / n) for n in end] for end in ((2, 8, 32), (3, 32)))
    assert best_across(left, right, Fraction(1, 1000), {50: 1000.0}) is None
    picks = []
    for rho in (Fraction(1, 1000), Fraction(1, 30), Fraction(10)):
        found = best_across(left, right, rho, {1: 10_000.0})
        sizes = [[max(g) + 1 for g in end] for end in (found.left, found.right)]
        number = found.schedule.rounds * found.schedule.per_round
        sigma = math.sqrt(number / (2 * float(rho)))
        largest = max(math.prod(cross_shape(*sizes, w)) for w in found.workloads)
        assert sigma * largest / math.sqrt(2 * math.pi) <= MOST_NOISE * 10_000 * (1 + 1e-9)
        picks.append(number)
    assert picks[0] < picks[-1]


def test_what_is_measured_can_be_counted_by_the_levels_themselves():
    """Groups are few, but the table that is read has a cell for each pair of levels."""
    wide = np.array([900.0, 800.0, *[0.01] * 8000])
    few = np.full(4, 425.0)
    for sides in (([wide, few], [wide, few]), ([wide], [few, wide])):
        found = best_across(*sides, Fraction(1), {1: 1700.0})
        for asked in found.workloads:
            shape = cross_shape([x.size for x in sides[0]], [x.size for x in sides[1]], asked)
            assert math.prod(shape) <= MOST_COUNTED
    assert best_across([wide], [wide], Fraction(1), {1: 1700.0}) is None
    assert MEMORY_LIMIT // MOST_COUNTED >= 16  # bytes of a cell, of one marginal


@given(st.integers(0, 1000))
def test_merged_tables_keep_their_sums(seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 9, (4, 3))
    found = merged(table, [(0, 1, 1, 0), (0, 0, 1)])
    assert found.shape == (2, 2)
    assert found.sum() == table.sum()
    assert found[1, 0] == table[1:3, :2].sum()
    np.testing.assert_array_equal(merged(table, [tuple(range(4)), ()]), table)


def test_fewer_rows_of_a_unit_count_where_few_units_have_many():
    degrees = np.array([1] * 5000 + [50] * 20)
    kept = kept_by_fewer(degrees, 50)
    assert sorted(kept) == [1, 2, 4, 8, 16, 32, 50]
    assert kept[50] == degrees.sum()
    counts = [np.full(6, 1000.0)]
    chosen = best_across(counts, counts, Fraction(1, 100), kept)
    assert chosen.rows < 50
    even = {n: 5000.0 * n for n in (1, 2, 4, 8)}
    assert best_across(counts, counts, Fraction(1, 100), even).rows == 8


def test_levels_are_put_together_before_all_is_noise():
    counts = [np.array([900.0, 800.0, *[5.0] * 40])]
    plenty = best_across(counts, counts, Fraction(10), {1: 1900.0})
    assert max(plenty.left[0]) == 41
    little = best_across(counts, counts, Fraction(1, 1000), {1: 1900.0})
    assert max(little.left[0]) == 2
    assert best_across(counts, counts, Fraction(1, 10**9), {1: 1900.0}) is None


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("seed", range(50))
def test_raked_tables_have_the_sums_of_both_ends(seed, noisy):
    rng = np.random.default_rng(seed)
    table = rng.normal(5, 20, (3, 4))
    rows, columns = (rng.integers(1, 50, n).astype(float) for n in (3, 4))
    rows *= columns.sum() / rows.sum()
    found = fitted(table, rows, columns, 400.0 if noisy else 0.0)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=0), columns, rtol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), rows, rtol=0.05, atol=0.5)


def test_a_table_without_noise_comes_back_and_noise_alone_says_nothing():
    table = np.array([[900.0, 100.0], [50.0, 950.0]])
    found = fitted(table, table.sum(axis=1), table.sum(axis=0))
    np.testing.assert_allclose(found, table, atol=25)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    drowned = fitted(table, rows, columns, 1e9)
    np.testing.assert_allclose(drowned, np.outer(rows, columns) / 2000, atol=1)
    assert not fitted(table, rows * 0, columns).any()


@pytest.mark.parametrize("shape", [(2, 2), (2, 8), (3, 5), (8, 8), (20, 30)])
def test_noise_alone_hardly_ever_says_that_ends_have_something_in_common(shape):
    rng = np.random.default_rng(shape)  # not random: the same tables each time
    told = sum(bool(shrunk(rng.normal(0, 30, shape), 900.0).any()) for _ in range(2000))
    assert told <= 10


@pytest.mark.parametrize("strength", [0.0, 1.0, 3.0, 10.0])
def test_taking_noise_out_is_nearer_than_leaving_it_or_saying_nothing(strength):
    rng = np.random.default_rng(7)  # not random
    lost = kept = 0.0
    truth = rng.normal(size=(8, 1)) @ rng.normal(size=(1, 6))
    truth -= truth.mean(axis=0)
    truth -= truth.mean(axis=1)[:, None]
    truth *= strength / np.abs(truth).max()
    for _ in range(300):
        noise = rng.normal(size=truth.shape)
        lost += float(((shrunk(truth + noise, 1.0) - truth) ** 2).sum())
        kept += float((noise**2).sum())
    assert lost <= 0.6 * kept
    assert lost <= 1.1 * 300 * float((truth**2).sum()) + 0.01 * kept
    np.testing.assert_allclose(shrunk(truth, 0.0), truth, atol=1e-9)


def _rows(seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (6000, 2))
    heavy = codes[:, 0] == 2
    degrees = np.where(heavy, rng.integers(5, 30, 6000), rng.integers(0, 3, 6000))
    return rng, codes, degrees


@pytest.mark.parametrize("sigma", [0.0, 20.0])
def test_degrees_go_to_parents_as_a_profile_says(sigma):
    rng, codes, degrees = _rows(5)
    starts = (1, 5)
    own = np.searchsorted(starts, degrees, side="right")
    tables = [
        np.stack([np.bincount(codes[own == g, i], minlength=3) for g in (1, 2)], axis=1)
        + rng.normal(0, sigma, (3, 2))
        for i in range(2)
    ]
    found = deal(rng.permutation(degrees), codes, Profile(tables, starts, sigma), rng)
    np.testing.assert_array_equal(np.sort(found), np.sort(degrees))
    means = [found[codes[:, 0] == a].mean() for a in range(3)]
    truth = [degrees[codes[:, 0] == a].mean() for a in range(3)]
    np.testing.assert_allclose(means, truth, atol=1.0)


def test_a_profile_of_noise_alone_gives_degrees_at_random():
    rng, codes, degrees = _rows(6)
    tables = [rng.normal(0, 50, (3, 2)) for _ in range(2)]
    found = deal(degrees, codes, Profile(tables, (1, 5), 1e6), rng)
    np.testing.assert_array_equal(np.sort(found), np.sort(degrees))
    means = [found[codes[:, 0] == a].mean() for a in range(3)]
    assert max(means) - min(means) < 2


@given(st.lists(st.integers(0, 500), min_size=5, max_size=5), st.floats(0.1, 50))
def test_groups_of_degrees_begin_at_one_and_hold_enough_parents(parents, sigma):
    starts = (1, 2, 4, 8, 16)
    histogram = np.array(parents, dtype=float)
    found = groups_of(histogram, starts, 0.0, sigma)
    assert found[0] == 1
    assert sorted(set(found)) == list(found)
    own = np.searchsorted(found, starts, side="right") - 1
    if len(found) > 1:
        assert np.bincount(own, histogram).min() >= 8 * sigma
