"""Sort sets of units and add up the counts of equal sets, block by block, in memory or on disk.

This is a bucket sort by the first column; a bucket with one value is sorted by the next column.
The result does not depend on the sizes of blocks and buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.core import space as sizes
from dpsql.core.space import MEMORY, Space

Ints = NDArray[Any]

#: Largest magnitude of the count of a set; larger ones are clamped to it.
HIGHEST = 2**61
HALF = 26
MASK = (1 << HALF) - 1


def saturated(codes: Ints, weights: Ints, size: int) -> Ints:
    """Sum weights by code and clamp the sums to ``HIGHEST`` in magnitude.

    The result does not depend on the order of the weights.  Sums below ``HIGHEST`` are exact for up
    to ``2**17`` weights of a code, and for any number of weights below ``2**52``.
    """
    low = np.bincount(codes, weights=weights & MASK, minlength=size).astype(np.int64)
    high = np.bincount(codes, weights=weights >> HALF, minlength=size) + (low >> HALF)
    edge = float(HIGHEST >> HALF)
    sums = (np.clip(high, -edge, edge).astype(np.int64) << HALF) + (low & MASK)
    sums[high < -edge] = -HIGHEST
    np.clip(sums, -HIGHEST, HIGHEST, out=sums)
    return sums


def exact_sum(weights: Ints) -> int:
    """Sum up to ``2**26`` numbers below ``2**52`` exactly."""
    return int((weights & MASK).sum()) + (int((weights >> HALF).sum()) << HALF)


def merged(members: Ints, counts: Ints, units: int, space: Space = MEMORY) -> tuple[Ints, Ints]:
    """Add up the counts of rows with the same units; each row of ``members`` is sorted in place.

    Parameters
    ----------
    members : array of int, rows x width
        The units of each row, each once; the rest of a row holds ``units``.
    counts : array of int64
        The number of results of each row, or their sum.
    units : int
        Number of units.
    space : Space
        Where the result is allocated.
    """
    for part in space.blocks(len(members)):
        members[part].sort(axis=1)
    if len(members) <= 2 * sizes.BLOCK:
        return _sorted(members, counts, units)
    out = _Sets(space.empty(members.shape, np.int32), space.empty(len(counts), np.int64))
    _merge(members, counts, 0, units, space, out)
    return out.members[: out.used], out.counts[: out.used]


class _Sets:
    """Output arrays, filled with sets in ascending order."""

    def __init__(self, members: Ints, counts: Ints) -> None:
        self.members = members
        self.counts = counts
        self.used = 0

    def add(self, members: Ints, counts: Ints) -> None:
        part = slice(self.used, self.used + len(counts))
        self.members[part], self.counts[part] = members, counts
        self.used = part.stop


def _sorted(members: Ints, counts: Ints, units: int) -> tuple[Ints, Ints]:
    """Merge all rows in one step."""
    key, bound = members[:, 0].astype(np.int64), units + 1
    for column in members[:, 1:].T:
        if bound > 2**62 // (units + 1):
            names, key = np.unique(key, return_inverse=True)
            bound = len(names)
        key = key * (units + 1) + column
        bound *= units + 1
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return members[first], saturated(place, counts, len(first))


def _merge(members: Ints, counts: Ints, column: int, units: int, space: Space, out: _Sets) -> None:
    """Merge rows whose columns before ``column`` are equal."""
    space.tick()
    if len(members) <= 2 * sizes.BLOCK:
        if len(members):
            out.add(*_sorted(members, counts, units))
        return
    if column == members.shape[1]:
        total = sum(exact_sum(counts[part]) for part in space.blocks(len(counts)))
        out.add(members[:1], np.array([min(max(total, -HIGHEST), HIGHEST)]))
        return
    of_value, starts = _buckets(members[:, column], units, space)
    if np.diff(starts).max() == len(members):
        _merge(members, counts, column + 1, units, space, out)
        return
    members, counts = _moved(members, counts, column, of_value, starts, space)
    for low, high in pairwise(starts.tolist()):
        _merge(members[low:high], counts[low:high], column, units, space, out)


def _buckets(values: Ints, units: int, space: Space) -> tuple[Ints, Ints]:
    """Return the bucket of each value and the start of each bucket.

    A bucket is small or has one value.
    """
    most = sizes.BLOCK
    number = np.zeros(units + 1, np.int64)
    for part in space.blocks(len(values), units):
        number += np.bincount(values[part], minlength=units + 1)
    before = np.cumsum(number) - number
    many = number > most
    edge = (np.diff(before // most) != 0) | many[1:] | many[:-1]
    of_value = np.concatenate(([0], np.cumsum(edge)))
    starts = before[np.concatenate(([0], np.flatnonzero(edge) + 1))]
    return of_value, np.append(starts, len(values))


def _moved(
    members: Ints, counts: Ints, column: int, of_value: Ints, starts: Ints, space: Space
) -> tuple[Ints, Ints]:
    """Copy the rows so that those of a bucket are consecutive."""
    moved = space.empty(members.shape, np.int32), space.empty(len(counts), np.int64)
    following = starts.copy()
    for part in space.blocks(len(members)):
        bucket = of_value[members[part, column]]
        order = np.argsort(bucket, kind="stable")
        names, first, number = np.unique(bucket[order], return_index=True, return_counts=True)
        place = np.repeat(following[names] - first, number) + np.arange(len(order))
        moved[0][place], moved[1][place] = members[part][order], counts[part][order]
        following[names] += number
    return moved


def distinct(columns: Iterable[Ints], space: Space) -> Ints:
    """Return the distinct values of all columns, ascending."""
    runs: list[Ints] = []
    for column in columns:
        for part in space.blocks(len(column)):
            runs.append(np.unique(column[part]))
            while len(runs) > 1 and len(runs[-2]) <= 2 * len(runs[-1]):
                runs[-2:] = [_union(runs[-2], runs[-1], space)]
    while len(runs) > 1:
        runs[-2:] = [_union(runs[-2], runs[-1], space)]
    return runs[0] if runs else np.zeros(0, np.int64)


def _union(left: Ints, right: Ints, space: Space) -> Ints:
    """Return the union of two ascending arrays."""
    parts = []
    for a, b in pieces(left, right):
        space.tick()
        parts.append(np.union1d(left[a], right[b]))
    return np.concatenate(parts)


def pieces(left: Ints, right: Ints) -> Iterator[tuple[slice, slice]]:
    """Cut two ascending arrays at the same values, into pieces of at most two blocks."""
    places = np.sort(np.concatenate((left[:: sizes.BLOCK], right[:: sizes.BLOCK])))
    cuts = ([0, *np.searchsorted(some, places).tolist(), len(some)] for some in (left, right))
    for (a, b), (c, d) in zip(*map(pairwise, cuts), strict=True):
        yield slice(a, b), slice(c, d)
