"""Intervals of exact numbers, and what PostgreSQL's arithmetic does to them.

A :class:`Range` encloses the finite values that a number can take and says which values that are
not finite it can take besides.  Everything is exact (Fractions); where PostgreSQL rounds, the ends
are rounded outward or by the same monotone rule, so that an enclosure stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

#: Digits after the point that a stored numeric can have.
MAX_SCALE = 16383
#: Ends beyond this are as good as none; finer ones are moved outward to a multiple of ``_FINE``.
_HUGE = Fraction(10) ** 1000
_FINE = Fraction(1, 10**2000)

End = Fraction | None


@dataclass(frozen=True, slots=True)
class Range:
    """``low <= v <= high`` and ``v`` a multiple of ``10^-scale`` for every finite value ``v``.

    ``None`` stands for no bound, and for no known scale.  ``minus`` tells that -Infinity is
    possible, ``plus`` that NaN or Infinity is (PostgreSQL orders NaN above all), ``null`` that
    NULL is; ``empty`` that there is no finite value at all.
    """

    low: End = None
    high: End = None
    scale: int | None = None
    null: bool = True
    minus: bool = False
    plus: bool = False
    empty: bool = False

    @property
    def special(self) -> bool:
        """Whether a value may be NaN or infinite."""
        return self.minus or self.plus


NOTHING = Range(empty=True)
_ZERO, _ONE = Fraction(0), Fraction(1)


def settled(r: Range) -> Range:
    """Snap the ends to the scale, drop huge ones, notice that nothing is left."""
    if r.empty:
        return r
    low, high = r.low, r.high
    if r.scale is not None and r.scale <= 1000:
        low = None if low is None else rounded(low, r.scale, ceil)
        high = None if high is None else rounded(high, r.scale, floor)
    low, high = _tame(low, floor), _tame(high, ceil)
    if low is not None and high is not None and low > high:
        return replace(r, low=None, high=None, empty=True)
    return replace(r, low=low, high=high)


def _tame(end: End, outward: Callable[[Fraction], int]) -> End:
    if end is None or abs(end) > _HUGE:
        return None
    if end.denominator > _FINE.denominator:
        return outward(end / _FINE) * _FINE
    return end


# -- choosing ends --------------------------------------------------------------------------


def least(ends: Iterable[End]) -> End:
    """Return the least end; ``None`` (no bound) if one is."""
    found = list(ends)
    return None if None in found else min((e for e in found if e is not None), default=None)


def greatest(ends: Iterable[End]) -> End:
    """Return the greatest end; ``None`` (no bound) if one is."""
    found = list(ends)
    return None if None in found else max((e for e in found if e is not None), default=None)


def above(a: End, b: End) -> End:
    """Return the tighter of two lower ends."""
    return max(a, b) if a is not None and b is not None else b if a is None else a


def below(a: End, b: End) -> End:
    """Return the tighter of two upper ends."""
    return min(a, b) if a is not None and b is not None else b if a is None else a


def hull(ranges: Iterable[Range]) -> Range:
    """Enclose the values of all ranges."""
    every = list(ranges)
    null, minus = any(r.null for r in every), any(r.minus for r in every)
    plus = any(r.plus for r in every)
    full = [r for r in every if not r.empty]
    low, high = least(r.low for r in full), greatest(r.high for r in full)
    return Range(low, high, coarsest(r.scale for r in full), null, minus, plus, not full)


def within(r: Range, low: End, high: End) -> Range:
    """Intersect with bounds that every finite value keeps."""
    return settled(replace(r, low=above(r.low, low), high=below(r.high, high)))


def coarsest(scales: Iterable[int | None]) -> int | None:
    """Return the scale that values of all given scales have."""
    found = list(scales)
    return None if None in found else max((s for s in found if s is not None), default=0)


# -- rounding --------------------------------------------------------------------------------


def half_away(x: Fraction) -> int:
    """Round to an integer, halves away from zero, as numeric does."""
    return floor(x + Fraction(1, 2)) if x >= 0 else ceil(x - Fraction(1, 2))


def toward_zero(x: Fraction) -> int:
    """Truncate."""
    return floor(x) if x >= 0 else ceil(x)


def rounded(x: Fraction, scale: int, rule: Callable[[Fraction], int]) -> Fraction:
    """Round to a multiple of ``10^-scale`` by a rule for integers."""
    if scale == 0:
        return Fraction(rule(x))
    unit = Fraction(10) ** scale
    return rule(x * unit) / unit


def significant(x: Fraction, digits: int, rule: Callable[[Fraction], int]) -> Fraction:
    """Round to so many significant decimal digits by a rule for integers."""
    return x if x == 0 else rounded(x, digits - 1 - _exponent(x), rule)


def _exponent(x: Fraction) -> int:
    """Return the power of ten at or below ``abs(x)``."""
    bits = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent = bits * 30103 // 100000 - 1
    while abs(x) >= Fraction(10) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(10) ** exponent:
        exponent -= 1
    return exponent


@lru_cache
def _float_format(type_: str) -> tuple[int, int, Fraction]:
    """Return mantissa bits, least exponent of two and greatest value of a floating-point type."""
    bits, lowest, top = (24, -149, 128) if type_ == "real" else (53, -1074, 1024)
    return bits, lowest, (2 - Fraction(1, 2 ** (bits - 1))) * 2 ** (top - 1)


def as_float(x: Fraction, type_: str) -> Fraction:
    """Round to the nearest floating-point number, halves to even; never beyond the greatest."""
    if x == 0:
        return x
    bits, lowest, top = _float_format(type_)
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - bits + 1, lowest)
    return max(-top, min(top, round(x / unit) * unit))


def monotone(r: Range, rule: Callable[[Fraction], Fraction], scale: int | None) -> Range:
    """Apply a function that never decreases to the finite values."""
    low = None if r.low is None else rule(r.low)
    high = None if r.high is None else rule(r.high)
    return settled(replace(r, low=low, high=high, scale=scale))


# -- arithmetic ------------------------------------------------------------------------------


def negative(a: Range) -> Range:
    """Enclose ``-a``; the negative of NaN is NaN."""
    return replace(
        a,
        low=None if a.high is None else -a.high,
        high=None if a.low is None else -a.low,
        minus=a.plus,
        plus=a.special,
    )


def absolute(a: Range) -> Range:
    """Enclose ``abs(a)``."""
    if a.low is not None and a.low >= 0:
        low, high = a.low, a.high
    elif a.high is not None and a.high <= 0:
        low, high = -a.high, None if a.low is None else -a.low
    else:
        low, high = _ZERO, _size(a)
    return replace(a, low=low, high=high, minus=False, plus=a.special)


def sign(a: Range, *, of_float: bool) -> Range:
    """Enclose ``sign(a)``: of infinite values -1 and 1, of NaN 0 as a float and NaN as numeric."""
    ends = [] if a.empty else [(a.low, a.high)]
    if a.minus:
        ends.append((-_ONE, -_ONE))
    if a.plus:
        ends.append((_ZERO if of_float else _ONE, _ONE))
    everything = replace(
        a,
        low=least(low for low, _ in ends),
        high=greatest(high for _, high in ends),
        minus=False,
        plus=a.plus and not of_float,
        empty=not ends,
    )
    found = monotone(everything, lambda x: Fraction((x > 0) - (x < 0)), 0)
    return within(found, -_ONE, _ONE)


def is_other_than_zero(a: Range) -> Range:
    """Enclose what a cast of integers to boolean gives: 0 where ``a`` is 0, 1 elsewhere."""
    may_be_zero = (a.low is None or a.low <= 0) and (a.high is None or a.high >= 0)
    low = _ZERO if may_be_zero else _ONE
    high = _ZERO if a.low == a.high == 0 else _ONE
    return replace(a, low=low, high=high, scale=0)


def _size(a: Range) -> End:
    return None if a.low is None or a.high is None else max(abs(a.low), abs(a.high))


def _combined(a: Range, b: Range, low: End, high: End, scale: int | None) -> Range:
    """Make the result of an operation whose value is NaN or infinite only if an operand is."""
    special = a.special or b.special
    null = a.null or b.null
    if a.empty or b.empty:
        # a finite result may still come of one that is infinite: 1 / Infinity
        return Range(None, None, None, null, special, special, not special)
    return settled(Range(low, high, scale, null, special, special))


def plus(a: Range, b: Range) -> Range:
    """Enclose ``a + b``."""
    low = None if a.low is None or b.low is None else a.low + b.low
    high = None if a.high is None or b.high is None else a.high + b.high
    return _combined(a, b, low, high, coarsest((a.scale, b.scale)))


def times(a: Range, b: Range, *, same: bool = False) -> Range:
    """Enclose ``a * b``; ``same`` tells that both are one value."""
    scale = None if a.scale is None or b.scale is None else min(a.scale + b.scale, MAX_SCALE)
    low, high = _products(a, b)
    return _combined(a, b, above(low, _ZERO) if same else low, high, scale)


def _products(a: Range, b: Range) -> tuple[End, End]:
    """Multiply ends; a missing one is infinite, and 0 times it is 0, since values are finite."""
    lows: list[End] = []
    highs: list[End] = []
    for x, x_sign in ((a.low, -1), (a.high, 1)):
        for y, y_sign in ((b.low, -1), (b.high, 1)):
            if x == 0 or y == 0:
                product: End = _ZERO
            else:
                product = None if x is None or y is None else x * y
            positive = ((x_sign if x is None else x) * (y_sign if y is None else y)) > 0
            if product is not None or not positive:
                lows.append(product)
            if product is not None or positive:
                highs.append(product)
    return least(lows), greatest(highs)


def quotient(a: Range, b: Range) -> tuple[End, End]:
    """Enclose the exact ``a / b`` for finite ``b`` other than 0."""
    step = None if b.scale is None else Fraction(1, 10 ** min(b.scale, 2000))
    ends = []
    if b.high is None or b.high > 0:
        near = b.low if b.low is not None and b.low > 0 else step
        if near is None:
            return None, None
        ends.append(_products(a, Range(_inverse(b.high), 1 / near)))
    if b.low is None or b.low < 0:
        near = b.high if b.high is not None and b.high < 0 else negated(step)
        if near is None:
            return None, None
        ends.append(_products(a, Range(1 / near, _inverse(b.low))))
    if not ends:
        return _ZERO, _ZERO
    return least(low for low, _ in ends), greatest(high for _, high in ends)


def _inverse(far: End) -> Fraction:
    return _ZERO if far is None else 1 / far


def numeric_quotient(a: Range, b: Range) -> Range:
    """Enclose ``a / b`` as numeric computes it.

    The result is rounded to at least 16 significant digits, at most 1000 digits after the point:
    with ``|q| >= 10000^w`` PostgreSQL keeps ``16 - 4 w`` of them (``select_div_scale``), never a
    negative number.  So no value crosses an integer, nor a number of 15 significant digits on the
    far side of 0; on the near side it moves by at most ``10^-16`` of itself.
    """
    low, high = quotient(a, b)
    high = None if high is None else _quotient_end(high)
    low = None if low is None else -_quotient_end(-low)
    if b.special:  # x / Infinity = 0
        low, high = least((low, _ZERO)), greatest((high, _ZERO))
    return _combined(a, b, low, high, None)


def _quotient_end(high: Fraction) -> Fraction:
    if abs(high) < Fraction(1, 10**900):
        return Fraction(1, 10**900) if high > 0 else _ZERO
    moved = high if high > 0 else high * (1 - Fraction(1, 10**16))
    return min(significant(moved, 15, ceil), Fraction(ceil(high)))


def remainder(a: Range, b: Range) -> Range:
    """Enclose ``a % b``, which has the sign of ``a`` and is exact."""
    size = None if b.special else _size(b)
    scale = coarsest((a.scale, b.scale))
    if size is not None and scale is not None and scale <= 1000:
        size = max(_ZERO, size - Fraction(1, 10**scale))
    low = _ZERO if a.low is not None and a.low >= 0 else above(a.low, negated(size))
    high = _ZERO if a.high is not None and a.high <= 0 else below(a.high, size)
    return _combined(a, b, low, high, scale)


def negated(end: End) -> End:
    """Return the negative of an end."""
    return None if end is None else -end
