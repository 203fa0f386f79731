"""What a condition tells about numbers where it holds: ``CASE WHEN x < 9 THEN x ELSE 9 END``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

from dpsql.query import ranges
from dpsql.query.constants import number
from dpsql.query.ir import Expr
from dpsql.query.ranges import End, Range
from dpsql.query.types import EXACT, INTEGERS, full_type, weight

#: Facts about larger expressions are kept only for the value that a condition guards: each one is
#: compared with every part of that value.
_MAX_WEIGHT = 40
_MAX_FACTS = 40
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "<>": "<>"}
_NEGATED = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "=": "<>", "<>": "="}


@dataclass(frozen=True, slots=True)
class Fact:
    """Bounds of an expression's values, strict or not; NULL is not excluded.

    ``finite_below`` excludes -Infinity, ``finite_above`` Infinity and NaN.
    """

    subject: Expr
    low: End = None
    high: End = None
    above_low: bool = False
    below_high: bool = False
    finite_below: bool = False
    finite_above: bool = False

    def about(self, e: Expr) -> bool:
        """Tell whether the fact is about this expression."""
        return self.subject.kind == e.kind and self.subject == e

    def apply(self, r: Range) -> Range:
        """Intersect an enclosure of the subject."""
        low, high = self.low, self.high
        if r.scale is not None and r.scale <= 1000:
            step = Fraction(1, 10**r.scale)
            if low is not None and self.above_low:
                low = ranges.rounded(low, r.scale, lambda x: x.__floor__()) + step
            if high is not None and self.below_high:
                high = ranges.rounded(high, r.scale, lambda x: x.__ceil__()) - step
        minus, plus = r.minus and not self.finite_below, r.plus and not self.finite_above
        return ranges.within(replace(r, minus=minus, plus=plus), low, high)


Facts = dict[Expr, Fact]


def facts(condition: Expr, value: Expr | None, *, holds: bool = True) -> tuple[Fact, ...]:
    """List what follows for numbers when ``condition`` is true, or (``holds=False``) is not.

    ``value`` is what will be evaluated then; the facts about it alone may be about something large.
    """
    found = _implied(condition, holds)
    kept = [f for e, f in found.items() if e == value or weight(e) <= _MAX_WEIGHT]
    return tuple(kept[:_MAX_FACTS])


def _implied(e: Expr, holds: bool) -> Facts:
    if e.kind == "op" and e.data in _FLIPPED:
        return _comparison(str(e.data) if holds else _NEGATED[str(e.data)], *e.args)
    if e.kind in ("and", "or"):
        parts = [_implied(a, holds) for a in e.args]
        return reduce(_both if (e.kind == "and") == holds else _either, parts)
    if e.kind == "not" and holds:
        return _implied(e.args[0], False)
    if e.kind == "in" and holds and not e.data:
        listed = (_comparison("=", e.args[0], a) for a in e.args[1:])
        return reduce(_either, listed)
    return {}


def _comparison(operator: str, left: Expr, right: Expr) -> Facts:
    if left.kind == "const":
        left, right, operator = right, left, _FLIPPED[operator]
    if right.kind != "const" or left.kind == "const" or right.data is None:
        return {}
    text = str(right.data).lower()
    bound = number(right)
    found = Fact(left)
    if bound is not None:
        if operator in ("<", "<=", "="):
            found = replace(found, high=bound, below_high=operator == "<", finite_above=True)
        if operator in (">", ">=", "="):
            found = replace(found, low=bound, above_low=operator == ">", finite_below=True)
    elif text == "infinity" and operator == "<":
        found = replace(found, finite_above=True)
    elif text == "-infinity" and operator == ">":
        found = replace(found, finite_below=True)
    return {subject: replace(found, subject=subject) for subject in _alike(left)}


def _alike(e: Expr) -> Iterator[Expr]:
    """Yield an expression and what it is nothing but an exact cast of."""
    yield e
    while e.kind == "cast" and e.args[0].type in INTEGERS and full_type(e) in EXACT:
        (e,) = e.args
        yield e


def _both(a: Facts, b: Facts) -> Facts:
    return {e: _meet(a[e], b[e]) if e in a and e in b else a.get(e) or b[e] for e in {**a, **b}}


def _either(a: Facts, b: Facts) -> Facts:
    return {e: _join(a[e], b[e]) for e in a if e in b}


def _meet(a: Fact, b: Fact) -> Fact:
    low, above_low = _tighter(a.low, a.above_low, b.low, b.above_low, max)
    high, below_high = _tighter(a.high, a.below_high, b.high, b.below_high, min)
    return Fact(
        a.subject, low, high, above_low, below_high,
        a.finite_below or b.finite_below, a.finite_above or b.finite_above,
    )  # fmt: skip


def _join(a: Fact, b: Fact) -> Fact:
    low = ranges.least((a.low, b.low))
    high = ranges.greatest((a.high, b.high))
    return Fact(
        a.subject, low, high,
        all(f.above_low for f in (a, b) if f.low == low),
        all(f.below_high for f in (a, b) if f.high == high),
        a.finite_below and b.finite_below, a.finite_above and b.finite_above,
    )  # fmt: skip


def _tighter(
    a: End, a_strict: bool, b: End, b_strict: bool, choose: Callable[[Fraction, Fraction], Fraction]
) -> tuple[End, bool]:
    if a is None or b is None:
        return (b, b_strict) if a is None else (a, a_strict)
    if a == b:
        return a, a_strict or b_strict
    return (a, a_strict) if choose(a, b) == a else (b, b_strict)
