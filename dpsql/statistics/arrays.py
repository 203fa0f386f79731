"""Tables of small integer codes, and the two things the kernel does to them: join and count.

Everything is exact: weights are int64 and ``check_total`` proves, before multiplying, that
no sum can pass 2^62.  Work goes in blocks of about a million rows with a ``tick`` after
each, so that a cancel is noticed, and every large array is announced to ``Memory`` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
#: Keys of complete groups, ascending, their counts (``None``: all 1) and the largest count.
Run = tuple[Ints, Ints | None, int]

#: Rows (or pairs) handled between two ticks.
BLOCK = 1 << 17
#: Cells of a dense accumulator.
_CELLS = 1 << 20
#: Cells of the largest dense accumulator.
MOST_CELLS = 4 * _CELLS
_LIMIT = float(2**62)
#: Rows with the same first value that a probing index looks through.
_MOST_PROBES = 12


class NotInArrays(Exception):
    """The plan does not fit: too much memory, counts past 2^62, or keys that are not integers."""


@dataclass(slots=True)
class Memory:
    """Bytes that the kernel may hold, and holds."""

    limit: int
    used: int = 0
    peak: int = 0

    def need(self, extra: int) -> None:
        """Raise unless ``extra`` more bytes fit, for now."""
        if self.used + extra > self.limit:
            raise NotInArrays("memory bound")
        self.peak = max(self.peak, self.used + extra)

    def hold(self, extra: int) -> None:
        """Keep ``extra`` bytes."""
        self.need(extra)
        self.used += extra

    def release(self, extra: int) -> None:
        """Give bytes back."""
        self.used -= extra


@dataclass(slots=True)
class Table:
    """Columns of codes by attribute, with one weight per row (``None``: all 1)."""

    columns: dict[int, Ints]
    weight: Ints | None
    rows: int
    held: int = 0  # bytes of columns and weights that are not shared with another table
    indexes: dict[tuple[int, ...], Index] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of columns and weights."""
        own = sum(c.nbytes for c in self.columns.values())
        return own + (0 if self.weight is None else self.weight.nbytes)

    def owned(self) -> int:
        """Bytes that dropping the table frees."""
        return self.held + sum(index.nbytes for index in self.indexes.values())


@dataclass(slots=True)
class Index:
    """Rows of a table by the key of some attributes.

    Row numbers ``order[start[k]:start[k + 1]]`` have key ``k`` (dense), or key ``keys[k]``.
    """

    order: Ints | None  # None: the rows are in key order already
    start: Ints
    keys: Ints | None
    unique: bool
    rest: Ints | None = None  # unique and not dense: ``start`` is by the first attribute only,
    most: int = 0  # ``rest`` numbers the others, and at most this many rows share a first value

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays = (self.order, self.start, self.keys, self.rest)
        return sum(a.nbytes for a in arrays if a is not None)

    def find(
        self, engine: Engine, columns: dict[int, Ints], attributes: tuple[int, ...]
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Return where the one match of each row is, and whether there is one (unique indexes)."""
        if self.rest is None:
            slots = self.slots(engine.key(columns, attributes))
            at = self.start[slots]
            return at, self.start[1:][slots] > at
        first = columns[attributes[0]]
        begin, end = self.start[first], self.start[1:][first]
        key = engine.key(columns, attributes[1:])
        place = np.zeros(len(first), dtype=begin.dtype)
        found = np.zeros(len(first), dtype=bool)
        for _ in range(self.most):
            open_ = begin < end
            same = open_ & (self.rest[np.where(open_, begin, 0)] == key)
            place[same] = begin[same]
            found |= same
            begin = begin + 1
        return place, found

    def slots(self, keys: Ints) -> Ints:
        """Return the position in ``start`` of each key, an empty slot's for absent ones."""
        if self.keys is None:
            return keys
        at = np.searchsorted(self.keys, keys)
        at[at == len(self.keys)] = 0
        missing = self.keys[at] != keys if len(self.keys) else np.ones(len(keys), dtype=bool)
        at[missing] = len(self.keys)
        return at


@dataclass(slots=True)
class Engine:
    """Joins and counts under one memory bound; ``domains[a]`` is the number of codes of ``a``."""

    domains: dict[int, int]
    memory: Memory
    tick: Callable[[], None]

    def size(self, attributes: tuple[int, ...]) -> int:
        """Return the number of possible keys of some attributes."""
        size = 1
        for a in attributes:
            size *= max(1, self.domains[a])
        return size

    def key(self, columns: dict[int, Ints], attributes: tuple[int, ...]) -> Ints:
        """Return the number of each row's values of ``attributes`` (mixed radix)."""
        if self.size(attributes) >= 2**62:
            raise NotInArrays("key space")
        key: Ints | None = None
        for a in attributes:
            column = columns[a]
            if key is None:
                key = column if len(attributes) == 1 else column.astype(np.int64)
            else:
                key *= self.domains[a]
                key += column
        if key is None:
            raise NotInArrays("no key")
        return key

    def index(self, table: Table, attributes: tuple[int, ...]) -> Index:
        """Find, or make, the index of a table on some attributes."""
        known = table.indexes.get(attributes)
        if known is not None:
            return known
        size = self.size(attributes)
        dense = size <= max(1 << 16, 8 * table.rows)
        self.memory.need(table.rows * 12 + (4 * size if dense else 24 * table.rows))
        key = self.key(table.columns, attributes)
        order: Ints | None = None
        if table.rows > 1 and bool((key[1:] < key[:-1]).any()):
            order = np.argsort(key, kind="stable")
            self.tick()
            if not dense:
                key = key[order]
            order = order.astype(np.int32) if table.rows < 2**31 else order
        if dense:
            start = np.zeros(size + 1, dtype=np.int32 if table.rows < 2**31 else np.int64)
            for lo in range(0, table.rows, BLOCK):
                np.add.at(start[1:], key[lo : lo + BLOCK], 1)
                self.tick()
            unique = bool(start.max(initial=0) <= 1)
            np.cumsum(start, out=start)
            index = Index(order, start, None, unique)
        else:
            edges = np.flatnonzero(key[1:] != key[:-1]) + 1 if table.rows else np.zeros(0, int)
            first = np.concatenate(([0], edges)) if table.rows else edges
            unique = len(first) == table.rows
            probe = self._probe(table, attributes) if unique and len(attributes) > 1 else None
            start = np.concatenate((first, [table.rows, table.rows])).astype(np.int64)
            index = probe or Index(order, start, key[first], unique)
        self.tick()
        self.memory.hold(index.nbytes)
        table.indexes[attributes] = index
        return index

    def _probe(self, table: Table, attributes: tuple[int, ...]) -> Index | None:
        """Index by the first attribute alone, when few rows share a value of it.

        A few passes over a short list beat a binary search in a long one.
        """
        by_first = self.index(table, attributes[:1])
        counts = np.diff(by_first.start)
        most = int(counts.max(initial=0))
        if by_first.keys is not None or most > _MOST_PROBES or not table.rows:
            return None
        rest = self.key(table.columns, attributes[1:])
        if by_first.order is not None:
            rest = rest[by_first.order]
        return Index(by_first.order, by_first.start, None, True, rest, most)


@dataclass(slots=True)
class Rows:
    """Something that yields rows in blocks: a table, or the join of two, sorted by nothing.

    ``bounds`` are positions in the driving table; ``ends`` counts the pairs up to each.
    """

    engine: Engine
    left: Table
    right: Table | None
    shared: tuple[int, ...]
    _start: Ints | None = None
    _count: Ints | None = None
    index: Index | None = None

    def prepare(self) -> None:
        """Match the left rows with the index of the right ones, unless a block can do it later."""
        if self.right is None or self.index is not None or self._count is not None:
            return
        if not self.shared:
            self._start = np.zeros(self.left.rows, dtype=np.int32)
            self._count = np.full(self.left.rows, self.right.rows, dtype=np.int64)
            return
        index = self.index = self.engine.index(self.right, self.shared)
        if index.unique:
            return
        self.engine.memory.need(self.left.rows * 24 + BLOCK * 40)
        start = np.empty(self.left.rows, dtype=np.int32)
        count = np.empty(self.left.rows, dtype=np.int32)
        for lo in range(0, self.left.rows, BLOCK):
            part = slice(lo, lo + BLOCK)
            columns = {a: self.left.columns[a][part] for a in self.shared}
            slots = index.slots(self.engine.key(columns, self.shared))
            start[part] = index.start[slots]
            count[part] = index.start[1:][slots] - start[part]
            self.engine.tick()
        self._start, self._count = start, count

    def ends(self) -> Ints | None:
        """Return the number of pairs up to each left row, inclusive; ``None``: at most one each."""
        self.prepare()
        return None if self._count is None else np.cumsum(self._count, dtype=np.int64)

    def check_total(self) -> None:
        """Raise unless all weights together, hence every sum of them, stay below 2^62."""
        self.prepare()
        left = self.left.weight
        if self._count is None or self._start is None:
            total = float(self.left.rows) if left is None else float(left.sum(dtype=np.float64))
            if self.right is not None and self.right.weight is not None:
                total *= float(self.right.weight.max(initial=0))
        else:
            weight = None if self.right is None else self.right.weight
            if weight is None:
                per_row = self._count.astype(np.float64)
            else:
                order = None if self.index is None else self.index.order
                ordered = weight if order is None else weight[order]
                sums = np.concatenate(([0.0], np.cumsum(ordered, dtype=np.float64)))
                # cumulative differences lose digits; the largest weight bounds each match
                bound = float(weight.max(initial=0)) * self._count
                per_row = np.minimum(
                    sums[self._start + self._count] - sums[self._start] + sums[-1] * 1e-9, bound
                )
            total = float((per_row if left is None else per_row * left).sum())
        if not total < _LIMIT * 0.99:
            raise NotInArrays("counts past 2^62")

    def block(self, lo: int, hi: int, want: tuple[int, ...]) -> tuple[dict[int, Ints], Ints | None]:
        """Return the wanted columns and the weights of the rows that left rows lo..hi give."""
        left, right, index = self.left, self.right, self.index
        if right is None:
            columns = {a: left.columns[a][lo:hi] for a in want}
            return columns, None if left.weight is None else left.weight[lo:hi].astype(np.int64)
        if index is not None and index.unique:
            part = {a: left.columns[a][lo:hi] for a in self.shared}
            ir, found = index.find(self.engine, part, self.shared)
            il: Ints = np.flatnonzero(found)
            ir = ir[il]
            il += lo
        elif self._count is not None and self._start is not None:
            count, start = self._count[lo:hi], self._start[lo:hi]
            il = np.repeat(np.arange(lo, hi), count)
            ends = np.cumsum(count, dtype=np.int64)
            ir = np.arange(len(il)) + np.repeat(start - (ends - count), count)
        else:
            raise NotInArrays("not prepared")
        if index is not None and index.order is not None:
            ir = index.order[ir]
        columns = {
            a: left.columns[a][il] if a in left.columns else right.columns[a][ir] for a in want
        }
        weight: Ints | None = None
        if left.weight is not None:
            weight = left.weight[il].astype(np.int64)
            if right.weight is not None:
                weight *= right.weight[ir]
        elif right.weight is not None:
            weight = right.weight[ir].astype(np.int64)
        return columns, weight

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Cut the left rows so that each piece gives about ``BLOCK`` rows."""
        yield from cut(self.ends(), 0, self.left.rows)


def cut(ends: Ints | None, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Cut ``lo..hi`` into pieces of about ``BLOCK`` pairs, at least one row each."""
    while lo < hi:
        if ends is None:
            to = min(hi, lo + BLOCK)
        else:
            before = int(ends[lo - 1]) if lo else 0
            to = int(np.searchsorted(ends, before + BLOCK, side="right"))
            to = min(hi, max(lo + 1, to), lo + 8 * BLOCK)
        yield lo, to
        lo = to


def collect(rows: Rows, output: tuple[int, ...]) -> Table:
    """Keep all rows, as a bag."""
    engine = rows.engine
    rows.check_total()
    shared = _collect_shared(rows, output)
    if shared is not None:
        return shared
    ends = rows.ends()
    most = rows.left.rows if ends is None else (int(ends[-1]) if len(ends) else 0)
    sources = [t for t in (rows.left, rows.right) if t is not None]
    weighted = any(t.weight is not None for t in sources)
    dtypes = {a: next(t.columns[a].dtype for t in sources if a in t.columns) for a in output}
    engine.memory.need(
        most * (sum(d.itemsize for d in dtypes.values()) + 8 * weighted) + BLOCK * 80
    )
    columns = {a: np.empty(most, dtype=dtypes[a]) for a in output}
    weight = np.empty(most, dtype=np.int64) if weighted else None
    at = 0
    for lo, hi in rows.blocks():
        part, w = rows.block(lo, hi, output)
        n = len(next(iter(part.values())))
        for a in output:
            columns[a][at : at + n] = part[a]
        if weight is not None:
            weight[at : at + n] = 1 if w is None else w
        at += n
        engine.tick()
    table = Table(
        {a: c[:at] for a, c in columns.items()}, None if weight is None else weight[:at], at
    )
    table.held = sum(c.nbytes for c in columns.values())
    table.held += 0 if weight is None else weight.nbytes
    return table


def _collect_shared(rows: Rows, output: tuple[int, ...]) -> Table | None:
    """Keep the left columns as they are when every left row has exactly one match."""
    engine, left, right, index = rows.engine, rows.left, rows.right, rows.index
    if right is None or index is None or not index.unique or right.weight is not None:
        return None
    added = {a: right.columns[a] for a in output if a not in left.columns}
    held = sum(c.dtype.itemsize for c in added.values()) * left.rows
    engine.memory.need(held + BLOCK * 60)
    new = {a: np.empty(left.rows, dtype=c.dtype) for a, c in added.items()}
    for lo in range(0, left.rows, BLOCK):
        part = {a: left.columns[a][lo : lo + BLOCK] for a in rows.shared}
        at, found = index.find(engine, part, rows.shared)
        if not bool(found.all()):
            return None
        if index.order is not None:
            at = index.order[at]
        for a, column in added.items():
            new[a][lo : lo + BLOCK] = column[at]
        engine.tick()
    columns = {a: new[a] if a in new else left.columns[a] for a in output}
    return Table(columns, left.weight, left.rows, held)


def total(rows: Rows) -> int:
    """Sum all weights."""
    rows.check_total()
    if rows.right is None:
        weight = rows.left.weight
        return rows.left.rows if weight is None else int(weight.sum(dtype=np.int64))
    ends = rows.ends()
    if rows.right.weight is None and rows.left.weight is None and ends is not None:
        return int(ends[-1]) if len(ends) else 0
    result = 0
    any_column = tuple(rows.left.columns)[:1]
    for lo, hi in rows.blocks():
        columns, weight = rows.block(lo, hi, any_column)
        result += len(next(iter(columns.values()))) if weight is None else int(weight.sum())
        rows.engine.tick()
    return result


def top(rows: Rows) -> int:
    """Return the maximum of a product that sums nothing, by common values, without forming it."""
    if rows.right is None:
        raise NotInArrays("not a product")
    left, right = (_best(rows.engine, table, rows.shared) for table in (rows.left, rows.right))
    largest = float(left[1].max(initial=0)) * float(right[1].max(initial=0))
    if not largest < _LIMIT:
        raise NotInArrays("counts past 2^62")
    if not len(left[0]) or not len(right[0]):
        return 0
    _, il, ir = np.intersect1d(left[0], right[0], assume_unique=True, return_indices=True)
    rows.engine.tick()
    return int((left[1][il] * right[1][ir]).max(initial=0))


def _best(engine: Engine, table: Table, shared: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return the keys of ``shared`` that occur and the largest weight of each."""
    if not shared:
        most = 1 if table.weight is None else int(table.weight.max(initial=0))
        return np.zeros(min(1, table.rows), dtype=np.int64), np.array([most][: table.rows])
    size = engine.size(shared)
    if size <= max(1 << 16, 8 * table.rows):
        engine.memory.need(size * 24 + BLOCK * 24)
        best = np.zeros(size, dtype=np.int64)
        for lo in range(0, table.rows, BLOCK):
            key = engine.key({a: table.columns[a][lo : lo + BLOCK] for a in shared}, shared)
            if table.weight is None:
                best[key] = 1
            else:
                np.maximum.at(best, key, table.weight[lo : lo + BLOCK])
            engine.tick()
        keys = np.flatnonzero(best)
        return keys, best[keys]
    engine.memory.need(table.rows * 40)
    key = engine.key(table.columns, shared)
    order = np.argsort(key)
    engine.tick()
    key = key[order].astype(np.int64)
    edges = _edges(key)
    if table.weight is None:
        return key[edges], np.ones(len(edges), dtype=np.int64)
    return key[edges], np.maximum.reduceat(table.weight[order].astype(np.int64), edges)


def group(
    rows: Rows, output: tuple[int, ...], *, keep: bool, best: tuple[int, ...] | None = None
) -> tuple[Table | None, int]:
    """Count per value of ``output``: the table (if ``keep``) and the maximum.

    With ``best`` the table is only the largest count per value of those attributes.

    Rows are visited in the order of one output attribute of the driving table, so that
    each run of its values is complete when the next begins.
    """
    engine = rows.engine
    first = next((a for a in output if a in rows.left.columns), None)
    if first is None:
        if rows.right is None:
            raise NotInArrays("no output")
        rows = Rows(engine, rows.right, rows.left, rows.shared)
        first = next(a for a in output if a in rows.left.columns)
    radix = (first, *(a for a in output if a != first))
    if engine.size(radix) <= MOST_CELLS and engine.size(radix) <= max(_CELLS, 4 * rows.left.rows):
        engine.memory.need(engine.size(radix) * 16 + BLOCK * 60)
        rows.check_total()
        ends, cells = rows.ends(), (0, engine.size(radix))
        whole = _dense(rows, radix, ends, (0, rows.left.rows), cells)
        runs: Iterable[Run] = [] if whole is None else [whole]
    elif _flat(rows, radix):
        runs = _flat_runs(rows, radix)
    else:
        engine.memory.need(BLOCK * 100 + _CELLS * 16)
        rows = Rows(engine, _sorted(rows, first), rows.right, rows.shared)
        rows.check_total()
        runs = _runs(rows, radix)
    pieces: list[Table] = []
    held, maximum = 0, 0
    largest = _Largest(engine, best) if keep and best is not None else None
    for keys, weights, most in runs:
        maximum = max(maximum, most)
        if largest is not None:
            largest.add(_decode(engine, radix, keys, weights, most))
        elif keep:
            pieces.append(_decode(engine, radix, keys, weights, most))
            held += pieces[-1].nbytes
            engine.memory.need(held + BLOCK * 100)
    if largest is not None:
        return largest.table(), maximum
    if not keep:
        return None, maximum
    engine.memory.need(held + held // 2)
    return _stack(engine, radix, pieces), maximum


class _Largest:
    """The largest count seen per value of some attributes."""

    def __init__(self, engine: Engine, attributes: tuple[int, ...]) -> None:
        if engine.size(attributes) > MOST_CELLS:
            raise NotInArrays("key space")
        self.engine = engine
        self.attributes = attributes
        self.counts = np.zeros(engine.size(attributes), dtype=np.int64)

    def add(self, piece: Table) -> None:
        """Take complete groups into account."""
        key = self.engine.key(piece.columns, self.attributes)
        np.maximum.at(self.counts, key, 1 if piece.weight is None else piece.weight)

    def table(self) -> Table:
        """Return the values that occur, with their largest counts."""
        keys = np.flatnonzero(self.counts)
        counts = self.counts[keys]
        return _decode(self.engine, self.attributes, keys, counts, int(counts.max(initial=0)))


def _flat(rows: Rows, radix: tuple[int, ...]) -> bool:
    """Whether to sort all keys at once: many rows, each of weight 1, in no useful order."""
    column = rows.left.columns[radix[0]]
    if rows.left.weight is not None or (rows.right is not None and rows.right.weight is not None):
        return False
    ends = rows.ends()
    pairs = rows.left.rows if ends is None else (int(ends[-1]) if len(ends) else 0)
    if rows.left.rows < 8 * BLOCK or pairs > 2 * rows.left.rows:
        return False
    if rows.engine.size(radix) <= 4 * pairs:
        return False
    return bool((column[1:] < column[:-1]).any())


def _flat_runs(rows: Rows, radix: tuple[int, ...]) -> Iterator[Run]:
    """Sort the keys of all rows, in place, and yield the groups block by block."""
    engine = rows.engine
    ends = rows.ends()
    pairs = rows.left.rows if ends is None else int(ends[-1])
    engine.memory.need(pairs * 8 + BLOCK * 100)
    keys = np.empty(pairs, dtype=np.int64)
    at = 0
    for lo, hi in rows.blocks():
        part, _ = rows.block(lo, hi, radix)
        key = engine.key(part, radix)
        keys[at : at + len(key)] = key
        at += len(key)
        engine.tick()
    pairs = at
    sort_in_parts(keys[:at], engine.tick)
    lo = 0
    engine.memory.hold(keys.nbytes)
    while lo < pairs:
        last = keys[min(lo + BLOCK, pairs) - 1]
        hi = int(np.searchsorted(keys[:pairs], last, side="right"))
        part_keys = keys[lo:hi]
        edges = _edges(part_keys)
        sizes = np.diff(edges, append=len(part_keys))
        yield part_keys[edges], sizes, int(sizes.max())
        engine.tick()
        lo = hi
    engine.memory.release(keys.nbytes)


def sort_in_parts(keys: Ints, tick: Callable[[], None]) -> None:
    """Sort in place, a block at a time: halves around a median until they are small."""
    spans = [(0, len(keys))]
    while spans:
        lo, hi = spans.pop()
        part = keys[lo:hi]
        if hi - lo <= 8 * BLOCK:
            part.sort()
        else:
            middle = (hi - lo) // 2
            part.partition(middle)
            spans += [(lo, lo + middle), (lo + middle, hi)]
        tick()


def _sorted(rows: Rows, attribute: int) -> Table:
    """Return the driving table in the order of ``attribute``."""
    left = rows.left
    column = left.columns[attribute]
    if left.rows < 2 or not bool((column[1:] < column[:-1]).any()):
        return left
    rows.engine.memory.need(left.nbytes + 8 * left.rows)
    order = np.argsort(column, kind="stable")
    rows.engine.tick()
    need = tuple(left.columns)
    return Table(
        {a: left.columns[a][order] for a in need},
        None if left.weight is None else left.weight[order],
        left.rows,
    )


def _runs(rows: Rows, radix: tuple[int, ...]) -> Iterator[Run]:
    """Yield complete groups: their keys, ascending over all, their counts and the largest."""
    engine = rows.engine
    column = rows.left.columns[radix[0]]
    ends = rows.ends()
    if not rows.left.rows:
        return
    width = engine.size(radix[1:])
    pairs = rows.left.rows if ends is None else int(ends[-1])
    dense = engine.size(radix) <= max(_CELLS, 4 * pairs) and width <= MOST_CELLS
    most = max(1, _CELLS // width) if dense else engine.domains[radix[0]]
    lo = 0
    while lo < rows.left.rows:
        low = int(column[lo])
        hi = _end_of_run(column, ends, lo, low + most - 1)
        span = int(column[hi - 1]) - low + 1
        gather = _dense if dense else _sparse
        result = gather(rows, radix, ends, (lo, hi), (low, span * width))
        if result is not None:
            yield result
        engine.tick()
        lo = hi


def _end_of_run(column: Ints, ends: Ints | None, lo: int, last: int) -> int:
    """Find the end of the run of rows that start at ``lo``: whole values, about a block."""
    hi = next(cut(ends, lo, len(column)))[1]
    value = min(int(column[hi - 1]), last)
    # whole values only: up to the last row of this value, or of the one before
    to = int(np.searchsorted(column, column.dtype.type(value), side="right"))
    if to > hi:
        before = int(np.searchsorted(column, column.dtype.type(value), side="left"))
        return before if before > lo else to
    return to


def _dense(
    rows: Rows,
    radix: tuple[int, ...],
    ends: Ints | None,
    span: tuple[int, int],
    cells: tuple[int, int],
) -> Run | None:
    """Count into an array that has a cell for every possible key of the run."""
    engine = rows.engine
    low, size = cells
    offset = low * engine.size(radix[1:])
    counts: Ints | None = None
    for lo, hi in cut(ends, *span):
        columns, weight = rows.block(lo, hi, radix)
        key = engine.key(columns, radix)
        if not len(key):
            continue
        key = key - np.int64(offset) if key.dtype.kind == "i" else key.astype(np.int64) - offset
        if weight is None and counts is None and size <= 4 * len(key):
            counts = np.bincount(key, minlength=size)
        elif counts is None:
            counts = np.zeros(size, dtype=np.int64)
            np.add.at(counts, key, 1 if weight is None else weight)
        else:
            np.add.at(counts, key, 1 if weight is None else weight)
        engine.tick()
    if counts is None:
        return None
    keys = np.flatnonzero(counts)
    if not len(keys):
        return None
    counts = counts[keys]
    return keys + offset, counts, int(counts.max())


def _sparse(
    rows: Rows,
    radix: tuple[int, ...],
    ends: Ints | None,
    span: tuple[int, int],
    cells: tuple[int, int],  # noqa: ARG001 - the same signature as _dense
) -> Run | None:
    """Sort the keys of the run and count equal ones; reduce whenever the buffer is full."""
    engine = rows.engine
    keys: list[Ints] = []
    weights: list[Ints | None] = []
    buffered = 0
    for lo, hi in cut(ends, *span):
        columns, weight = rows.block(lo, hi, radix)
        key = engine.key(columns, radix)
        keys.append(key.astype(np.int64) if len(radix) == 1 else key)
        weights.append(weight)
        buffered += len(key)
        engine.memory.need(buffered * 48)
        engine.tick()
        if buffered > 8 * BLOCK:
            merged, sums = _reduce(keys, weights)
            keys, weights, buffered = [merged], [sums], len(merged)
    merged, sums = _reduce(keys, weights)
    if not len(merged):
        return None
    return merged, sums, 1 if sums is None else int(sums.max())


def _reduce(keys: list[Ints], weights: list[Ints | None]) -> tuple[Ints, Ints | None]:
    """Sort and add up equal keys."""
    key = keys[0] if len(keys) == 1 else np.concatenate(keys)
    if not len(key):
        return key, None
    if all(w is None for w in weights):
        key = np.sort(key)
        edges = _edges(key)
        if len(edges) == len(key):
            return key, None
        return key[edges], np.diff(edges, append=len(key))
    weight = np.concatenate(
        [
            np.ones(len(k), dtype=np.int64) if w is None else w
            for k, w in zip(keys, weights, strict=True)
        ]
    )
    order = np.argsort(key)
    key = key[order]
    edges = _edges(key)
    return key[edges], np.add.reduceat(weight[order], edges)


def _edges(key: Ints) -> Ints:
    """Return the positions where a sorted key changes."""
    if not len(key):
        return np.zeros(0, dtype=np.int64)
    change = np.empty(len(key), dtype=bool)
    change[0] = True
    np.not_equal(key[1:], key[:-1], out=change[1:])
    return np.flatnonzero(change)


def _decode(
    engine: Engine, radix: tuple[int, ...], keys: Ints, counts: Ints | None, top: int
) -> Table:
    """Turn keys back into columns, and counts into the narrowest weights."""
    columns: dict[int, Ints] = {}
    rest = keys
    for a in reversed(radix):
        domain = engine.domains[a]
        if a == radix[0]:
            digit = rest
        else:
            rest, digit = np.divmod(rest, domain)
        columns[a] = digit.astype(code_type(domain))
    weight = None
    if top > 1 and counts is not None:
        weight = counts.astype(np.int32 if top < 2**31 else np.int64)
    return Table(columns, weight, len(keys))


def _stack(engine: Engine, radix: tuple[int, ...], pieces: list[Table]) -> Table:
    """Put the pieces of a table together, column by column."""
    rows = sum(piece.rows for piece in pieces)
    columns: dict[int, Ints] = {}
    for a in radix:
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


def code_type(domain: int) -> Any:
    """Return the narrowest type that the kernel uses for codes below ``domain``."""
    return np.int16 if domain < 2**15 else np.int32 if domain < 2**31 else np.int64
