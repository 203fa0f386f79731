"""How far synthetic counts are from others: shares of marginals, binned degrees.

Post-processing of whatever is given (PRIVACY.md section 2 (b)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from dpsql.workload.marginals import Floats
from dpsql.workload.postprocess import project_simplex

Name = TypeVar("Name")


def variation(one: Mapping[Any, float], other: Mapping[Any, float]) -> float:
    """Return the total variation distance of two tables of counts as shares, from 0 to 1.

    Parameters
    ----------
    one, other : mapping
        Cell to count, none negative; a cell that is missing is 0.

    Returns
    -------
    float
        1 if one of them is empty and the other is not, 0 if both are.
    """
    a, b = sum(one.values()), sum(other.values())
    if a <= 0 or b <= 0:
        return 0.0 if a <= 0 and b <= 0 else 1.0
    cells = one.keys() | other.keys()
    return sum(abs(one.get(c, 0) / a - other.get(c, 0) / b) for c in cells) / 2


def non_negative(noisy: Floats) -> Floats:
    """Return the nearest table without negative numbers and with the same total, at least 0."""
    return project_simplex(np.asarray(noisy, dtype=np.float64), max(float(noisy.sum()), 0.0))


def binned_degrees(degrees: Mapping[int, int], starts: Sequence[int]) -> Floats:
    """Count parents by bins of degrees: see `dpsql.synthesis.degree_law.edges`.

    Parameters
    ----------
    degrees : mapping of int to int
        How many parents have so many children; those without any are left out.
    starts : sequence of int
        The least degree of each bin, the first one 1.
    """
    found = np.zeros(len(starts))
    for degree, parents in degrees.items():
        if degree > 0:
            found[int(np.searchsorted(starts, degree, side="right")) - 1] += parents
    return found


def evenly(items: Sequence[Name], most: int) -> list[Name]:
    """Pick at most so many, at equal distances; always the same ones."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def subsets_of(items: Sequence[Name], k: int) -> list[tuple[Name, ...]]:
    """List all sets of ``k``, in their order."""
    return list(combinations(items, k))


def across(left: Sequence[Name], right: Sequence[Name], k: int) -> list[tuple[Name, ...]]:
    """List all sets of ``k`` with at least one of each end."""
    return [
        (*one, *other)
        for i in range(1, k)
        for one in combinations(left, i)
        for other in combinations(right, k - i)
    ]
