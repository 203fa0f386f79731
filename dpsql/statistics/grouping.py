"""Counts per value of some attributes, and the largest of them."""

from __future__ import annotations

import numpy as np

from dpsql.statistics import limits
from dpsql.statistics.arrays import (
    LIMIT,
    Ints,
    NotInArrays,
    Table,
    code_type,
    weight_type,
)
from dpsql.statistics.indexing import Engine
from dpsql.statistics.joining import Join
from dpsql.statistics.loops import Counting


def group(
    join: Join,
    output: tuple[int, ...],
    *,
    keep: bool,
    best: tuple[int, ...] | None = None,
    largest: bool = False,
) -> tuple[Table | None, int]:
    """Count per value of ``output``: the table (if ``keep``) and the maximum.

    With ``best`` the table is only the largest count per value of those attributes, with
    ``largest`` the largest weight of a row takes the place of a count.
    """
    engine = join.engine
    if join.right is None and join.left.weight is None and len(output) == 1 and not largest:
        return _frequencies(engine, join.left, output[0], keep=keep)
    join, first = _arrange(join, output)
    rest = tuple(a for a in output if a != first)
    counting = _counting(join, first, rest, keep=keep)
    counting.largest = largest
    pieces: list[Table] = []
    held = 0
    leaders = _Largest(engine, best) if keep and best is not None else None
    for runs, keys, counts in engine.loops.count(counting, engine.memory, engine.tick):
        for lo in range(0, len(keys), limits.BLOCK):
            part = slice(lo, lo + limits.BLOCK)
            piece = _decode(engine, rest, keys[part], counts[part])
            if first is not None and runs is not None:
                codes = runs[part]
                piece.columns[first] = codes.astype(code_type(engine.domains[first]))
            if leaders is not None:
                leaders.add(piece)
            else:
                pieces.append(piece)
                held += piece.nbytes
                engine.memory.need(held + limits.BLOCK * 48)
            engine.tick()
    if leaders is not None:
        return leaders.table(), counting.most
    if not keep:
        return None, counting.most
    engine.memory.need(held + held // 2)
    table = _stack(engine, output, pieces)
    if first is not None:
        table.descents[first] = 0
    return table, counting.most


def _frequencies(
    engine: Engine, table: Table, attribute: int, *, keep: bool
) -> tuple[Table | None, int]:
    """Count how often each code occurs."""
    engine.memory.need(24 * engine.domains[attribute])
    known = table.indexes.get((attribute,))
    if known is None:
        column = table.columns[attribute]
        start = engine.loops.histogram(column, engine.domains[attribute], engine.tick)
    else:
        start = known.start
    counts = np.diff(start)
    most = int(counts.max(initial=0))
    if not keep:
        return None, most
    keys = np.flatnonzero(counts)
    return _decode(engine, (attribute,), keys, counts[keys]), most


def _arrange(join: Join, output: tuple[int, ...]) -> tuple[Join, int | None]:
    """Choose which side drives, and which of its attributes numbers the runs, if any does.

    The counts of one run should take little room; after that, sorting costs most.
    """
    engine = join.engine
    size = engine.size(output)
    found: list[tuple[bool, int, int, int | None, Join]] = []
    for side in (join,) if join.right is None else (join, join.swapped()):
        left, right = side.left, side.right
        own = [a for a in output if a in left.columns]
        cost = left.rows + (0 if right is None else _sorting(right, side.by()))
        if own and size <= min(limits.MOST_CELLS, 4 * left.rows):
            found.append((False, cost, 0, None, side))
        for a in own:
            wide = size // max(1, engine.domains[a]) > limits.MOST_CELLS
            found.append((wide, cost + _sorting(left, (a,)), -engine.domains[a], a, side))
    if not found:
        raise NotInArrays("no output")
    _, _, _, first, join = min(found, key=lambda choice: choice[:3])
    return join, first


def _sorting(table: Table, attributes: tuple[int, ...]) -> int:
    """Return about how many rows must be moved for an index; in places nearby costs less."""
    if not attributes or attributes in table.indexes:
        return 0
    if len(attributes) > 1:
        return table.rows * len(attributes)
    disorder = table.disorder(attributes[0])
    return disorder and table.rows // 4 + 2 * disorder


def _counting(join: Join, first: int | None, rest: tuple[int, ...], *, keep: bool) -> Counting:
    engine, left = join.engine, join.left
    runs, order = None, None
    if first is not None:
        index = engine.index(left, (first,))
        runs, order = index.start, index.order
    radices = engine.radices(rest)
    by_match = join.index()
    right = join.right
    left_part = tuple((left.columns[a], radices[a]) for a in rest if a in left.columns)
    right_part = []
    for a in rest:
        if a not in left.columns and right is not None:
            column = right.columns[a] if by_match is None else by_match.sorted(a, engine)
            right_part.append((column, radices[a]))
    return Counting(
        match=join.match(order),
        left_part=left_part,
        right_part=tuple(right_part),
        width=engine.size(rest),
        runs=runs,
        keep=keep,
        pairs=join.pairs(),
    )


class _Largest:
    """The largest count seen per value of some attributes."""

    def __init__(self, engine: Engine, attributes: tuple[int, ...]) -> None:
        if engine.size(attributes) > limits.MOST_CELLS:
            raise NotInArrays("key space")
        self.engine = engine
        self.attributes = attributes
        engine.memory.need(engine.size(attributes) * 16)
        self.counts = np.zeros(engine.size(attributes), dtype=np.int64)

    def add(self, piece: Table) -> None:
        """Take complete groups into account."""
        key = _number(self.engine, self.attributes, piece)
        if piece.weight is None:
            self.counts[key[self.counts[key] == 0]] = 1
        else:
            np.maximum.at(self.counts, key, piece.weight.astype(np.int64))

    def table(self) -> Table:
        """Return the values that occur, with their largest counts."""
        keys = np.flatnonzero(self.counts)
        return _decode(self.engine, self.attributes, keys, self.counts[keys])


def _number(engine: Engine, attributes: tuple[int, ...], table: Table) -> Ints:
    """Return the numbers of the rows' values."""
    radices = engine.radices(attributes)
    key = np.zeros(table.rows, dtype=np.int64)
    for a in attributes:
        key += table.columns[a].astype(np.int64) * radices[a]
    return key


def _decode(engine: Engine, radix: tuple[int, ...], keys: Ints, counts: Ints) -> Table:
    """Turn keys back into columns, and counts into the narrowest weights."""
    columns: dict[int, Ints] = {}
    for a in reversed(radix[1:]):
        keys, digit = np.divmod(keys, max(1, engine.domains[a]))
        columns[a] = digit.astype(code_type(engine.domains[a]))
    if radix:
        columns[radix[0]] = keys.astype(code_type(engine.domains[radix[0]]))
    most = int(counts.max(initial=0))
    return Table(columns, counts.astype(weight_type(most)) if most > 1 else None, len(keys))


def _stack(engine: Engine, output: tuple[int, ...], pieces: list[Table]) -> Table:
    """Put the pieces of a table together, column by column."""
    rows = sum(piece.rows for piece in pieces)
    columns: dict[int, Ints] = {}
    for a in output:
        parts = [piece.columns.pop(a) for piece in pieces]
        columns[a] = np.concatenate(parts or [np.zeros(0, dtype=code_type(engine.domains[a]))])
        engine.tick()
    if all(piece.weight is None for piece in pieces):
        return Table(columns, None, rows)
    weights = [
        np.ones(piece.rows, dtype=np.int32) if piece.weight is None else piece.weight
        for piece in pieces
    ]
    return Table(columns, np.concatenate(weights), rows)


def top(join: Join) -> int:
    """Return the maximum of a product that sums nothing, by common values, without forming it."""
    left, right = join.left, join.right
    if right is None:
        raise NotInArrays("not a product")
    if left.heaviest() * right.heaviest() >= LIMIT:
        raise NotInArrays("counts past 2^62")
    if not join.shared:
        return left.heaviest() * right.heaviest()
    engine, shared = join.engine, join.shared
    sides = [
        group(Join(engine, table, None, ()), shared, keep=True, largest=True)[0]
        for table in (left, right)
    ]
    best = [table for table in sides if table is not None]
    _, most = group(Join(engine, best[0], best[1], shared), shared, keep=False)
    for table in best:
        engine.memory.release(sum(index.held for index in table.indexes.values()))
    return most
