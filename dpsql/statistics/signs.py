"""Signs and counters of AGMS sketches, many estimators at a time.

The signs of a value are the bits of SHAKE-128 over a secret seed and the value's text: a keyed
pseudorandom function, as PRIVACY.md section 4 asks for, which is cheaper here than polynomials
over a field (26 µs for 100,000 signs) and stronger than the 4-wise independence of the paper.
Bit 1 is the sign -1, so that the product of signs is the exclusive or of bits.

The number of ones in each column of a bit matrix is found by carry-save additions of whole rows,
which keeps 64 estimators in every machine word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

#: Words of a row that are worked on at once: with ``_ROWS`` they fit a core's own cache.
_BLOCK = 64
_ROWS = 2048
#: Rows that every table must hold; ``bytes_needed`` counts them.
_FEWEST = 128

Key = tuple[str, ...]


def bytes_needed(estimators: int, factors: int) -> int:
    """Return the least memory with which counters can be made."""
    return 32 * estimators + (factors + 2) * _FEWEST * _row_bytes(estimators)


def _row_bytes(estimators: int) -> int:
    return 8 * -(-estimators // 64)


class _Table:
    """Sign bits of values under one seed, as many as the memory allows."""

    def __init__(self, seed: bytes, words: int, capacity: int) -> None:
        self._start = hashlib.shake_128(seed)
        self._rows: Words = np.empty((capacity, words), dtype=np.uint64)
        self._places: dict[str, int] = {}

    def look_up(self, values: Sequence[str], tick: Callable[[], None]) -> npt.NDArray[np.int64]:
        """Return for each value the number of its row; valid until the next call."""
        new = {value for value in values if value not in self._places}
        if len(self._places) + len(new) > len(self._rows):
            self._places.clear()
            new = set(values)
        for number, value in enumerate(new):
            if number % 256 == 0:
                tick()
            stream = self._start.copy()
            stream.update(value.encode())
            place = self._places[value] = len(self._places)
            row = np.frombuffer(stream.digest(8 * self._rows.shape[1]), dtype="<u8")
            self._rows[place] = row
        return np.fromiter((self._places[v] for v in values), dtype=np.int64, count=len(values))

    def block(self, places: npt.NDArray[np.int64], low: int, high: int) -> Words:
        """Return a copy of some words of some rows."""
        return self._rows[places, low:high]


class Counters:
    """Counters ``sum of count * product of signs`` over distinct keys, one an estimator.

    Parameters
    ----------
    factors : sequence of (int, bytes)
        For each sign family the position of its column in a key, and its secret seed.
    estimators : int
        Number of counters.
    limit : int
        Bytes to use, at least `bytes_needed`; changes time only.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    """

    def __init__(
        self,
        factors: Sequence[tuple[int, bytes]],
        estimators: int,
        limit: int,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._words = -(-estimators // 64)
        room = (limit - 32 * estimators) // ((len(factors) + 1) * _row_bytes(estimators))
        capacity = max(_FEWEST, min(room, 1 << 16))
        self._together = min(_ROWS, capacity)
        self._tables = [(at, _Table(seed, self._words, capacity)) for at, seed in factors]
        self._ones: Counts = np.zeros(64 * self._words, dtype=np.int64)
        self._total = 0
        self._estimators = estimators
        self._tick = tick

    def add(self, keys: Sequence[Key], counts: Sequence[int]) -> None:
        """Add rows: keys (need not be distinct) and how often each occurs."""
        for low in range(0, len(keys), self._together):
            part = slice(low, low + self._together)
            self._add(keys[part], counts[part])

    def _add(self, keys: Sequence[Key], counts: Sequence[int]) -> None:
        self._total += sum(counts)
        places = [t.look_up([key[at] for key in keys], self._tick) for at, t in self._tables]
        if not places:
            return  # no sign at all: the number of rows
        weights = np.array(counts, dtype=np.int64)
        shifts = range(int(weights.max(initial=0)).bit_length())
        chosen = [np.flatnonzero((weights >> shift) & 1) for shift in shifts]
        for low in range(0, self._words, _BLOCK):
            high = min(low + _BLOCK, self._words)
            bits = self._tables[0][1].block(places[0], low, high)
            for (_, table), where in zip(self._tables[1:], places[1:], strict=True):
                bits ^= table.block(where, low, high)
            for shift, rows in enumerate(chosen):
                part = bits if len(rows) == len(bits) else bits[rows]
                self._ones[64 * low : 64 * high] += column_sums(part) << shift
            self._tick()

    def values(self) -> Counts:
        """Return the counters."""
        found: Counts = self._total - 2 * self._ones[: self._estimators]
        return found


def column_sums(rows: Words) -> Counts:
    """Count the ones in each column of a matrix of bits, 64 columns in a word."""
    total: Counts = np.zeros(64 * rows.shape[1], dtype=np.int64)
    level: list[Words] = [rows] if len(rows) else []
    weight = 0
    while level:
        carries: list[Words] = []
        current = np.concatenate(level) if len(level) > 1 else level[0]
        while len(current) > 2:
            third = len(current) // 3
            a, b, c = (current[i * third : (i + 1) * third] for i in range(3))
            half = a ^ b
            carries.append((a & b) | (half & c))
            half ^= c
            rest = current[3 * third :]
            current = np.concatenate((half, rest)) if len(rest) else half
        if len(current) == 2:
            carries.append((current[0] & current[1])[None])
            current = (current[0] ^ current[1])[None]
        total += _columns(current[0]) << weight
        level, weight = carries, weight + 1
    return total


def _columns(word_row: Words) -> Counts:
    """Spread the bits of a row over as many numbers, the lowest bit of a word first."""
    little: Any = word_row.astype("<u8", copy=False)
    return np.unpackbits(little.view(np.uint8), bitorder="little").astype(np.int64)
