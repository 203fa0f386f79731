"""Rows of numbers as one number each, to find equal rows among millions.

Two different rows share a hash with probability 2**-64 for a pair; where that happens a row is
linked anew without need, and nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.synthesis.values import Numbers, is_missing
from dpsql.workload.residual_bases import Integers

Hashes = NDArray[np.uint64]
Flags = NDArray[np.bool_]


def hashed(columns: Sequence[Numbers | Hashes]) -> Hashes:
    """Mix the numbers of each row (splitmix64)."""
    result = np.zeros(columns[0].size, dtype=np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column).view(np.uint64)
        result = result * np.uint64(0x9E3779B97F4A7C15) + bits + np.uint64(0x632BE59BD9B4E019)
        result ^= result >> np.uint64(30)
        result *= np.uint64(0xBF58476D1CE4E5B9)
        result ^= result >> np.uint64(27)
        result *= np.uint64(0x94D049BB133111EB)
        result ^= result >> np.uint64(31)
    return result


def any_missing(columns: Sequence[Numbers]) -> Flags:
    """Tell which rows have a NULL, and are therefore equal to none."""
    result: Flags = np.zeros(columns[0].size, dtype=bool)
    for column in columns:
        result |= is_missing(column)
    return result


def beyond(hashes: Hashes, skip: Flags, ordered: Hashes, room: int = 1) -> Flags:
    """Tell which rows are one too many of their kind.

    Parameters
    ----------
    hashes : array of uint64
    skip : array of bool
        Rows that are equal to none.
    ordered : array of uint64
        Of rows that came before.
    room : int
        How many may be equal.
    """
    result: Flags = np.zeros(hashes.size, dtype=bool)
    kept = hashes[~skip]
    result[~skip] = counts(kept, ordered) + ranks(kept) > room
    return result


def counts(hashes: Hashes, ordered: Hashes) -> Integers:
    """Count how often hashes are in an ordered array."""
    found: Integers = np.searchsorted(ordered, hashes, side="right") - np.searchsorted(
        ordered, hashes
    )
    return found


def ranks(hashes: Hashes) -> Integers:
    """Count up from 1 in each group of equal hashes, in the order of rows."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    new = np.ones(hashes.size, dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    result = np.empty(hashes.size, dtype=np.int64)
    result[order] = np.arange(hashes.size) - starts[group] + 1
    return result
