"""Allocate arrays with one row per protected row or result, in memory or in a temporary file.

The number of rows is secret, so it must not decide whether a question is answered (PRIVACY.md
section 2): arrays above a fixed size are in a file.  Callers work on them block by block, and a
cancel takes effect between two blocks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Rows between two ticks; a block takes some ten milliseconds.
BLOCK = 1 << 17
#: Bytes of the largest array in memory.
IN_MEMORY = 1 << 28
#: Bytes of a file that are allocated between two ticks.
_ALLOCATED = 1 << 26


def _nothing() -> None:
    """Do nothing: the default tick."""


@dataclass(frozen=True, slots=True)
class Space:
    """Where arrays are allocated, and what is called between two blocks.

    ``tick`` may raise to cancel.  ``file`` opens a file without a name, which disappears with the
    last array in it; if it is None, all arrays are in memory.
    """

    tick: Callable[[], None] = _nothing
    file: Callable[[], BinaryIO] | None = None

    def empty(self, shape: int | tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
        """Return an array whose values are undefined.

        Raises
        ------
        OSError
            If the disk is full.  The blocks of the file are allocated here, so that writing to the
            array never fails.
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
        """Yield blocks of rows; larger ones if each block needs a table of ``sums`` entries."""
        step = max(BLOCK, min(sums // 2, 32 * BLOCK))
        for start in range(0, rows, step):
            self.tick()
            yield slice(start, min(rows, start + step))


#: Everything in memory, without cancels.
MEMORY = Space()
