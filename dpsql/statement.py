"""The statement that post-processes released values, and what its columns show.

Standard library only: trees of `sqlglot` are made and read elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Shown:
    """What an output column shows.

    Attributes
    ----------
    numbers : tuple of int
        The numbers ``a<j>`` (or ends of their intervals) that it uses, sorted.
    bare_ends : bool
        Whether it uses nothing but ends of intervals.
    low, high : tree or None
        Expressions over ``noisy`` for the ends of its interval, ``None`` if it has none.
    """

    numbers: tuple[int, ...]
    bare_ends: bool = False
    low: exp.Expr | None = None
    high: exp.Expr | None = None

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
    query : tree
        With output columns named ``c1``, ``c2``, ...
    sql : str
        Its text, written before anything is charged: a tree can be too deep for that.
    used : frozenset of str
        The columns of ``noisy`` that it reads, group keys apart.
    """

    query: exp.Select
    sql: str
    used: frozenset[str] = frozenset()

    @property
    def distinct(self) -> bool:
        """Whether it is SELECT DISTINCT."""
        return bool(self.query.args.get("distinct"))
