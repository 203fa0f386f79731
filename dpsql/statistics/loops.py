"""What the array kernel asks of its inner loops, and where it finds them.

Two implementations with identical results: ``native``, compiled into the extension's library
(`sql/hook/kernel.h`) and found in every backend that has loaded it, and ``portable``, numpy
only, for everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.statistics.arrays import Ints, Key, Memory

Tick = Callable[[], None]
#: Runs, keys and counts of complete groups; runs are ``None`` where there is only one.
Piece = tuple[Ints | None, Ints, Ints]


@dataclass(slots=True)
class Right:
    """Right rows, sorted by bucket, then by ``rest``.

    Bucket ``b`` is rows ``start[b]`` to ``start[b + 1]``.
    """

    start: Ints
    rest: Key
    weight: Ints | None


@dataclass(slots=True)
class Match:
    """Left rows, in the order in which they are visited, and the right rows that they match.

    Without a right side every left row gives one pair.
    """

    rows: int
    order: Ints | None
    bucket: Key
    rest: Key
    weight: Ints | None
    right: Right | None


@dataclass(slots=True)
class Counting:
    """Sum the weights of pairs by run of left rows and by key, the sum of both parts.

    Visited left rows ``runs[r]`` to ``runs[r + 1]`` are run ``r``; ``None`` makes them one run.
    Keys are below ``width``; ``pairs`` is a guess.  With ``largest`` the largest weight counts
    instead of the sum.  ``most``, the largest of all, is there at the end.
    """

    match: Match
    left_part: Key
    right_part: Key
    width: int
    runs: Ints | None
    keep: bool
    pairs: float
    largest: bool = False
    most: int = 0


class Loops(Protocol):
    """The inner loops."""

    def mark(self, values: Ints, low: int, seen: NDArray[np.bool_], tick: Tick) -> None:
        """Set ``seen[v - low]`` for all values ``v``."""
        ...

    def translate(
        self, values: Ints, low: int, codes: Ints | None, result: Ints, tick: Tick
    ) -> None:
        """Write ``codes[v - low]`` (or ``v - low``) for all values ``v``; codes are int32."""
        ...

    def histogram(self, codes: Ints, size: int, tick: Tick) -> Ints:
        """Return, for each code below ``size`` and after all, how many codes are smaller."""
        ...

    def place(self, codes: Ints, start: Ints, order: Ints | None, tick: Tick) -> Ints:
        """Sort rows (in ``order``, if given) stably by codes, whose histogram is ``start``."""
        ...

    def pairs(self, match: Match, memory: Memory, tick: Tick) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs, left row and right row, in the order of the left ones; never none."""
        ...

    def count(self, counting: Counting, memory: Memory, tick: Tick) -> Iterator[Piece]:
        """Yield the groups (if they are to be kept) and set ``counting.most``.

        Raises
        ------
        NotInArrays
            When a sum passes 2^62 or memory does not suffice.
        """
        ...


def find_loops() -> Loops:
    """Return the compiled loops if this process has them, else the portable ones."""
    from dpsql.statistics import native, portable

    return native.load() or portable.Portable()
