"""Integers per row, made of what SQL reads by sums, products and clamping.

Either the server computes them, in eight bytes, or arrays do of what it reads: the same integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

#: Magnitudes below are no overflow in eight bytes, nor are their negatives.
WIDE = 2**62


@dataclass(frozen=True, slots=True)
class Steps:
    """A leaf (``read`` is SQL of type bigint), a constant, or what ``operator`` makes of ``parts``.

    ``+`` and ``*`` have two parts; ``clamp`` has one, and ``ends``.  No value is larger than
    ``bound``; ``peak`` is the largest bound of it and all its parts.
    """

    bound: int
    peak: int
    operator: str = ""
    parts: tuple[Steps, ...] = ()
    read: str = ""
    constant: int = 0
    ends: tuple[int, int] = (0, 0)

    @property
    def fits(self) -> bool:
        """Whether eight bytes hold it and all that it is made of, for certain."""
        return self.peak < WIDE

    @property
    def sql(self) -> str:
        """The expression, of type bigint; error 22003 where a part needs more than eight bytes."""
        if self.read:
            return self.read
        if not self.parts:
            return f"'{self.constant}'::bigint"
        first, *others = (part.sql for part in self.parts)
        if self.operator == "clamp":
            low, high = self.ends
            return f"least(greatest({first}, '{low}'::bigint), '{high}'::bigint)"
        return f"({first} {self.operator} {others[0]})"

    def leaves(self) -> Iterator[str]:
        """Yield what is read."""
        if self.read:
            yield self.read
        for part in self.parts:
            yield from part.leaves()


def leaf(sql: str, bound: int) -> Steps:
    """Read SQL of type bigint, whose values have at most this magnitude."""
    return Steps(bound, bound, read=sql)


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
