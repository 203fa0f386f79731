"""Arrays with a row for each protected row or result: in memory up to a public size, else on disk.

How many rows there are is secret, so that it must not decide whether a question is answered
(PRIVACY.md section 2).  Work on them goes block by block, and a cancel is noticed in between.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Rows that are worked on between two ticks: some ten milliseconds.
BLOCK = 1 << 17
#: Bytes of an array that is kept in memory.
IN_MEMORY = 1 << 28
#: Bytes of a file that are allocated between two ticks.
_ALLOCATED = 1 << 26


def _nothing() -> None:
    """Work for somebody who does not wait."""


@dataclass(frozen=True, slots=True)
class Space:
    """Where arrays are kept, and who is told between two blocks.

    ``tick`` may raise to cancel.  ``file`` opens a file without a name, which is gone with the last
    array in it; without it everything is in memory.
    """

    tick: Callable[[], None] = _nothing
    file: Callable[[], BinaryIO] | None = None

    def empty(self, shape: int | tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
        """Return an array with any values.

        Raises
        ------
        OSError
            When the disk is full: here, and never while the array is written.
        """
        size = math.prod((shape,) if isinstance(shape, int) else shape) * np.dtype(kind).itemsize
        if self.file is None or size <= IN_MEMORY:
            return np.empty(shape, kind)
        with self.file() as file:
            for start in range(0, size, _ALLOCATED):
                os.posix_fallocate(file.fileno(), start, min(_ALLOCATED, size - start))
                self.tick()
            return np.asarray(np.memmap(file, kind, "r+", shape=shape))

    def blocks(self, rows: int, sums: int = 0) -> Iterator[slice]:
        """Yield the rows in blocks; larger ones where each has a table of so many ``sums``."""
        step = max(BLOCK, min(sums // 2, 32 * BLOCK))
        for start in range(0, rows, step):
            self.tick()
            yield slice(start, min(rows, start + step))


#: Everything in memory, for nobody who waits.
MEMORY = Space()
