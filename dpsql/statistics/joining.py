"""Joins of two tables: which rows match, all of them as a bag, how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.statistics import limits
from dpsql.statistics.arrays import LIMIT, Ints, NotInArrays, Table, weight_type
from dpsql.statistics.indexing import Engine, Index
from dpsql.statistics.loops import Counting, Match


@dataclass(slots=True)
class Join:
    """The rows of a table, or those of two that agree on the attributes ``shared``."""

    engine: Engine
    left: Table
    right: Table | None
    shared: tuple[int, ...]

    def swapped(self) -> Join:
        """Return the same with its sides exchanged."""
        if self.right is None:
            return self
        return Join(self.engine, self.right, self.left, self.shared)

    def pairs(self) -> float:
        """Guess the number of rows."""
        if self.right is None:
            return float(self.left.rows)
        return float(self.left.rows) * self.right.rows / self.engine.size(self.shared)

    def by(self) -> tuple[int, ...]:
        """Return what is shared, the largest domain first."""
        return tuple(sorted(self.shared, key=lambda a: (-self.engine.domains[a], a)))

    def index(self) -> Index | None:
        """Return the index of the right side on what is shared."""
        if self.right is None or not self.shared:
            return None
        return self.engine.index(self.right, self.by())

    def match(self, order: Ints | None = None) -> Match:
        """Describe the rows for the loops, left ones in some order."""
        engine, left, right = self.engine, self.left, self.right
        if right is None:
            return Match(left.rows, order, (), (), left.weight, None)
        index = self.index()
        if index is None:
            everything = np.array([0, right.rows], dtype=np.int32)
            whole = Index(right.columns, right.weight, (), None, everything, 0)
            return Match(left.rows, order, (), (), left.weight, whole.right(engine))
        column = left.columns.__getitem__
        return Match(
            rows=left.rows,
            order=order,
            bucket=engine.key(index.attributes[:1], column),
            rest=engine.key(index.attributes[1:], column),
            weight=left.weight,
            right=index.right(engine),
        )


def total(join: Join, *, weighted: bool = True) -> int:
    """Sum the weights of all rows, or count the rows."""
    match = join.match()
    if not weighted:
        match.weight = None
        if match.right is not None:
            match.right.weight = None
    counting = Counting(match, (), (), width=1, runs=None, keep=False, pairs=join.pairs())
    for _ in join.engine.loops.count(counting, join.engine.memory, join.engine.tick):
        pass
    return counting.most


def collect(join: Join, output: tuple[int, ...]) -> Table:
    """Keep all rows, as a bag."""
    engine, left, right = join.engine, join.left, join.right
    if right is None:
        raise NotInArrays("not a product")
    if left.heaviest() * right.heaviest() >= LIMIT:
        raise NotInArrays("counts past 2^62")
    index = join.index()
    if right.weight is None and index is not None and index.unique(engine):
        table = _widen(join, index, output)
        if table is not None:
            return table
    rows = total(join, weighted=False)
    columns = {}
    for a in output:
        source = left if a in left.columns else right
        columns[a] = _room(engine, rows, source.columns[a].dtype)
    weight: Ints | None = None
    if left.weight is not None or right.weight is not None:
        weight = _room(engine, rows, weight_type(left.heaviest() * right.heaviest()))
    at = 0
    for il, ir in _pairs(join):
        part = slice(at, at + len(il))
        for a, column in columns.items():
            column[part] = left.columns[a][il] if a in left.columns else _right(join, a)[ir]
        if weight is not None:
            weight[part] = 1 if left.weight is None else left.weight[il]
            if right.weight is not None:
                weight[part] *= _right(join, None)[ir]
        at += len(il)
    held = sum(c.nbytes for c in columns.values()) + (0 if weight is None else weight.nbytes)
    return Table(columns, weight, rows, held)


def _widen(join: Join, index: Index, output: tuple[int, ...]) -> Table | None:
    """Share the left columns if every left row has exactly one match; ``None`` if not."""
    engine, left = join.engine, join.left
    memory = engine.memory.used
    new = {}
    for a in output:
        if a not in left.columns:
            new[a] = _room(engine, left.rows, index.source[a].dtype)
    held = engine.memory.used - memory
    at = 0
    for il, ir in _pairs(join):
        if int(il[0]) != at or int(il[-1]) != at + len(il) - 1:
            break
        for a, column in new.items():
            column[at : at + len(il)] = index.sorted(a, engine)[ir]
        at += len(il)
    if at < left.rows:
        engine.memory.release(held)
        return None
    columns = {a: new[a] if a in new else left.columns[a] for a in output}
    table = Table(columns, left.weight, left.rows, held)
    table.descents = {a: n for a, n in left.descents.items() if a in output}
    for attributes, known in left.indexes.items():
        if set(attributes) <= set(output):
            table.indexes[attributes] = known.inherit(table)
    return table


def _room(engine: Engine, rows: int, dtype: np.dtype[Any]) -> Ints:
    engine.memory.hold(rows * np.dtype(dtype).itemsize)
    return np.empty(rows, dtype=dtype)


def _pairs(join: Join) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows of both sides that go together; right ones as the index sorts them."""
    engine = join.engine
    engine.memory.need(limits.BLOCK * 32)
    return engine.loops.pairs(join.match(), engine.memory, engine.tick)


def _right(join: Join, attribute: int | None) -> Ints:
    """Return a right column, or the right weights, as the index sorts them."""
    index = join.index()
    if join.right is None:
        raise NotInArrays("not a product")
    if index is not None:
        return index.sorted(attribute, join.engine)
    column = join.right.weight if attribute is None else join.right.columns[attribute]
    if column is None:
        raise NotInArrays("no weights")
    return column
