"""The inner loops in numpy alone: the same results as the compiled ones, several times slower."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpsql.statistics import limits
from dpsql.statistics.arrays import LIMIT, Ints, Key, Memory, NotInArrays
from dpsql.statistics.loops import Counting, Match, Piece, Tick


class Portable:
    """See `dpsql.statistics.loops.Loops`."""

    def mark(self, values: Ints, low: int, seen: NDArray[np.bool_], tick: Tick) -> None:
        """Note values; see `dpsql.statistics.loops.Loops`."""
        for lo in range(0, len(values), limits.BLOCK):
            seen[values[lo : lo + limits.BLOCK].astype(np.int64) - low] = True
            tick()

    def translate(
        self, values: Ints, low: int, codes: Ints | None, result: Ints, tick: Tick
    ) -> None:
        """Replace values; see `dpsql.statistics.loops.Loops`."""
        for lo in range(0, len(values), limits.BLOCK):
            part = slice(lo, lo + limits.BLOCK)
            code = values[part].astype(np.int64) - low
            result[part] = code if codes is None else codes[code]
            tick()

    def histogram(self, codes: Ints, size: int, tick: Tick) -> Ints:
        """Count codes; see `dpsql.statistics.loops.Loops`."""
        counts = np.bincount(codes, minlength=size)
        tick()
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)

    def place(self, codes: Ints, start: Ints, order: Ints | None, tick: Tick) -> Ints:  # noqa: ARG002 - the order alone says it
        """Sort stably; see `dpsql.statistics.loops.Loops`."""
        if order is None:
            order = np.arange(len(codes), dtype=np.int32)
        places = np.argsort(codes[order], kind="stable")
        tick()
        return order[places].astype(np.int32)

    def pairs(self, match: Match, memory: Memory, tick: Tick) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs block by block; see `dpsql.statistics.loops.Loops`."""
        right = match.right
        lookup = None
        if right is not None and match.rest:
            memory.need(len(right.start) * 8 + int(right.start[-1]) * 24)
            lookup = _Lookup(right.start, right.rest)
        for lo in range(0, match.rows, limits.BLOCK):
            rows = np.arange(lo, min(match.rows, lo + limits.BLOCK))
            if match.order is not None:
                rows = match.order[rows]
            if right is None:
                yield rows, np.zeros(len(rows), dtype=np.int64)
                tick()
                continue
            bucket = _number(match.bucket, rows)
            if lookup is None:
                first, last = right.start[bucket], right.start[bucket + 1]
            else:
                first, last = lookup.find(bucket, _number(match.rest, rows))
            for piece in _pieces(last - first):
                il, ir = _expand(rows[piece], first[piece], last[piece])
                if len(il):
                    yield il, ir
                tick()

    def count(self, counting: Counting, memory: Memory, tick: Tick) -> Iterator[Piece]:
        """Sort and add; see `dpsql.statistics.loops.Loops`."""
        match, runs = counting.match, counting.runs
        if counting.width * (1 if runs is None else len(runs)) >= LIMIT:
            raise NotInArrays("key space")
        run_of = None if runs is None else _runs_of(match, runs, memory)
        keys, sums = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        held: list[tuple[Ints, Ints]] = []
        waiting, complete = 0, 0
        for il, ir in self.pairs(match, memory, tick):
            key = _number(counting.left_part, il) + _number(counting.right_part, ir)
            if run_of is not None and len(il):
                key += run_of[il].astype(np.int64) * counting.width
                complete = int(run_of[il[-1]]) * counting.width
            held.append((key, _weights(match, il, ir)))
            waiting += len(key)
            memory.need((len(keys) + waiting) * 48)
            if waiting > max(len(keys), 2 * limits.BLOCK):
                keys, sums = _add([(keys, sums), *held], counting.largest)
                held, waiting = [], 0
                # the runs before the last row's are complete
                done = int(np.searchsorted(keys, complete))
                yield from _hand_over(counting, keys[:done], sums[:done])
                keys, sums = keys[done:], sums[done:]
        keys, sums = _add([(keys, sums), *held], counting.largest)
        yield from _hand_over(counting, keys, sums)


def _runs_of(match: Match, runs: Ints, memory: Memory) -> Ints:
    """Return the run of each left row."""
    memory.need(match.rows * 8)
    places = np.repeat(np.arange(len(runs) - 1, dtype=np.int32), np.diff(runs))
    if match.order is None:
        return places
    run_of = np.empty(match.rows, dtype=np.int32)
    run_of[match.order] = places
    return run_of


def _hand_over(counting: Counting, keys: Ints, sums: Ints) -> Iterator[Piece]:
    """Yield complete groups."""
    counting.most = max(counting.most, int(sums.max(initial=0)))
    if not counting.keep or not len(keys):
        return
    if counting.runs is None:
        yield None, keys, sums
    else:
        run, key = np.divmod(keys, counting.width)
        yield run, key, sums


class _Lookup:
    """Find rows by bucket and rest."""

    def __init__(self, start: Ints, rest: Key) -> None:
        rows = int(start[-1])
        number = _number(rest, np.arange(rows))
        self.radix = int(number.max(initial=0)) + 1
        if self.radix * len(start) >= LIMIT:
            raise NotInArrays("key space")
        self.keys = np.repeat(np.arange(len(start) - 1), np.diff(start)) * self.radix + number

    def find(self, bucket: Ints, rest: Ints) -> tuple[Ints, Ints]:
        """Return the first right row of each left row, and the one after the last."""
        known = rest < self.radix
        keys = bucket * self.radix + np.where(known, rest, 0)
        first = np.searchsorted(self.keys, keys, side="left")
        last = np.searchsorted(self.keys, keys, side="right")
        return first, np.where(known, last, first)


def _number(key: Key, rows: Ints) -> Ints:
    """Return the keys of some rows."""
    number = np.zeros(len(rows), dtype=np.int64)
    for column, radix in key:
        number += column[rows].astype(np.int64) * radix
    return number


def _weights(match: Match, il: Ints, ir: Ints) -> Ints:
    """Return the weights of pairs."""
    weight = np.ones(len(il), dtype=np.int64)
    if match.weight is not None:
        weight *= match.weight[il]
    if match.right is not None and match.right.weight is not None:
        other = match.right.weight[ir].astype(np.int64)
        if float(weight.max(initial=0)) * float(other.max(initial=0)) >= LIMIT:
            raise NotInArrays("counts past 2^62")
        weight *= other
    return weight


def _pieces(counts: Ints) -> Iterator[slice]:
    """Cut rows so that each piece gives about a block of pairs, at least one row each."""
    ends = np.cumsum(counts, dtype=np.int64)
    lo = 0
    while lo < len(counts):
        before = int(ends[lo - 1]) if lo else 0
        hi = max(lo + 1, int(np.searchsorted(ends, before + limits.BLOCK, side="right")))
        yield slice(lo, hi)
        lo = hi


def _expand(rows: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Pair every row with its right rows."""
    counts = (last - first).astype(np.int64)
    ends = np.cumsum(counts)
    il = np.repeat(rows, counts)
    ir = np.arange(len(il)) + np.repeat(first - (ends - counts), counts)
    return il, ir


def _add(pieces: list[tuple[Ints, Ints]], largest: bool) -> tuple[Ints, Ints]:
    """Add up the weights of equal keys, or keep the largest."""
    keys = np.concatenate([k for k, _ in pieces])
    weights = np.concatenate([w for _, w in pieces])
    if not len(keys):
        return keys, weights
    if not largest and not float(weights.sum(dtype=np.float64)) < LIMIT * 0.99:
        raise NotInArrays("counts past 2^62")
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    edges = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    reduce = np.maximum.reduceat if largest else np.add.reduceat
    sums = reduce(weights[order], edges)
    return keys[edges][sums > 0], sums[sums > 0]
