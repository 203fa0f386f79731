"""What the fields of dates and times can be, as ``extract`` gives them in numeric."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dpsql.query import moments
from dpsql.query.ranges import Range
from dpsql.query.types import TIME

#: Field of a date, timestamp or time: least value, greatest value, scale.
_CYCLIC: dict[str, tuple[int, Fraction | int, int]] = {
    "month": (1, 12, 0),
    "quarter": (1, 4, 0),
    "dow": (0, 6, 0),
    "isodow": (1, 7, 0),
    "day": (1, 31, 0),
    "week": (1, 53, 0),
    "doy": (1, 366, 0),
    "hour": (0, 24, 0),  # 24:00 is a time
    "minute": (0, 59, 0),
    "second": (0, Fraction(59_999_999, 1_000_000), 6),
    "milliseconds": (0, Fraction(59_999_999, 1000), 3),
    "microseconds": (0, 59_999_999, 0),
}
#: Years to a unit of what grows with the date; an infinite date has an infinite one.
_GROWING = {"year": 1, "isoyear": 1, "decade": 10, "century": 100, "millennium": 1000}
#: The first year of dates and timestamps, and the year after the last date.
_YEARS = (-4714, 5_874_898)
#: Fields of an interval that have their sign and keep below a unit of the next.
_OF_INTERVAL: dict[str, tuple[Fraction | int, int]] = {
    "month": (11, 0),
    "minute": (59, 0),
    "second": (Fraction(59_999_999, 1_000_000), 6),
    "milliseconds": (Fraction(59_999_999, 1000), 3),
    "microseconds": (59_999_999, 0),
}


def field_range(field: str, type_: str, source: Range) -> Range:
    """Enclose a field of a date or time that is not NULL, before PostgreSQL converts it to float.

    ``source`` encloses the date or timestamp, as a number.  Fields of infinite dates are infinite
    or NULL (from PostgreSQL 17 on also of intervals).
    """
    if type_ in moments.SCALES:
        return _of_moment(field, type_, source)
    infinite = type_ != TIME
    if type_ == "interval":
        if field not in _OF_INTERVAL:
            whole = 6 if field == "epoch" else 0
            return Range(None, None, whole, infinite, infinite, infinite)
        size, scale = _OF_INTERVAL[field]
        return Range(-Fraction(size), Fraction(size), scale, infinite)
    if field not in _CYCLIC:  # epoch
        return Range(None, None, 6, infinite, infinite, infinite)
    low, high, scale = _CYCLIC[field]
    return Range(Fraction(low), Fraction(high), scale, infinite)


def _of_moment(field: str, type_: str, source: Range) -> Range:
    """Enclose a field of a date or timestamp; those that grow with it have its ends."""
    infinite = source.special
    if field in _CYCLIC:
        low, high, scale = _CYCLIC[field]
        return Range(Fraction(low), Fraction(high), scale, infinite)
    if field == "epoch":
        seconds = moments.midnight(source) if type_ == "date" else source
        return replace(seconds, scale=6, null=False)
    found = moments.days(type_, source)
    unit, iso = _GROWING[field], field == "isoyear"
    first, last = found.low, found.high
    low = moments.year(first, last=False, iso=iso) if first is not None else _YEARS[0]
    high = moments.year(last, last=True, iso=iso) if last is not None else _YEARS[1]
    # the first century has the years 1 to 100; before it the units begin elsewhere
    shift = unit - 1 if field in ("century", "millennium") else 0
    least = (low + shift) // unit if low > 0 else low // unit - 1
    most = (high + shift) // unit if high > 0 else high // unit + 1
    return Range(Fraction(least), Fraction(most), 0, False, source.minus, source.plus, source.empty)
