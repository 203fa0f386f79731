"""Distances of counts, by their definition and on cases that are done by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpsql.synthesis.degree_law import edges
from dpsql.synthesis.report import across, binned_degrees, evenly, non_negative, variation

COUNTS = st.dictionaries(st.integers(0, 6), st.integers(0, 50))


@given(COUNTS, COUNTS, COUNTS)
def test_variation_is_a_distance_of_shares(a: dict, b: dict, c: dict) -> None:
    assert variation(a, a) == 0
    assert 0 <= variation(a, b) <= 1 + 1e-12
    assert variation(a, b) == variation(b, a)
    assert variation(a, c) <= variation(a, b) + variation(b, c) + 1e-12
    assert abs(variation(a, {k: 3 * n for k, n in a.items()})) < 1e-12


def test_variation_by_hand() -> None:
    assert variation({"x": 1, "y": 1}, {"x": 3, "z": 1}) == (0.25 + 0.5 + 0.25) / 2
    assert variation({}, {}) == 0
    assert variation({}, {"x": 1}) == 1
    assert variation({"x": 1}, {"y": 5}) == 1


def test_degrees_fall_into_their_bins() -> None:
    starts = edges(40)
    found = binned_degrees({0: 9, 1: 5, 16: 2, 39: 1, 40: 1, 1000: 4}, starts)
    assert found.sum() == 13
    assert found[0] == 5
    assert found[15] == 2
    assert found[-1] == 4 + sum(n for d, n in {39: 1, 40: 1}.items() if d >= starts[-1])


def test_noisy_counts_are_made_non_negative_with_their_total() -> None:
    found = non_negative(np.array([5.0, -1.0, 2.0]))
    assert found.min() >= 0
    assert abs(found.sum() - 6) < 1e-9
    assert non_negative(np.array([-5.0, 1.0])).sum() == 0


def test_sets_that_are_looked_at() -> None:
    assert evenly(range(10), 20) == list(range(10))
    assert len(set(evenly(range(1000), 40))) == 40
    found = across("ab", "xyz", 3)
    assert len(found) == len(set(found)) == 1 * 3 + 2 * 3
    assert all(set(s) & set("ab") and set(s) & set("xyz") for s in found)
