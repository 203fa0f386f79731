"""Links within one table: without cycles, and with the degrees and types that they had."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.synthesis.cycles import without_cycles


def reaches_a_root(parents: np.ndarray) -> bool:
    """Whether every row leads to one without a parent, or to the one that refers to itself."""
    at = np.where(parents == np.arange(parents.size), -1, parents)
    for _ in range(parents.size.bit_length() + 1):
        at = np.where(at >= 0, at[np.maximum(at, 0)], -1)
    return not np.any(at >= 0)


@pytest.mark.parametrize("seed", range(200))
def test_every_row_leads_to_a_root_and_degrees_stay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    parents = rng.integers(0, n, n)
    roots = rng.random(n) < rng.choice([0.02, 0.2, 0.9])
    roots[0] = True
    parents[roots] = -1
    left, right = rng.integers(0, 3, n), rng.integers(0, 2, n)
    found = without_cycles(parents, left, right, rng)
    assert reaches_a_root(found)
    assert np.array_equal(found < 0, parents < 0)
    before, after = (np.bincount(p[p >= 0], minlength=n) for p in (parents, found))
    linked = np.flatnonzero(parents >= 0)
    if linked.size and np.any(parents[linked][:, None] == np.flatnonzero(roots)):
        assert np.array_equal(before, after)
    else:  # all links were on cycles, and before them
        assert before.sum() == after.sum()


def test_types_of_links_stay() -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    left, right = rng.integers(0, 4, n), rng.integers(0, 3, n)
    parents = rng.integers(0, n, n)
    parents[:200] = -1
    found = without_cycles(parents, left, right, rng)

    def table(p: np.ndarray) -> np.ndarray:
        linked = np.flatnonzero(p >= 0)
        return np.bincount(left[p[linked]] * 3 + right[linked], minlength=12)

    assert reaches_a_root(found)
    assert not reaches_a_root(parents)
    assert np.array_equal(table(found), table(parents))
    assert 0 < np.count_nonzero(found != parents) < 100


@pytest.mark.parametrize("n", [1, 2, 3, 10, 500])
def test_where_all_have_a_parent_one_refers_to_itself(n: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        parents = rng.integers(0, n, n)
        kinds = np.zeros(n, dtype=np.int64)
        found = without_cycles(parents, kinds, kinds, rng)
        assert reaches_a_root(found)
        assert np.count_nonzero(found == np.arange(n)) == 1


def test_a_tree_stays_as_it_is() -> None:
    rng = np.random.default_rng(0)
    parents = np.array([-1, 0, 0, 1, 3], dtype=np.int64)
    kinds = np.zeros(5, dtype=np.int64)
    assert np.array_equal(without_cycles(parents, kinds, kinds, rng), parents)
    assert without_cycles(parents[:0], kinds[:0], kinds[:0], rng).size == 0
