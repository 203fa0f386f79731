"""The compiled inner loops, through ctypes: layouts and buffers for `sql/hook/kernel.h`.

A backend that has read columns has loaded the library, with its symbols visible to the whole
process; so nothing has to know where the file lies.  Elsewhere ``load`` finds nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.statistics import limits
from dpsql.statistics.arrays import LIMIT, Ints, Key, Memory, NotInArrays, OutOfMemory
from dpsql.statistics.loops import Counting, Match, Piece, Tick

#: Of the layouts below; the same number as in kernel_codes.c.
VERSION = 1
_COLUMNS = 8
_DONE, _PAUSED, _FULL, _CROWDED, _OVERFLOWN = range(5)
#: Pairs per possible key of a run from which going through all keys beats a list of those that
#: occur: when counts are handed over, and when they are only cleared.
_DENSE = {True: 0.5, False: 1 / 16}

_pointer, _int64 = ctypes.c_void_p, ctypes.c_int64


class _Column(ctypes.Structure):
    _fields_ = (("values", _pointer), ("width", _int64), ("radix", _int64))


class _Key(ctypes.Structure):
    _fields_ = (("number", _int64), ("columns", _Column * _COLUMNS))


class _Match(ctypes.Structure):
    _fields_ = (
        ("order", _pointer),
        ("rows", _int64),
        ("bucket", _Key),
        ("rest", _Key),
        ("weight", _Column),
        ("start", _pointer),
        ("right_rest", _Key),
        ("right_weight", _Column),
        ("position", _int64),
        ("inside", _int64),
    )


class _Count(ctypes.Structure):
    _fields_ = (
        ("match", _Match),
        ("left_part", _Key),
        ("right_part", _Key),
        ("runs", _pointer),
        ("run", _int64),
        ("run_count", _int64),
        ("largest", _int64),
        ("sums", _pointer),
        ("capacity", _int64),
        ("hashed", _pointer),
        ("touched", _pointer),
        ("touched_count", _int64),
        ("most", _int64),
        ("needed", _int64),
        ("room", _int64),
        ("emitted", _int64),
        ("out_run", _pointer),
        ("out_key", _pointer),
        ("out_count", _pointer),
    )


@cache
def load(path: str | None = None) -> Native | None:
    """Return the loops of this process, or of a library; ``None`` where they are not.

    Parameters
    ----------
    path : str, optional
        A shared library to load; without it only what the process has loaded is looked at.
    """
    try:
        library = ctypes.CDLL(path)
        version = library.dpsql_arrays_version
    except (OSError, AttributeError):
        return None
    return Native(library) if version() == VERSION else None


class Native:
    """The compiled loops; see `dpsql.statistics.loops.Loops`."""

    def __init__(self, library: Any) -> None:
        self._mark = library.dpsql_mark
        self._mark.argtypes = (_pointer, _int64, _int64, _int64, _int64, _pointer)
        self._mark.restype = None
        self._translate = library.dpsql_translate
        self._translate.argtypes = (*self._mark.argtypes, _pointer, _int64)
        self._translate.restype = None
        self._histogram = library.dpsql_histogram
        self._histogram.argtypes = (_pointer, _int64, _int64, _int64, _pointer)
        self._histogram.restype = None
        self._place = library.dpsql_place
        self._place.argtypes = (_pointer, _int64, _pointer, _int64, _int64, _pointer, _pointer)
        self._place.restype = None
        self._pairs = library.dpsql_pairs
        self._pairs.argtypes = (_pointer, _pointer, _pointer, _int64, _pointer)
        self._count = library.dpsql_count
        self._count.argtypes = (_pointer, _int64)
        self._rehash = library.dpsql_rehash
        self._rehash.argtypes = (_pointer, _pointer, _pointer, _int64, _pointer)
        self._rehash.restype = None

    def mark(self, values: Ints, low: int, seen: NDArray[np.bool_], tick: Tick) -> None:
        """Note values; see `dpsql.statistics.loops.Loops`."""
        values, width = np.ascontiguousarray(values), values.itemsize
        for lo, hi in _steps(len(values), tick):
            self._mark(values.ctypes.data, width, lo, hi, low, seen.ctypes.data)

    def translate(
        self, values: Ints, low: int, codes: Ints | None, result: Ints, tick: Tick
    ) -> None:
        """Replace values; see `dpsql.statistics.loops.Loops`."""
        values, width = np.ascontiguousarray(values), values.itemsize
        source, table, target = values.ctypes.data, _address(codes), result.ctypes.data
        for lo, hi in _steps(len(values), tick):
            self._translate(source, width, lo, hi, low, table, target, result.itemsize)

    def histogram(self, codes: Ints, size: int, tick: Tick) -> Ints:
        """Count codes; see `dpsql.statistics.loops.Loops`."""
        codes = np.ascontiguousarray(codes)
        counts = np.zeros(size + 1, dtype=np.int32)
        source, above = codes.ctypes.data, counts[1:].ctypes.data
        for lo, hi in _steps(len(codes), tick):
            self._histogram(source, codes.itemsize, lo, hi, above)
        np.cumsum(counts, out=counts)
        return counts

    def place(self, codes: Ints, start: Ints, order: Ints | None, tick: Tick) -> Ints:
        """Sort by counting; see `dpsql.statistics.loops.Loops`."""
        codes = np.ascontiguousarray(codes)
        places, result = start.copy(), np.empty(len(codes), dtype=np.int32)
        source, old = codes.ctypes.data, _address(order)
        free, target = places.ctypes.data, result.ctypes.data
        for lo, hi in _steps(len(codes), tick):
            self._place(source, codes.itemsize, old, lo, hi, free, target)
        return result

    def pairs(self, match: Match, memory: Memory, tick: Tick) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs; see `dpsql.statistics.loops.Loops`."""
        keeper: list[Any] = []
        record = _match(match, keeper)
        memory.need(limits.BLOCK * 8)
        left, right = (np.empty(limits.BLOCK, dtype=np.int32) for _ in range(2))
        found = _int64()
        status = _PAUSED
        while status != _DONE:
            status = self._pairs(
                ctypes.addressof(record),
                left.ctypes.data,
                right.ctypes.data,
                limits.BLOCK,
                ctypes.addressof(found),
            )
            tick()
            if found.value:
                yield left[: found.value], right[: found.value]

    def count(self, counting: Counting, memory: Memory, tick: Tick) -> Iterator[Piece]:
        """Count pairs; see `dpsql.statistics.loops.Loops`."""
        work = _Work(counting, memory)
        try:
            while True:
                status = self._count(ctypes.addressof(work.record), limits.BUDGET)
                tick()
                if status == _OVERFLOWN or work.record.most >= LIMIT:
                    raise NotInArrays("counts past 2^62")
                if status == _CROWDED:
                    self._rehash(ctypes.addressof(work.record), *work.larger())
                    work.moved()
                if status in (_FULL, _DONE):
                    yield from work.drain()
                if status == _DONE:
                    break
            counting.most = work.record.most
            if counting.keep and counting.runs is None:
                keys = np.flatnonzero(work.sums)
                yield None, keys, work.sums[keys]
        finally:
            work.release()


class _Work:
    """The buffers of one count."""

    def __init__(self, counting: Counting, memory: Memory) -> None:
        self.memory = memory
        self.held = 0
        self.keeper: list[Any] = []
        record = self.record = _Count()
        record.match = _match(counting.match, self.keeper)
        record.left_part = _key(counting.left_part, self.keeper)
        record.right_part = _key(counting.right_part, self.keeper)
        record.largest = counting.largest
        width, runs = counting.width, counting.runs
        hashed = width > limits.MOST_CELLS
        per_run = counting.pairs / max(1, 1 if runs is None else len(runs) - 1)
        listed = runs is not None and (hashed or per_run < width * _DENSE[counting.keep])
        if runs is not None:
            runs = _plain(runs, np.int32, self.keeper)
            record.runs, record.run_count = runs.ctypes.data, len(runs) - 1
        self._place_sums(limits.SLOTS if hashed else width, hashed=hashed, listed=listed)
        record.sums, record.capacity = self.sums.ctypes.data, len(self.sums)
        record.hashed, record.touched = _address(self.hashed), _address(self.touched)
        if counting.keep and runs is not None:
            self._place_output(limits.ROOM if listed else max(limits.ROOM, 2 * width) + 1)

    def _take(self, size: int, dtype: Any, fill: int | None = 0) -> Ints:
        array = np.dtype(dtype).itemsize * size
        self.memory.hold(array)
        self.held += array
        if fill is None:
            return np.empty(size, dtype=dtype)
        return np.zeros(size, dtype=dtype) if fill == 0 else np.full(size, fill, dtype=dtype)

    def _place_sums(self, size: int, *, hashed: bool, listed: bool) -> None:
        self.sums = self._take(size, np.int64)
        self.hashed = self._take(size, np.int64, -1) if hashed else None
        self.touched = self._take(size + 1, np.int32, None) if listed else None

    def _place_output(self, room: int) -> None:
        self.runs = self._take(room, np.int32, None)
        self.keys = self._take(room, np.int64, None)
        self.counts = self._take(room, np.int64, None)
        record = self.record
        record.room, record.emitted = room, 0
        record.out_run = self.runs.ctypes.data
        record.out_key = self.keys.ctypes.data
        record.out_count = self.counts.ctypes.data

    def larger(self) -> tuple[int, int, int, int]:
        """Make a larger hash table; the old one stays until ``moved``."""
        size = len(self.sums)
        while size < 4 * self.record.needed:
            size *= 2
        if size > 2**31:
            raise OutOfMemory("hash table")
        self.old = (self.sums, self.hashed, self.touched)
        self._place_sums(size, hashed=True, listed=True)
        hashed, touched = _address(self.hashed), _address(self.touched)
        return hashed or 0, self.sums.ctypes.data, size, touched or 0

    def moved(self) -> None:
        """Let the old hash table go."""
        before = sum(a.nbytes for a in self.old if a is not None)
        self.old = (self.sums, None, None)
        self.memory.release(before)
        self.held -= before

    def drain(self) -> Iterator[Piece]:
        """Hand over what was written down; make room for at least one more run."""
        record = self.record
        n = record.emitted
        if n:
            yield self.runs[:n].copy(), self.keys[:n].copy(), self.counts[:n].copy()
        record.emitted = 0
        if record.touched_count > record.room > 0:
            before = self.runs.nbytes + self.keys.nbytes + self.counts.nbytes
            self.memory.release(before)
            self.held -= before
            self._place_output(2 * record.touched_count)

    def release(self) -> None:
        """Give the memory back."""
        self.memory.release(self.held)
        self.held = 0


def _steps(rows: int, tick: Tick) -> Iterator[tuple[int, int]]:
    """Cut rows into pieces of one call each."""
    for lo in range(0, rows, limits.BUDGET):
        yield lo, min(rows, lo + limits.BUDGET)
        tick()


def _address(array: Ints | None) -> int | None:
    return None if array is None else array.ctypes.data


def _plain(array: Ints, dtype: Any, keeper: list[Any]) -> Ints:
    """Return the array in one piece and of one type; keep it alive."""
    plain = np.ascontiguousarray(array, dtype=dtype)
    keeper.append(plain)
    return plain


def _column(values: Ints | None, radix: int, keeper: list[Any]) -> _Column:
    if values is None:
        return _Column(None, 0, radix)
    if values.dtype.kind != "i" or values.itemsize < 2:
        raise TypeError(f"{values.dtype} is no type of codes or weights")
    values = _plain(values, values.dtype, keeper)
    return _Column(values.ctypes.data, values.itemsize, radix)


def _key(key: Key, keeper: list[Any]) -> _Key:
    if len(key) > _COLUMNS:
        raise NotInArrays("too many columns in a key")
    record = _Key()
    record.number = len(key)
    for i, (values, radix) in enumerate(key):
        record.columns[i] = _column(values, radix, keeper)
    return record


def _match(match: Match, keeper: list[Any]) -> _Match:
    record = _Match()
    record.rows = match.rows
    record.bucket = _key(match.bucket, keeper)
    record.rest = _key(match.rest, keeper)
    record.weight = _column(match.weight, 1, keeper)
    if match.order is not None:
        record.order = _plain(match.order, np.int32, keeper).ctypes.data
    if match.right is not None:
        record.start = _plain(match.right.start, np.int32, keeper).ctypes.data
        record.right_rest = _key(match.right.rest, keeper)
        record.right_weight = _column(match.right.weight, 1, keeper)
    return record
