"""From counts per group and unit, in arrays, to how much units of which size contribute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpsql.counted import Contributions
from dpsql.model import GRID, Key
from dpsql.statistics.arrays import LIMIT, Ints, Memory, NotInArrays, Table

#: Sums of weights below this are exact in double precision.
_EXACT = 2**53
#: Of counts below this the shares fit 64 bits.
_SHARED = 2**63 // GRID
#: Bytes that a row takes while its histogram is made, at most.
_ROW = 96


def histogram(
    table: Table,
    unit: int,
    groups: Sequence[int],
    bounds: Sequence[int],
    sizes: Callable[[tuple[int, ...]], int],
    texts: Callable[[int, Ints], list[int]],
    memory: Memory,
) -> Contributions:
    """Summarise an answer that was counted per group and unit.

    Parameters
    ----------
    table : Table
        One row per group and unit, with its count.
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
    weight = np.ones(table.rows, np.int64) if table.weight is None else table.weight
    if float(weight.sum(dtype=np.float64)) >= _EXACT or max(bounds) >= 2**63:
        raise NotInArrays("histogram")
    edges = np.array(bounds, np.int64)
    if not groups:
        bucket = np.searchsorted(edges, weight)
        number = np.bincount(bucket, minlength=len(bounds) + 1).tolist()
        amount = np.bincount(bucket, weights=weight, minlength=len(bounds) + 1)
        cell = {j: (int(amount[j]), n) for j, n in enumerate(number) if n}
        return Contributions(tuple(bounds), tuple(number), {(): cell} if cell else {}, 1)
    if sizes(tuple(groups)) * (len(bounds) + 1) >= LIMIT or weight.max(initial=0) >= _SHARED:
        raise NotInArrays("histogram")
    codes = table.columns[unit]
    memory.need(sizes((unit,)) * 8 + table.rows * _ROW)
    totals = np.bincount(codes, weights=weight).astype(np.int64)
    units = np.bincount(np.searchsorted(edges, totals[totals > 0]), minlength=len(bounds) + 1)
    total = totals[codes]
    bucket = np.searchsorted(edges, total)
    key = np.zeros(table.rows, np.int64)
    for a in groups:
        key = key * sizes((a,)) + table.columns[a]
    key = key * (len(bounds) + 1) + bucket
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.concatenate(([True], np.diff(key) != 0))) if table.rows else order
    first = order[starts]
    amounts = np.add.reduceat(weight[order], starts) if table.rows else weight
    shares = weight * GRID // np.maximum(total, 1)
    if float(shares.sum(dtype=np.float64)) >= _EXACT * 2**9:
        raise NotInArrays("histogram")
    parts = np.add.reduceat(shares[order], starts) if table.rows else shares
    names = [[str(v) for v in texts(a, table.columns[a][first])] for a in groups]
    cells: dict[Key, dict[int, tuple[int, int]]] = {}
    for name, j, all_, part in zip(
        zip(*names, strict=True), bucket[first], amounts, parts, strict=True
    ):
        cells.setdefault(name, {})[int(j)] = int(all_), int(part)
    return Contributions(tuple(bounds), tuple(units.tolist()), cells)
