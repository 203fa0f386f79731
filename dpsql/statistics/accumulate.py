"""Counts and sums in arrays, one cell for each combination of values, that grow as values come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.statistics.arrays import LIMIT, Ints, Memory, NotInArrays

#: No room is made beforehand for values beyond.
_FAR = 2**62
#: Partial sums below this are exact in double precision.
_EXACT = 2**53


class Cells:
    """Counts rows and sums weights per value of some attributes.

    Parameters
    ----------
    attributes : sequence of int
        At least one.
    weights : int
        How many weights a row has.
    known : mapping
        Of some attributes all values, ascending; of others the cells cover the range seen so far.
    memory : Memory
        The bound; the arrays are held in it.
    """

    def __init__(
        self,
        attributes: Sequence[int],
        weights: int,
        known: Mapping[int, Ints],
        memory: Memory,
    ) -> None:
        self.attributes = tuple(attributes)
        self.known = known
        self.memory = memory
        self.lows = [0] * len(attributes)
        self.shape = tuple(len(known[a]) if a in known else 0 for a in attributes)
        self.arrays = [np.zeros(self.shape, np.int64) for _ in range(1 + weights)]
        memory.hold(sum(array.nbytes for array in self.arrays))

    def add(
        self, columns: Sequence[Ints], weights: Sequence[Ints], tick: Callable[[], None]
    ) -> None:
        """Add rows.

        Raises
        ------
        NotInArrays
            Where the cells do not fit the memory, or sums 62 bits.
        """
        codes = [self._codes(a, c) for a, c in zip(self.attributes, columns, strict=True)]
        self._grow(codes)
        index: Ints = np.zeros(len(codes[0]), np.int64)
        for code, low, width in zip(codes, self.lows, self.shape, strict=True):
            index *= width
            index += code
            index -= low
        tick()
        cells = self.arrays[0].size
        self.memory.need(cells * 40 + len(index) * 16)
        counts = np.bincount(index, minlength=cells)
        self.arrays[0].reshape(-1)[:] += counts
        most = int(counts.max(initial=0))
        for total, weight in zip(self.arrays[1:], weights, strict=True):
            heaviest = max(abs(int(weight.max())), abs(int(weight.min())))
            if heaviest * most >= _EXACT:
                raise NotInArrays("sums past 53 bits")
            part = np.bincount(index, weights=weight, minlength=cells)
            total.reshape(-1)[:] += part.astype(np.int64)
            if int(np.abs(total).max()) >= LIMIT // 2:
                raise NotInArrays("sums past 61 bits")
            tick()

    def found(self) -> tuple[dict[int, Ints], list[Ints]]:
        """Return the codes of the combinations that occurred, their counts and their sums."""
        if not self.arrays[0].size:
            nothing = np.zeros(0, np.int64)
            return dict.fromkeys(self.attributes, nothing), [nothing for _ in self.arrays]
        places = np.flatnonzero(self.arrays[0])
        self.memory.need(len(places) * 8 * (1 + len(self.shape) + len(self.arrays)))
        codes = np.unravel_index(places, self.shape)
        columns = dict(zip(self.attributes, codes, strict=True))
        return columns, [array.reshape(-1)[places] for array in self.arrays]

    def size(self, attributes: tuple[int, ...]) -> int:
        """Return the number of combinations of codes of some attributes."""
        size = 1
        for a in attributes:
            size *= max(1, self.shape[self.attributes.index(a)])
        return size

    def values(self, attribute: int, codes: Ints) -> list[int]:
        """Return the values of codes."""
        if attribute in self.known:
            listed: list[int] = self.known[attribute][codes].tolist()
            return listed
        low = self.lows[self.attributes.index(attribute)]
        return [low + code for code in codes.tolist()]

    def _codes(self, attribute: int, column: Ints) -> Ints:
        known = self.known.get(attribute)
        if known is None:
            return column
        codes = np.searchsorted(known, column)
        if not len(known) or not bool((known[np.minimum(codes, len(known) - 1)] == column).all()):
            raise NotInArrays("an unknown value")
        return codes

    def _grow(self, codes: Sequence[Ints]) -> None:
        """Make room for new values, and for as many again on that side."""
        lows, shape = list(self.lows), list(self.shape)
        for i, (attribute, code) in enumerate(zip(self.attributes, codes, strict=True)):
            if attribute in self.known:
                continue
            low, high = int(code.min()), int(code.max()) + 1
            if not self.shape[i]:
                lows[i], shape[i] = low, high - low
                continue
            old, end, width = lows[i], lows[i] + shape[i], shape[i]
            if low < old:
                lows[i] = max(min(low, old - width), -_FAR if low >= -_FAR else low)
            if high > end:
                end = min(max(high, end + width), _FAR if high <= _FAR else high)
            shape[i] = end - lows[i]
        if tuple(shape) == self.shape:
            return
        size = 1
        for width in shape:
            size *= width
        if size >= LIMIT:
            raise NotInArrays("key space")
        held = sum(array.nbytes for array in self.arrays)
        self.memory.hold(8 * size * len(self.arrays))
        places = tuple(
            slice(old - low, old - low + width)
            for old, low, width in zip(self.lows, lows, self.shape, strict=True)
        )
        filled = bool(self.arrays[0].size)
        for j, array in enumerate(self.arrays):
            self.arrays[j] = np.zeros(shape, np.int64)
            if filled:
                self.arrays[j][places] = array
        self.memory.release(held)
        self.lows, self.shape = lows, tuple(shape)
