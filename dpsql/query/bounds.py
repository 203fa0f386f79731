"""Which values a number can take, from public facts alone (PRIVACY.md sections 2 and 3).

A sum of values has a finite sensitivity only if each of them is bounded, by facts that do not
depend on protected rows: types and their modifiers, declared domains, constants, and what
arithmetic makes of them.  :func:`bounds_of` encloses every value that an expression takes *as the
server evaluates it*, rounding included; it must never be too narrow, whatever the rows hold.

What is not known is ``None``, never a guess.  Floating-point columns have no bounds unless a domain
is declared.  Dates and timestamps are numbers here (:mod:`dpsql.query.moments`), so that what is
computed of them follows their ranges; of times, intervals and texts nothing is said.  Arithmetic on
an unbounded number is NULL beyond the limits of :mod:`dpsql.query.totality` (10^100 for numeric,
10^300 and less for floats): those limits are true bounds and are returned, but no noise that fits
them is of use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import cast

from dpsql.query import moments, ranges
from dpsql.query.constants import number
from dpsql.query.fields import field_range
from dpsql.query.ir import Expr
from dpsql.query.ranges import Range
from dpsql.query.refine import Fact, facts
from dpsql.query.types import FLOATS, INTEGERS, TIMESTAMP, full_type, modifier, octets
from dpsql.relation import Domain, base


@dataclass(frozen=True, slots=True)
class Bounds:
    """A sound enclosure of the values of an expression.

    Every value that is neither NULL nor NaN nor infinite lies in ``[low, high]`` and is an integer
    multiple of ``10^-scale``; ``None``: nothing known.  ``may_be_null`` and ``special`` say whether
    it can be NULL, and NaN or infinite.  An expression without any finite value has bounds 0 and 0.
    """

    low: Fraction | None
    high: Fraction | None
    scale: int | None
    may_be_null: bool = True
    special: bool = False


ColumnBounds = Callable[[int, str], Bounds | None]

#: Longest text that PostgreSQL holds, in bytes.
_LONGEST = 1 << 30
_BITS = {"smallint": 15, "integer": 31, "bigint": 63}
_LENGTHS = frozenset(("length", "char_length", "character_length", "octet_length"))


def bounds_of(expression: Expr, domain: ColumnBounds) -> Bounds:
    """Bound an expression.

    Parameters
    ----------
    expression : Expr
        Totalised, as the analyser builds it.
    domain : callable
        From an occurrence and the name of its column to the declared bounds that its values are
        clamped to before anything else reads them, ``None`` where there are none.  Of
        ``may_be_null`` both must be true, the column and its bounds, for NULL to be possible.

    Returns
    -------
    Bounds
    """
    found = _Reader(domain).read(expression, ())
    if base(expression.type) in moments.SCALES:
        return Bounds(None, None, None, found.null)
    if found.empty:
        return Bounds(Fraction(0), Fraction(0), 0, found.null, found.special)
    return Bounds(found.low, found.high, found.scale, found.null, found.special)


def type_bounds(column: Expr) -> Bounds:
    """Bound what a column's type can hold; dates and timestamps are days and seconds."""
    _, _, not_null, full, *_ = cast("tuple[int, str, bool, str]", column.data)
    found = _of_type(full)
    return Bounds(found.low, found.high, found.scale, not not_null, found.special)


def domain_bounds(domain: Domain) -> Bounds:
    """Bound what is left of a column's values after they are moved into its declared domain.

    Of a range its ends, of listed values the least and the greatest.  Clamped by ``least`` and
    ``greatest`` no value stays NaN or infinite; NULL stays.  Dates and timestamps are days and
    seconds (:mod:`dpsql.query.moments`); nothing is known of other types than these and numbers.
    """
    unknown = Bounds(None, None, None)
    type_ = base(domain.type_name)
    texts = domain.values
    if domain.lower is not None and domain.upper is not None:
        texts = (domain.lower, domain.upper)
    if type_ in moments.SCALES:
        found = [n for n in (moments.number(type_, text) for text in texts) if n is not None]
        return Bounds(min(found), max(found), moments.SCALES[type_]) if found else unknown
    if not _is_number(type_):
        return unknown
    values = [v for v in map(Decimal, texts) if v.is_finite()]
    if not values:
        return unknown
    low, high = Fraction(min(values)), Fraction(max(values))
    if type_ in FLOATS:
        low, high = ranges.as_float(low, type_), ranges.as_float(high, type_)
    return Bounds(low, high, _of_type(domain.type_name).scale)


class _Reader:
    """Reads expressions under facts that hold where they are evaluated."""

    def __init__(self, domain: ColumnBounds) -> None:
        self.domain = domain

    def read(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        """Enclose the values of ``e``; ``known`` holds whenever it is evaluated."""
        method = getattr(self, f"_{e.kind}", None)
        found: Range = _of_type(e.type) if method is None else method(e, known)
        found = _typed(e, found)
        for fact in known:
            if fact.about(e):
                found = fact.apply(found)
        return found

    def _all(self, e: Expr, known: tuple[Fact, ...]) -> list[Range]:
        return [self.read(a, known) for a in e.args]

    # -- leaves ---------------------------------------------------------------------------

    def _col(self, e: Expr, _known: tuple[Fact, ...]) -> Range:
        occurrence, name, not_null, full, *_ = cast("tuple[int, str, bool, str]", e.data)
        found = replace(_of_type(full), null=not not_null)
        declared = self.domain(occurrence, name)
        if declared is None:
            return found
        scale = found.scale
        if scale is not None:  # clamping can return an end instead of a value of the type
            scale = None if declared.scale is None else max(scale, declared.scale)
        return replace(
            found,
            low=found.low if declared.low is None else declared.low,
            high=found.high if declared.high is None else declared.high,
            scale=scale,
            null=found.null and declared.may_be_null,
            minus=found.minus and declared.special,
            plus=found.plus and declared.special,
        )

    def _const(self, e: Expr, _known: tuple[Fact, ...]) -> Range:
        return _constant(e)

    # -- operators and calls ----------------------------------------------------------------

    def _op(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        args = self._all(e, known)
        if e.type != "boolean" and e.args[0].type == e.args[-1].type == "date":
            return replace(ranges.plus(args[0], ranges.negative(args[1])), minus=False, plus=False)
        if e.type == "boolean" or not all(_is_number(a.type) for a in e.args):
            return replace(_of_type(e.type), null=any(a.null for a in args))
        if len(args) == 1:
            return ranges.negative(args[0])
        a, b = args
        if e.type in FLOATS:
            return _float_operation(str(e.data), a, b, e.type, same=e.args[0] == e.args[1])
        match e.data:
            case "+":
                return ranges.plus(a, b)
            case "-":
                return ranges.plus(a, ranges.negative(b))
            case "*":
                return ranges.times(a, b, same=e.args[0] == e.args[1])
            case "%":
                return ranges.remainder(a, b)
            case "/" if e.type == "numeric":
                return ranges.numeric_quotient(a, b)
            case "/":
                low, high = ranges.quotient(a, b)
                exact = Range(low, high, None, a.null or b.null, empty=a.empty or b.empty)
                return ranges.monotone(exact, lambda x: Fraction(ranges.toward_zero(x)), 0)
        return _of_type(e.type)

    def _fn(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        args = self._all(e, known)
        null = any(a.null for a in args)
        name = str(e.data)
        if name in _LENGTHS:
            longest = octets(e.args[0])
            longest = _LONGEST if longest is None else min(longest, _LONGEST)
            return Range(Fraction(0), Fraction(longest), 0, null)
        if name in ("strpos", "position"):
            return Range(Fraction(0), Fraction(_LONGEST), 0, null)
        if name == "width_bucket":
            return Range(Fraction(0), Fraction(int(str(e.args[3].data)) + 1), 0, null)
        if name == "date_part":
            found = field_range(str(e.args[0].data), e.args[1].type, args[1])
            return _as_float(replace(found, null=found.null or null), e.type)
        if name == "timezone" and base(e.type) in moments.SCALES:
            return moments.in_any_zone(args[1])
        return _function(name, e, args) if args else _of_type(e.type)

    def _cast(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        (source,) = e.args
        found = self.read(source, known)
        if source.type == "date" and e.type == TIMESTAMP:
            return moments.midnight(found)
        if source.type == TIMESTAMP and e.type == "date":
            return moments.days(TIMESTAMP, found)
        if not _is_number(source.type) and source.type != "boolean":
            return replace(_of_type(e.type), null=found.null)
        if e.type == "boolean" and source.type != "boolean":
            return ranges.is_other_than_zero(found)
        if e.type in FLOATS:
            return _as_float(found, e.type)
        if e.type == "numeric":
            if source.type in FLOATS:
                found = _decimal(found, 6 if source.type == "real" else 15)
            size = modifier(str(e.data))
            return _rounded_to(found, (*size, 0)[1]) if size else found
        return found

    def _narrow(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        (source,) = e.args
        found = self.read(source, known)
        rule = round if source.type in FLOATS else ranges.half_away
        top = Fraction(2) ** _BITS[e.type]
        rounded = ranges.monotone(found, lambda x: Fraction(rule(x)), 0)
        fits = not rounded.empty and not found.special
        fits = fits and rounded.low is not None and rounded.low >= -top
        fits = fits and rounded.high is not None and rounded.high < top
        return replace(rounded, null=found.null or not fits, minus=False, plus=False)

    def _extract(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        source = self.read(e.args[0], known)
        found = field_range(str(e.data), e.args[0].type, source)
        return replace(found, null=found.null or source.null)

    # -- logic and choice ---------------------------------------------------------------------

    def _and(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        return replace(_of_type(e.type), null=any(a.null for a in self._all(e, known)))

    _or = _not = _in = _collate = _and

    def _is(self, e: Expr, _known: tuple[Fact, ...]) -> Range:
        return replace(_of_type(e.type), null=False)

    _distinct = _is

    def _guard(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        condition, value = e.args
        return replace(self.read(value, (*known, *facts(condition, value))), null=True)

    def _case(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        found = []
        for i in range(0, len(e.args) - 1, 2):
            when, then = e.args[i], e.args[i + 1]
            found.append(self.read(then, (*known, *facts(when, then))))
            known = (*known, *facts(when, None, holds=False))
        found.append(self.read(e.args[-1], known))
        return ranges.hull(found)

    def _coalesce(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        found = []
        for a in e.args:
            found.append(self.read(a, known))
            if not found[-1].null:
                break
        return replace(ranges.hull(found), null=found[-1].null)

    def _nullif(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        return replace(self.read(e.args[0], known), null=True)

    def _greatest(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        return _extreme(self._all(e, known))

    def _least(self, e: Expr, known: tuple[Fact, ...]) -> Range:
        mirrored = [_mirror(r) for r in self._all(e, known)]
        return _mirror(_extreme(mirrored))


# -- types ------------------------------------------------------------------------------------


def _is_number(type_: str) -> bool:
    return type_ in INTEGERS or type_ in FLOATS or type_ == "numeric"


def _of_type(full: str) -> Range:
    """Enclose the values that a type with its modifier can hold."""
    if full in _BITS:
        top = 1 << _BITS[full]
        return Range(Fraction(-top), Fraction(top - 1), 0)
    if full == "boolean":
        return Range(Fraction(0), Fraction(1), 0)
    if full in FLOATS:
        return Range(minus=True, plus=True)
    if base(full) in moments.SCALES:
        return moments.type_range(base(full))
    if not full.startswith("numeric"):
        return Range()
    size = modifier(full)
    if not size:
        return Range(minus=True, plus=True)
    precision, scale = (*size, 0)[:2]
    top_numeric = Fraction(10) ** (precision - scale) - Fraction(10) ** -scale
    return Range(-top_numeric, top_numeric, max(scale, 0), plus=True)


def _typed(e: Expr, found: Range) -> Range:
    """Add what the type of an expression tells."""
    if not _is_number(e.type) and e.type not in ("boolean", *moments.SCALES):
        return Range(null=found.null)
    full = _of_type(full_type(e) if e.kind == "cast" else e.type)
    found = replace(
        found,
        scale=full.scale if found.scale is None else found.scale,
        minus=found.minus and full.minus,
        plus=found.plus and full.plus,
    )
    return ranges.within(found, full.low, full.high)


def _constant(e: Expr) -> Range:
    if e.data is None:
        return Range(empty=True)
    if e.type == "boolean":
        truth = Fraction(e.data == "t")
        return Range(truth, truth, 0, null=False)
    moment = moments.number(e.type, str(e.data)) if e.type in moments.SCALES else None
    value = number(e) if moment is None else moment
    if value is not None:
        scale = (0 if value.denominator == 1 else None) if e.type in FLOATS else _scale_of(value)
        return Range(value, value, scale, null=False)
    text = str(e.data).lower()
    if text in ("nan", "infinity", "-infinity"):
        below = text.startswith("-")
        return Range(null=False, minus=below, plus=not below, empty=True)
    return Range(null=False)


def _scale_of(value: Fraction) -> int | None:
    """Return the least scale of a decimal fraction."""
    twos = (value.denominator & -value.denominator).bit_length() - 1
    rest, fives = value.denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None


# -- functions --------------------------------------------------------------------------------


def _function(name: str, e: Expr, args: list[Range]) -> Range:
    a = args[0]
    null = any(r.null for r in args)
    match name:
        case "abs":
            return ranges.absolute(a)
        case "sign":
            return ranges.sign(a, of_float=e.type in FLOATS)
        case "ceil" | "ceiling":
            return ranges.monotone(a, lambda x: Fraction(ceil(x)), 0)
        case "floor":
            return ranges.monotone(a, lambda x: Fraction(floor(x)), 0)
        case "trim_scale":
            return a
        case "round" | "trunc":
            digits = 0
            if len(args) > 1:
                if e.args[1].data is None:
                    return Range(empty=True)
                digits = int(str(e.args[1].data))
            rule: Callable[[Fraction], int] = ranges.toward_zero
            if name == "round":
                rule = round if e.type in FLOATS else ranges.half_away
            return replace(_rounded_to(a, digits, rule), null=null)
    return replace(_of_type(e.type), null=null)


def _rounded_to(a: Range, digits: int, rule: Callable[[Fraction], int] = ranges.half_away) -> Range:
    scale = max(digits, 0) if a.scale is None else min(a.scale, max(digits, 0))
    return ranges.monotone(a, lambda x: ranges.rounded(x, digits, rule), scale)


def _extreme(args: list[Range]) -> Range:
    """Enclose ``greatest(...)``, which leaves NULLs out and orders NaN above all."""
    found = ranges.hull(args)
    present = [r for r in args if not r.null and not r.minus and not r.empty]
    low = found.low
    for r in present:
        low = ranges.above(low, r.low)
    return ranges.settled(
        replace(
            found,
            low=low,
            null=all(r.null for r in args),
            minus=found.minus and not present,
        )
    )


def _mirror(r: Range) -> Range:
    """Turn the order around; unlike negation this exchanges NaN and -Infinity."""
    return replace(ranges.negative(r), minus=r.plus, plus=r.minus)


# -- floating point ---------------------------------------------------------------------------


def _as_float(a: Range, type_: str) -> Range:
    """Round to a floating-point type: monotone, and whole numbers stay whole."""
    return ranges.monotone(a, lambda x: ranges.as_float(x, type_), 0 if a.scale == 0 else None)


def _decimal(a: Range, digits: int) -> Range:
    """Enclose what a float becomes as numeric: its first 15 digits, 6 of a real."""
    low = None if a.low is None else ranges.significant(a.low, digits, floor)
    high = None if a.high is None else ranges.significant(a.high, digits, ceil)
    return replace(a, low=low, high=high, scale=0 if a.scale == 0 else None)


def _float_operation(operator: str, a: Range, b: Range, type_: str, *, same: bool) -> Range:
    """Enclose an operation of floats, which raises an error instead of overflowing."""
    match operator:
        case "+":
            exact = ranges.plus(a, b)
        case "-":
            exact = ranges.plus(a, ranges.negative(b))
        case "*":
            exact = ranges.times(a, b, same=same)
        case _:
            low, high = ranges.quotient(a, b)
            special = a.special or b.special
            if special:
                low, high = ranges.least((low, Fraction(0))), ranges.greatest((high, Fraction(0)))
            empty = (a.empty or b.empty) and not special
            exact = Range(low, high, None, a.null or b.null, special, special, empty)
    return _as_float(exact, type_)
