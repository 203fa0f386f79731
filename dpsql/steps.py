"""Integers per row, made of what SQL reads by sums, products and clamping.

Either the server computes them, in eight bytes, or arrays do of what it reads: the same integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpsql.expression import Expr

#: Magnitudes below are no overflow in eight bytes, nor are their negatives.
WIDE = 2**62
#: Texts of `dpsql.sqltree.sql`.
_TEXTS = {"+": ":a + :b", "*": ":a * :b", "clamp": "least(greatest(:a, :b), :c)"}


@dataclass(frozen=True, slots=True)
class Steps:
    """A leaf (``read`` is of type bigint), a constant, or what ``operator`` makes of ``parts``.

    ``+`` and ``*`` have two parts; ``clamp`` has one, and ``ends``.  No value is larger than
    ``bound``; ``peak`` is the largest bound of it and all its parts.
    """

    bound: int
    peak: int
    operator: str = ""
    parts: tuple[Steps, ...] = ()
    read: Expr | None = None
    constant: int = 0
    ends: tuple[int, int] = (0, 0)

    @property
    def fits(self) -> bool:
        """Whether eight bytes hold it and all that it is made of, for certain."""
        return self.peak < WIDE

    @property
    def expression(self) -> Expr:
        """The expression, of type bigint; error 22003 where a part needs more than eight bytes."""
        if self.read is not None:
            return self.read
        if not self.parts:
            return _bigint(self.constant)
        ends = map(_bigint, self.ends) if self.operator == "clamp" else ()
        parts = (part.expression for part in self.parts)
        return Expr("sql", "bigint", (*parts, *ends), _TEXTS[self.operator])

    def leaves(self) -> Iterator[Expr]:
        """Yield what is read."""
        if self.read is not None:
            yield self.read
        for part in self.parts:
            yield from part.leaves()


def _bigint(number: int) -> Expr:
    return Expr("const", "bigint", data=str(number))


def leaf(read: Expr, bound: int) -> Steps:
    """Read an expression of type bigint, whose values have at most this magnitude."""
    return Steps(bound, bound, read=read)


def constant(number: int) -> Steps:
    """Make a constant."""
    return Steps(abs(number), abs(number), constant=number)


def plus(one: Steps, other: Steps) -> Steps:
    """Add."""
    bound = one.bound + other.bound
    return Steps(bound, max(bound, one.peak, other.peak), "+", (one, other))


def times(one: Steps, other: Steps) -> Steps:
    """Multiply."""
    bound = one.bound * other.bound
    return Steps(bound, max(bound, one.peak, other.peak), "*", (one, other))


def clamped(one: Steps, low: int, high: int) -> Steps:
    """Clamp; ``low <= high``."""
    bound = max(abs(low), abs(high))
    return Steps(bound, max(bound, one.peak), "clamp", (one,), ends=(low, high))
