"""From counts per group and unit, in arrays, to how much units of which size contribute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpsql.counted import Contributions
from dpsql.model import GRID, Key
from dpsql.statistics.arrays import LIMIT, Ints, Memory, NotInArrays, Table

#: Sums below this are exact in double precision, and what is shifted by ten bits fits 64.
_EXACT = 2**52
#: Bytes that a row takes while its histogram is made, at most.
_ROW = 120
#: Shares are found in two steps, of so many bits each.
_HALF = GRID.bit_length() // 2


def histogram(
    table: Table,
    unit: int,
    groups: Sequence[int],
    bounds: Sequence[int],
    sizes: Callable[[tuple[int, ...]], int],
    texts: Callable[[int, Ints], list[int]],
    memory: Memory,
) -> Contributions:
    """Summarise an answer that was counted or summed per group and unit.

    Parameters
    ----------
    table : Table
        One row per group and unit, with its count or its sum, which may be 0 or below.
    unit : int
        The attribute that names the unit.
    groups : sequence of int
        The group keys' attributes, in order.
    bounds : sequence of int
        Sizes of units that are told apart, ascending.
    sizes : callable
        Number of codes of some attributes together.
    texts : callable
        The values of codes of an attribute.
    memory : Memory
        The bound.

    Raises
    ------
    NotInArrays
        When memory or exact arithmetic does not suffice.
    """
    memory.need(table.rows * _ROW)
    amount = np.ones(table.rows, np.int64) if table.weight is None else table.weight
    amount = amount.astype(np.int64, copy=False)
    size = np.abs(amount)
    if int(size.max(initial=0)) >= _EXACT or float(size.sum(dtype=np.float64)) >= LIMIT:
        raise NotInArrays("histogram")
    # no size comes near the largest bounds, which may be past 64 bits
    edges = np.array([min(bound, LIMIT) for bound in bounds], np.int64)
    if not groups:
        bucket = np.searchsorted(edges, size)
        units = np.bincount(bucket, minlength=len(bounds) + 1)
        place = np.where(amount < 0, ~bucket, bucket)
        order, starts = _runs(place)
        listed = place[order[starts]].tolist()
        sums = _sums(amount, order, starts)
        shares = _sums(np.sign(amount), order, starts)
        cells = {j: (n, m) for j, n, m in zip(listed, sums, shares, strict=True)}
        return Contributions(tuple(bounds), tuple(units.tolist()), {(): cells} if cells else {}, 1)
    if sizes(tuple(groups)) * (len(bounds) + 1) >= LIMIT:
        raise NotInArrays("histogram")
    codes = table.columns[unit]
    memory.need(sizes((unit,)) * 32 + table.rows * _ROW)
    totals = np.bincount(codes, weights=size)
    if totals.max(initial=0) >= _EXACT:
        raise NotInArrays("histogram")
    present = np.bincount(codes) > 0
    totals = totals.astype(np.int64)
    buckets = np.searchsorted(edges, totals)
    units = np.bincount(buckets[present], minlength=len(bounds) + 1)
    bucket = buckets[codes]
    key = np.zeros(table.rows, np.int64)
    for a in groups:
        key = key * sizes((a,)) + table.columns[a]
    order, starts = _runs(key * (len(bounds) + 1) + bucket)
    first = order[starts]
    amounts = _sums(amount, order, starts)
    parts = _sums(np.sign(amount) * _shares(size, totals[codes]), order, starts)
    names = [[str(v) for v in texts(a, table.columns[a][first])] for a in groups]
    found: dict[Key, dict[int, tuple[int, int]]] = {}
    for name, j, all_, part in zip(
        zip(*names, strict=True), bucket[first].tolist(), amounts, parts, strict=True
    ):
        found.setdefault(name, {})[j] = all_, part
    return Contributions(tuple(bounds), tuple(units.tolist()), found)


def _shares(size: Ints, total: Ints) -> Ints:
    """Return ``size * GRID // total``, 0 of nothing, without leaving 64 bits."""
    total = np.maximum(total, 1)
    high, rest = np.divmod(size << _HALF, total)
    low = (rest << _HALF) // total
    return (high << _HALF) + low


def _runs(key: Ints) -> tuple[Ints, Ints]:
    """Sort keys: return their order, and where in it each different one begins."""
    if key.size and key.min() >= -(2**15) and key.max() < 2**15:
        key = key.astype(np.int16)  # sorted by counting
    order = np.argsort(key, kind="stable")
    key = key[order]
    return order, np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))[: key.size]


def _sums(values: Ints, order: Ints, starts: Ints) -> list[int]:
    """Add up the values of each run, exactly."""
    if not len(starts):
        return []
    sums: list[int] = np.add.reduceat(values[order], starts).tolist()
    return sums
