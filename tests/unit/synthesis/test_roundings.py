"""Algorithms 6, 7 and 8, systematic and controlled rounding: sums, boxes and laws."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsql.synthesis.controlled as controlled
from dpsql.errors import InvalidParameter
from dpsql.synthesis.controlled import UNIT, controlled_rounding
from dpsql.synthesis.rounding import categorical, exponential, randomised, systematic

B = np.array([[1.0, 0.5], [0.0, 0.5]])


def law(total):
    """Exact probabilities of the sets that Algorithm 6 draws: successive sampling."""
    weights = {k: Fraction(v) for k, v in enumerate(B.reshape(-1)) if v}
    found = {}
    for order in itertools.permutations(weights, total):
        p, rest = Fraction(1), sum(weights.values())
        for k in order:
            p *= weights[k] / rest
            rest -= weights[k]
        key = frozenset(order)
        found[key] = found.get(key, 0) + p
    return found


@pytest.mark.parametrize("rounding", [randomised, exponential])
def test_algorithms_6_and_7_draw_the_same_law(rounding):
    """Hoeffding over 6000 draws: a false alarm of a set has a probability below 1e-10."""
    rng = np.random.default_rng(11)
    draws, found = 6000, {}
    for _ in range(draws):
        links = rounding(B, 2, rng)
        key = frozenset((links.left * 2 + links.right).tolist())
        assert len(key) == 2
        found[key] = found.get(key, 0) + 1
    expected = law(2)
    assert set(found) <= set(expected)
    for key, p in expected.items():
        assert abs(found.get(key, 0) / draws - float(p)) < 0.045  # 2 exp(-2 n t^2) < 6e-11


def test_the_law_of_algorithm_6_is_not_the_relaxed_links():
    included = sum(p for key, p in law(2).items() if 0 in key)
    assert included == Fraction(5, 6)  # where B says 1


@pytest.mark.parametrize("rounding", [randomised, exponential])
def test_zeros_are_never_drawn_and_too_few_positive_pairs_are_refused(rounding):
    rng = np.random.default_rng(1)
    assert sorted(rounding(B, 3, rng).left.tolist()) == [0, 0, 1]
    with pytest.raises(InvalidParameter, match="cannot be drawn"):
        rounding(B, 4, rng)
    assert rounding(np.zeros((0, 3)), 0, rng).left.size == 0


def test_categorical_rounding_gives_every_row_one_link():
    rng = np.random.default_rng(2)
    table = np.array([[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    counts = np.zeros((2, 3))
    for _ in range(6000):
        links = categorical(table, rng)
        assert links.left.tolist() == [0, 1]
        counts[links.left, links.right] += 1
    assert counts[table == 0].sum() == 0
    assert np.abs(counts / 6000 - table).max() < 0.045  # Hoeffding, as above
    with pytest.raises(InvalidParameter, match="sum to 1"):
        categorical(2 * table, rng)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6))
def test_systematic_rounding_keeps_integral_column_sums(seed, k, c):
    rng = np.random.default_rng(seed)
    table = rng.gamma(0.5, 2.0, (k, c))
    table[-1] = np.ceil(table.sum(axis=0)) - table[:-1].sum(axis=0)
    found = systematic(table, rng)
    assert (np.abs(found - table) < 1 + 1e-9).all()
    assert (found >= 0).all()
    assert (found.sum(axis=0) == np.rint(table.sum(axis=0))).all()


@given(st.integers(0, 2**32 - 1), st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_controlled_rounding_keeps_cells_and_all_sums(seed, k1, k2, integral):
    rng = np.random.default_rng(seed)
    table = rng.gamma(0.5, 1.0, (k1, k2)) * (rng.random((k1, k2)) < 0.8)
    if integral:  # halves of a sum of two tables with the same margins
        base = rng.integers(0, 4, (k1, k2))
        moved = base.copy()
        if k1 > 1 and k2 > 1:
            moved[:2, :2] += [[1, -1], [-1, 1]]
        table = np.maximum(base + moved, 0) / 2
    found = controlled_rounding(table, rng)
    assert (np.abs(found - table) < 1).all()
    for axis in (0, 1):
        assert (np.abs(found.sum(axis=axis) - table.sum(axis=axis)) < 1 - 1e-7).all()
        whole = table.sum(axis=axis) == np.rint(table.sum(axis=axis))
        assert (found.sum(axis=axis) == table.sum(axis=axis))[whole].all()
    assert abs(found.sum() - table.sum()) < 1


def test_controlled_rounding_of_larger_tables_walks_as_well(monkeypatch):
    walked = []
    walk = controlled._walk
    monkeypatch.setattr(controlled, "_walk", lambda *a: (walked.append(1), walk(*a)))
    rng = np.random.default_rng(3)
    table = rng.random((60, 45))
    found = controlled_rounding(table, rng)
    assert walked
    assert (np.abs(found - table) < 1).all()
    assert (np.abs(found.sum(axis=0) - table.sum(axis=0)) < 1).all()
    assert (np.abs(found.sum(axis=1) - table.sum(axis=1)) < 1).all()


def margins_kept():
    return np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])


def bias(rounding, table, draws, seed):
    rng = np.random.default_rng(seed)
    return np.abs(sum(rounding(table, rng) for _ in range(draws)) / draws - table).max()


def greedy(table, rng):
    """A mutant: the largest fractions go up."""
    found = np.zeros(table.shape, dtype=np.int64)
    found[np.arange(len(table)), table.argmax(axis=1)] = 1
    return found


@pytest.mark.parametrize("rounding", [controlled_rounding, systematic])
def test_roundings_are_unbiased(rounding):
    """Hoeffding: a cell is 0 or 1; 2 exp(-2 n t^2) x 9 cells < 1e-9 at n = 8000, t = 0.04."""
    assert bias(rounding, margins_kept(), 8000, 4) < 0.04
    assert bias(greedy, margins_kept(), 100, 4) > 0.04


@given(st.integers(0, 2**32 - 1))
def test_every_turn_of_a_cycle_is_a_martingale(seed):
    """Exactly: the expectation of one move is nothing, whichever cells it moves."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, UNIT, 6)
    edges = [(0, k) for k in range(6)]

    class Fixed:
        def __init__(self, value):
            self.value = value

        def integers(self, low, high):
            self.high = int(high)
            return self.value

    ends = []
    for drawn in (0, UNIT * 4):
        weight = dict(zip(edges, map(int, values), strict=True))
        source = Fixed(drawn)
        controlled._turn(edges, weight, source)
        ends.append([weight[e] for e in edges])
        assert any(v in (0, UNIT) for v in ends[-1])
        assert all(0 <= v <= UNIT for v in ends[-1])
        span = source.high
    up, down = (np.array(e, dtype=object) - values.astype(object) for e in ends)
    likely = -int(down[0])  # drawn below the way down, it goes up
    assert all(u * likely + d * (span - likely) == 0 for u, d in zip(up, down, strict=True))
