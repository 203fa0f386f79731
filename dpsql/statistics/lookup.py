"""Rows of a table by their key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.statistics.arrays import LIMIT, Ints, Memory, NotInArrays

#: Up to so many times the rows a key's range is a table of places.
_SPARSE = 16
_SMALL = 1 << 20


class Lookup:
    """Finds the row that has given values in some columns.

    Parameters
    ----------
    columns : sequence of int arrays
        The key, together different in all rows.
    memory : Memory
        The bound; ``held`` bytes of it are kept.

    Raises
    ------
    NotInArrays
        Where two rows have the same key, or memory or 62 bits do not suffice.
    """

    def __init__(self, columns: Sequence[Ints], memory: Memory) -> None:
        rows = len(columns[0])
        self.ranges = [(int(c.min()), int(c.max())) if rows else (0, -1) for c in columns]
        size = 1
        for low, high in self.ranges:
            size *= high - low + 1
        if size >= LIMIT and len(columns) > 1:
            raise NotInArrays("key space")
        # hashes are anywhere: such values are their own numbers
        self.own = size >= LIMIT
        memory.need(rows * 40)
        numbers, _ = self._numbers(columns)
        self.table: Ints | None = None
        self.sorted = self.order = np.zeros(0, np.int64)
        if size <= max(_SMALL, _SPARSE * rows):
            memory.need(size * 4 + rows * 40)
            self.table = np.full(size, -1, np.int32)
            places = np.arange(rows, dtype=np.int32)
            self.table[numbers] = places
            unique = bool((self.table[numbers] == places).all())
        else:
            self.order = np.argsort(numbers, kind="stable")
            self.sorted = numbers[self.order]
            unique = bool((self.sorted[1:] != self.sorted[:-1]).all())
        if not unique:
            raise NotInArrays("a key that repeats")
        kept = (self.table,) if self.table is not None else (self.sorted, self.order)
        self.held = sum(array.nbytes for array in kept)
        memory.hold(self.held)

    def find(self, columns: Sequence[Ints]) -> tuple[Ints, Ints | None]:
        """Return for each row a place, and which of them are true (``None``: all)."""
        numbers, inside = self._numbers(columns)
        if self.table is not None:
            if not len(self.table):
                return np.zeros(len(numbers), np.int32), np.zeros(len(numbers), bool)
            places = self.table[numbers]
            found = places >= 0
        else:
            places = np.searchsorted(self.sorted, numbers)
            places = np.minimum(places, len(self.sorted) - 1)
            found = self.sorted[places] == numbers
            places = self.order[places]
        if inside is not None:
            found &= inside
        return places, None if bool(found.all()) else found

    def _numbers(self, columns: Sequence[Ints]) -> tuple[Ints, Ints | None]:
        """Return the values' numbers; those outside of the key's range are marked."""
        if self.own:
            return columns[0].astype(np.int64, copy=False), None
        inside: Ints | None = None
        for column, (low, high) in zip(columns, self.ranges, strict=True):
            if len(column) and (int(column.min()) < low or int(column.max()) > high):
                within = (column >= low) & (column <= high)
                inside = within if inside is None else inside & within
        numbers: Ints | None = None
        for column, (low, high) in zip(columns, self.ranges, strict=True):
            step = column.astype(np.int64)
            if inside is not None:
                step[~inside] = low
            step -= low
            numbers = step if numbers is None else numbers * (high - low + 1) + step
        if numbers is None:
            raise NotInArrays("no key")
        return numbers, inside
