"""Replace values by codes ``0 ... domain - 1``, the same for every use of an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, zip_longest

import numpy as np

from dpsql.statistics import limits
from dpsql.statistics.arrays import Ints, Memory, Table, code_type
from dpsql.statistics.loops import Loops, Tick

#: For each attribute what undoes its codes: the lowest value, and all values if there are gaps.
Origin = dict[int, tuple[int, Ints | None]]


def encode(
    tables: Mapping[int, tuple[dict[int, Ints], int]], memory: Memory, tick: Tick, loops: Loops
) -> tuple[dict[int, Table], dict[int, int], Origin]:
    """Encode columns.

    Parameters
    ----------
    tables : mapping
        For each occurrence its columns by attribute, and its number of rows; consumed.
    memory : Memory
        Holds the columns.
    tick : callable
        Called between pieces of work.
    loops : Loops
        The inner loops.

    Returns
    -------
    tables : dict
        The encoded tables.
    domains : dict
        For each attribute the number of its codes, at least 1.
    origin : dict
        For each attribute what undoes its codes.
    """
    domains: dict[int, int] = {}
    origin: Origin = {}
    for a in sorted({a for columns, _ in tables.values() for a in columns}):
        users = [columns for columns, _ in tables.values() if a in columns]
        filled = [c[a] for c in users if len(c[a])]
        low, high = _range(filled, tick)
        width = high - low + 1
        values = None
        if filled and width <= limits.BITMAP:
            values = _present(filled, low, width, memory, tick, loops)
        elif filled and width > max(1 << 16, 8 * max(len(c) for c in filled)):
            memory.need(24 * sum(len(c) for c in filled))
            values = _distinct(filled, tick)
        domain = max(1, width if values is None else len(values))
        domains[a], origin[a] = domain, (low, values)
        table: Ints | None = None
        if values is not None and width <= limits.BITMAP:
            memory.need(4 * width)
            table = _places(values, low, width, tick)
        for columns in users:
            column = columns[a]
            coded: Ints = np.empty(len(column), dtype=code_type(domain))
            memory.hold(coded.nbytes)
            if table is not None or values is None:
                loops.translate(column, low, table, coded, tick)
            else:
                _search(column, values, coded, tick)
            memory.release(column.nbytes)
            columns[a] = coded
    return (
        {i: Table(columns, None, rows) for i, (columns, rows) in tables.items()},
        domains,
        origin,
    )


def _range(columns: list[Ints], tick: Tick) -> tuple[int, int]:
    """Return the lowest and the highest value; an empty range if there is none."""
    lows, highs = [], []
    for column in columns:
        lows.append(int(column.min()))
        highs.append(int(column.max()))
        tick()
    return min(lows, default=0), max(highs, default=-1)


def _present(
    columns: list[Ints], low: int, width: int, memory: Memory, tick: Tick, loops: Loops
) -> Ints | None:
    """Return the values that occur, unless nearly all do."""
    memory.need(width * 9)
    seen = np.zeros(width, dtype=bool)
    for column in columns:
        loops.mark(column, low, seen, tick)
    values = np.flatnonzero(seen) + low
    tick()
    return values if len(values) < 0.8 * width else None


def _places(values: Ints, low: int, width: int, tick: Tick) -> Ints:
    """Return the code of each value by its distance from the lowest one."""
    table: Ints = np.zeros(width, dtype=np.int32)
    for lo in range(0, len(values), limits.BUDGET):
        part = values[lo : lo + limits.BUDGET]
        table[part - low] = np.arange(lo, lo + len(part))
        tick()
    return table


def _distinct(columns: list[Ints], tick: Tick) -> Ints:
    """Return the values that occur, ascending: a merge sort whose every step is small."""
    waiting: list[Ints] = []
    for column in columns:
        for lo in range(0, len(column), limits.BUDGET):
            waiting.append(np.unique(column[lo : lo + limits.BUDGET].astype(np.int64)))
            tick()
    while len(waiting) > 1:
        pairs = zip_longest(waiting[::2], waiting[1::2], fillvalue=waiting[0][:0])
        waiting = [_united(first, second, tick) for first, second in pairs]
    return waiting[0]


def _united(first: Ints, second: Ints, tick: Tick) -> Ints:
    """Return the values of two ascending arrays, ascending."""
    step = limits.BUDGET
    marks = np.unique(np.concatenate((first[::step], second[::step])))
    cuts = zip(
        [*np.searchsorted(first, marks).tolist(), len(first)],
        [*np.searchsorted(second, marks).tolist(), len(second)],
        strict=True,
    )
    pieces = []
    for (a, b), (to_a, to_b) in pairwise(cuts):
        pieces.append(np.unique(np.concatenate((first[a:to_a], second[b:to_b]))))
        tick()
    return np.concatenate(pieces)


def _search(column: Ints, values: Ints, coded: Ints, tick: Tick) -> None:
    """Replace values by their places among all."""
    for lo in range(0, len(column), limits.BLOCK):
        part = slice(lo, lo + limits.BLOCK)
        coded[part] = np.searchsorted(values, column[part])
        tick()
