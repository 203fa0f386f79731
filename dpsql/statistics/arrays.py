"""Tables of small integer codes under one memory bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.statistics import limits

if TYPE_CHECKING:
    from dpsql.statistics.indexing import Index

Ints = NDArray[Any]
#: A number per row: the sum of columns times radices.
Key = tuple[tuple[Ints, int], ...]

#: Counts and keys stay below this.
LIMIT = 2**62


class NotInArrays(Exception):
    """The plan does not fit: too much memory, counts past 2^62, or keys that are not integers."""


class OutOfMemory(NotInArrays):
    """The memory bound is reached."""


@dataclass(slots=True)
class Memory:
    """Bytes that the kernel may hold, and holds."""

    limit: int
    used: int = 0
    peak: int = 0

    def need(self, extra: int) -> None:
        """Raise unless ``extra`` more bytes fit, for now."""
        if self.used + extra > self.limit:
            raise OutOfMemory("memory bound")
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
    descents: dict[int, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of columns and weights."""
        own = sum(c.nbytes for c in self.columns.values())
        return own + (0 if self.weight is None else self.weight.nbytes)

    def owned(self) -> int:
        """Bytes that dropping the table frees."""
        return self.held + sum(index.held for index in self.indexes.values())

    def heaviest(self) -> int:
        """Return the largest weight, 0 without rows."""
        if self.weight is None:
            return min(1, self.rows)
        return int(self.weight.max(initial=0))

    def disorder(self, attribute: int) -> int:
        """Count the rows whose ``attribute`` is below that of the row before."""
        known = self.descents.get(attribute)
        if known is None:
            column, block = self.columns[attribute], limits.BLOCK
            known = self.descents[attribute] = sum(
                int(np.count_nonzero(column[lo + 1 : hi + 1] < column[lo:hi]))
                for lo in range(0, self.rows - 1, block)
                for hi in (min(lo + block, self.rows - 1),)
            )
        return known


def code_type(domain: int) -> Any:
    """Return the narrowest type that the kernel uses for codes below ``domain``."""
    if domain >= 2**31:
        raise NotInArrays("key space")
    return np.int16 if domain < 2**15 else np.int32


def weight_type(most: int) -> Any:
    """Return the narrowest type that the kernel uses for weights up to ``most``."""
    return np.int32 if most < 2**31 else np.int64
