"""From counts per group and unit, in arrays, to how many units contribute how much."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpsql.model import Contributions, Key
from dpsql.statistics.arrays import LIMIT, Ints, Memory, NotInArrays, Table

#: Sums of weights below this are exact in double precision.
_EXACT = 2**53
#: Bytes that a row takes while its histogram is made, at most.
_ROW = 80


def histogram(
    table: Table,
    unit: int,
    groups: Sequence[int],
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
    if not groups:
        found = {
            int(n): int(m) for n, m in zip(*np.unique(weight, return_counts=True), strict=True)
        }
        return Contributions(found, {(): {(n, n): m for n, m in found.items()}} if found else {})
    if float(weight.sum(dtype=np.float64)) >= _EXACT or sizes(tuple(groups)) >= LIMIT:
        raise NotInArrays("histogram")
    codes = table.columns[unit]
    memory.need(sizes((unit,)) * 8 + table.rows * _ROW)
    totals = np.bincount(codes, weights=weight).astype(np.int64)
    values, numbers = np.unique(totals[totals > 0], return_counts=True)
    key = np.zeros(table.rows, np.int64)
    for a in groups:
        key = key * sizes((a,)) + table.columns[a]
    total = totals[codes]
    order = np.lexsort((weight, total, key))
    key, total, weight = key[order], total[order], weight[order]
    changes = (np.diff(key) != 0) | (np.diff(total) != 0) | (np.diff(weight) != 0)
    starts = np.flatnonzero(np.concatenate(([True], changes))) if table.rows else np.zeros(0, int)
    amounts = np.diff(np.append(starts, table.rows))
    first = order[starts]
    names = [[str(v) for v in texts(a, table.columns[a][first])] for a in groups]
    cells: dict[Key, dict[tuple[int, int], int]] = {}
    for row in zip(zip(*names, strict=True), total[starts], weight[starts], amounts, strict=True):
        name, all_, mine, units = row
        if mine:
            cells.setdefault(name, {})[int(all_), int(mine)] = int(units)
    return Contributions(_pairs(values, numbers), cells)


def _pairs(values: Ints, numbers: Ints) -> dict[int, int]:
    return {int(n): int(m) for n, m in zip(values, numbers, strict=True)}
