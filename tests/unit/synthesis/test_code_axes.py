"""An attribute across a reference that several columns make: rows find their combination."""

from __future__ import annotations

import numpy as np

from dpsql.synthesis.assembly import CodeAxis


def columns(number: int) -> tuple[tuple[tuple[int, ...], int], ...]:
    return tuple(((0,), n) for n in range(number))


def test_rows_have_the_level_of_their_combination_and_others_none() -> None:
    rng = np.random.default_rng(5)
    for number in (1, 2, 3, 5):
        known = np.unique(rng.integers(0, 4, (6, number)), axis=0)
        known = rng.permutation(known)
        levels = rng.integers(0, 3, len(known))
        rows = rng.integers(0, 5, (500, number))
        there = {tuple(codes): int(level) for codes, level in zip(known, levels, strict=True)}
        axis = CodeAxis(columns(number), known, levels, 3)
        assert axis.level_of(list(rows.T)).tolist() == [there.get(tuple(r), -1) for r in rows]


def test_the_product_of_the_columns_is_not_kept() -> None:
    """Sixty columns of fifty values each have more combinations than there are bytes."""
    rng = np.random.default_rng(6)
    known = np.unique(rng.integers(0, 50, (400, 60)), axis=0)
    axis = CodeAxis(columns(60), known, np.arange(len(known)), len(known))
    which = rng.integers(0, len(known), 1000)
    rows = known[which]
    assert axis.level_of(list(rows.T)).tolist() == which.tolist()
    rows = rows.copy()
    rows[:, 59] = 50
    assert set(axis.level_of(list(rows.T)).tolist()) == {-1}


def test_no_combinations_and_no_rows() -> None:
    empty = CodeAxis(columns(2), np.zeros((0, 2), np.int64), np.zeros(0, np.int64), 0)
    assert empty.level_of([np.array([0, 1]), np.array([1, 1])]).tolist() == [-1, -1]
    one = CodeAxis(columns(2), np.array([[1, 1]]), np.array([0]), 1)
    assert one.level_of([np.zeros(0, np.int64)] * 2).tolist() == []
