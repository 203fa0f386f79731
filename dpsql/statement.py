"""The statement that post-processes released values, in parts.  Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Shown:
    """What an output column shows.

    Attributes
    ----------
    numbers : tuple of int
        The numbers ``a<j>`` (or ends of their intervals) that it uses, sorted.
    bare_ends : bool
        Whether it uses nothing but ends of intervals.
    low, high : str or None
        SQL over ``noisy`` for the ends of its interval, ``None`` if it has none.
    """

    numbers: tuple[int, ...]
    bare_ends: bool = False
    low: str | None = None
    high: str | None = None

    @property
    def is_mean(self) -> bool:
        """Whether it has an interval around a mean."""
        return self.low is not None and len(self.numbers) == 2

    @property
    def ends(self) -> str:
        """The letters of the columns that its interval is made of."""
        return "" if self.low is None else "pq" if self.is_mean else "lh"


@dataclass(frozen=True, slots=True)
class Statement:
    """A SELECT over the relation ``noisy``.

    Attributes
    ----------
    columns : tuple of str
        The output columns with their names ``c1``, ``c2``, ...
    rest : str
        FROM and what follows.
    used : frozenset of str
        The columns of ``noisy`` that it reads, group keys apart.
    distinct : bool
        Whether it is SELECT DISTINCT.
    """

    columns: tuple[str, ...]
    rest: str
    used: frozenset[str] = frozenset()
    distinct: bool = False

    @property
    def sql(self) -> str:
        """The whole text."""
        word = "SELECT DISTINCT" if self.distinct else "SELECT"
        return f"{word} {', '.join(self.columns)} {self.rest}"

    def with_columns(self, columns: Sequence[str], used: Iterable[str]) -> Statement:
        """Append expressions to the output columns, and what they use."""
        names = (f"{sql} AS c{n}" for n, sql in enumerate(columns, len(self.columns) + 1))
        return replace(self, columns=(*self.columns, *names), used=self.used | frozenset(used))
