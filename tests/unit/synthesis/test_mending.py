"""Rows that a CHECK constraint refuses get values of others, until it holds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from dpsql.synthesis.mending import mend
from dpsql.synthesis.values import Numbers


def unequal(numbers: Mapping[str, Numbers]) -> dict[int, int]:
    """The constraint that two columns have one value."""
    return {int(n): 0 for n in np.flatnonzero(numbers["a"] != numbers["b"])}


@pytest.mark.parametrize("seed", range(20))
def test_the_first_good_row_lends_to_all_others(seed: int) -> None:
    """No row is good at first, and by themselves a third of them would find no pair in 40 rounds."""
    values = np.arange(40)
    numbers = {"a": values.copy(), "b": np.roll(values, 7)}
    assert len(unequal(numbers)) == 40
    assert mend(numbers, ("a", "b"), unequal, (seed,)) is None
    assert unequal(numbers) == {}
    assert set(numbers["a"]) <= set(values)


def test_what_nothing_satisfies_is_named() -> None:
    numbers = {"a": np.arange(9), "b": np.arange(9) + 100}
    assert mend(numbers, ("a", "b"), unequal, (1,)) == 0


def test_what_may_not_change_stays() -> None:
    numbers = {"a": np.arange(40), "b": np.roll(np.arange(40), 1)}
    assert mend(numbers, ("b",), unequal, (1,)) in (None, 0)
    assert list(numbers["a"]) == list(range(40))


def test_good_rows_stay_as_they_are() -> None:
    a = np.arange(40)
    b = np.where(a % 2 == 0, a, (a + 1) % 40)
    numbers = {"a": a.copy(), "b": b.copy()}
    assert mend(numbers, ("a", "b"), unequal, (1,)) is None
    assert list(numbers["a"][::2]) == list(numbers["b"][::2]) == list(range(0, 40, 2))
