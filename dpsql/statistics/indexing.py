"""What all joins share, and rows of a table by the codes of some attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dpsql.statistics import limits
from dpsql.statistics.arrays import LIMIT, Ints, Key, Memory, NotInArrays, Table
from dpsql.statistics.loops import Loops, Right, Tick


@dataclass(slots=True)
class Engine:
    """The bound, the loops and the domains; ``domains[a]`` is the number of codes of ``a``."""

    domains: dict[int, int]
    memory: Memory
    tick: Tick
    loops: Loops

    def size(self, attributes: tuple[int, ...]) -> int:
        """Return the number of possible keys of some attributes."""
        size = 1
        for a in attributes:
            size *= max(1, self.domains[a])
        return size

    def radices(self, attributes: tuple[int, ...]) -> dict[int, int]:
        """Return what each attribute is multiplied with in a key; the last one with 1."""
        radices, radix = {}, 1
        for a in reversed(attributes):
            radices[a] = radix
            radix *= max(1, self.domains[a])
        if radix >= LIMIT:
            raise NotInArrays("key space")
        return radices

    def key(self, attributes: tuple[int, ...], column: Callable[[int], Ints]) -> Key:
        """Return the number of each row's values of some attributes."""
        radices = self.radices(attributes)
        return tuple((column(a), radices[a]) for a in attributes)

    def index(self, table: Table, attributes: tuple[int, ...]) -> Index:
        """Find, or make, the index of a table on some attributes, one or more; it is kept."""
        known = table.indexes.get(attributes)
        if known is not None:
            return known
        sorts = len(attributes)
        size = max(self.domains[a] for a in attributes)
        self.memory.need(table.rows * 4 * min(2, sorts) + 8 * size)
        order: Ints | None = None
        start = np.zeros(0, dtype=np.int32)
        for a in reversed(attributes):
            codes = table.columns[a]
            start = self.loops.histogram(codes, self.domains[a], self.tick)
            if order is not None or table.disorder(a):
                order = self.loops.place(codes, start, order, self.tick)
        held = start.nbytes + (0 if order is None else order.nbytes)
        self.memory.hold(held)
        index = table.indexes[attributes] = Index(
            table.columns, table.weight, attributes, order, start, held
        )
        return index


@dataclass(slots=True)
class Index:
    """Rows of a table, sorted by attributes; ``start`` is by the first of them alone.

    It refers to the columns, not to the table: a cycle would outlive the answer.
    """

    source: dict[int, Ints]
    source_weight: Ints | None
    attributes: tuple[int, ...]
    order: Ints | None  # None: the rows are in that order already
    start: Ints
    held: int
    columns: dict[int | None, Ints] = field(default_factory=dict)

    def right(self, engine: Engine) -> Right:
        """Return the rows as the right side of a match."""
        rest = engine.key(self.attributes[1:], lambda a: self.sorted(a, engine))
        weight = None if self.source_weight is None else self.sorted(None, engine)
        return Right(self.start, rest, weight)

    def inherit(self, table: Table) -> Index:
        """Return the index of a table that has the same rows and more columns."""
        return Index(table.columns, table.weight, self.attributes, self.order, self.start, 0)

    def unique(self, engine: Engine) -> bool:
        """Whether no two rows have the same key."""
        if bool((np.diff(self.start) <= 1).all()):
            return True
        columns = [self.sorted(a, engine) for a in self.attributes]
        rows = len(columns[0])
        for lo in range(0, rows - 1, limits.BLOCK):
            hi = min(lo + limits.BLOCK, rows - 1)
            if bool(np.logical_and.reduce([c[lo:hi] == c[lo + 1 : hi + 1] for c in columns]).any()):
                return False
            engine.tick()
        return True

    def sorted(self, name: int | None, engine: Engine) -> Ints:
        """Return a column (``None``: the weights) as sorted."""
        column = self.source_weight if name is None else self.source[name]
        if column is None:
            raise NotInArrays("no weights")
        if self.order is None:
            return column
        known = self.columns.get(name)
        if known is None:
            engine.memory.hold(column.nbytes)
            self.held += column.nbytes
            known = self.columns[name] = np.empty_like(column)
            for lo in range(0, len(column), limits.BUDGET):
                part = slice(lo, lo + limits.BUDGET)
                np.take(column, self.order[part], out=known[part], mode="clip")
                engine.tick()
        return known
