"""Dates and timestamps as numbers: days, or seconds in steps of a microsecond, since 1970.

Values are clamped to public bounds before they become numbers, infinite ones too, so that no
subtraction can fail on a row (PRIVACY.md section 2).  Bounds lie in the years 1 to 9999; those of
timestamps with a time zone are read and written in UTC, whatever the session's zone is.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction

from sqlglot import exp

from dpsql.query import functions, ranges
from dpsql.query.ir import TRUE, Expr, constant
from dpsql.query.ranges import Range
from dpsql.query.types import TIMESTAMP, TIMESTAMPTZ
from dpsql.sqltree import cast, sql

#: The types, and the decimals that their numbers have.
SCALES = {"date": 0, TIMESTAMP: 6, TIMESTAMPTZ: 6}
_DAY = date(1970, 1, 1)
_MOMENT = datetime(1970, 1, 1)
_STEP = timedelta(microseconds=1)
_SECONDS = 86400
#: The first day that the types hold, 4714-11-24 BC, and the one after the last.
_DAYS = {"date": (-2440588, 2145042906), TIMESTAMP: (-2440588, 106762940)}
#: The offset of a zone from UTC is below a week.
_OFFSET = 7 * _SECONDS


def number(type_: str, text: str) -> Fraction | None:
    """Read a value in its type's output format; ``None`` if it is infinite or far away."""
    try:
        if type_ == "date":
            return Fraction((date.fromisoformat(text) - _DAY).days)
        moment = datetime.fromisoformat(text)
        if (moment.tzinfo is None) == (type_ == TIMESTAMPTZ):
            return None
        if moment.tzinfo is not None:
            moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return Fraction((moment - _MOMENT) // _STEP, 10**6)


def written(type_: str, value: Fraction) -> str:
    """Write a number as a value of the type."""
    if type_ == "date":
        return (_DAY + timedelta(days=int(value))).isoformat()
    moment = (_MOMENT + int(value * 10**6) * _STEP).isoformat(sep=" ")
    return f"{moment}+00" if type_ == TIMESTAMPTZ else moment


def constant_number(e: Expr) -> Fraction | None:
    """Read a constant of one of the types, or a date that is taken for midnight of its day."""
    type_ = e.type
    if e.kind == "guard":
        e = e.args[1]
    if e.kind == "cast" and (e.type, e.args[0].type) == (TIMESTAMP, "date"):
        e = e.args[0]
    if e.kind != "const" or e.data is None:
        return None
    if (type_, e.type) == (TIMESTAMP, "date"):
        found = number("date", str(e.data))
        return None if found is None else found * 86400
    return number(type_, str(e.data))


def type_range(type_: str) -> Range:
    """Enclose the numbers of all values of one of the types."""
    first, last = (Fraction(day) for day in _DAYS.get(type_, _DAYS[TIMESTAMP]))
    found = Range(first, last, SCALES[type_], minus=True, plus=True)
    return found if type_ == "date" else midnight(found)


def midnight(days: Range) -> Range:
    """Enclose the timestamps of days at midnight."""
    return ranges.monotone(days, lambda x: x * _SECONDS, 6)


def in_any_zone(moment: Range) -> Range:
    """Enclose local times of moments, or moments of local times, whatever the zone is."""
    low = None if moment.low is None else moment.low - _OFFSET
    high = None if moment.high is None else moment.high + _OFFSET
    return replace(moment, low=low, high=high)


def days(type_: str, moment: Range) -> Range:
    """Enclose the days of moments."""
    if type_ == "date":
        return moment
    return ranges.monotone(moment, lambda x: Fraction(x // _SECONDS), 0)


def year(day: Fraction, *, last: bool, iso: bool) -> int:
    """Return the year that a day lies in; of years that are far away one before or after it."""
    try:
        found = _DAY + timedelta(days=int(day))
        return found.isocalendar().year if iso else found.year
    except OverflowError:
        # a year has 365.2425 days on average, and none is numbered 0
        about = 1970 + day / Fraction(3652425, 10000)
        return about.__ceil__() + 1 if last else about.__floor__() - 2


def inside(x: Expr, low: Fraction, high: Fraction) -> Expr:
    """Make the condition that a moment lies between two numbers."""
    return functions.between(x, written(x.type, low), written(x.type, high))


def clamped(x: Expr, low: Fraction, high: Fraction, known: Expr) -> Expr:
    """Clamp a moment, an infinite one, too; NULL where ``known`` is not true."""
    inner = _between(x, low, high)
    return inner if known == TRUE else functions.guard(known, inner)


def _between(x: Expr, low: Fraction, high: Fraction) -> Expr:
    ends = [constant(x.type, written(x.type, end)) for end in (low, high)]
    return Expr("least", x.type, (Expr("greatest", x.type, (x, ends[0])), ends[1]))


def numbered(x: Expr, low: Fraction, high: Fraction, known: Expr) -> Expr:
    """Clamp a moment and make it a number; NULL where ``known`` is not true."""
    inner = _between(x, low, high)
    if x.type == "date":
        since = (inner, constant("date", _DAY.isoformat()))
        found = Expr("op", "integer", since, "-")
    else:
        found = Expr("extract", "numeric", (inner,), "epoch")
    return found if known == TRUE else functions.guard(known, found)


def shown(type_: str, number: exp.Expr, low: Fraction, high: Fraction) -> exp.Expr:
    """Make a moment of the type out of its number."""
    if type_ == "date":
        day = _literal("date", _DAY.isoformat())
        found: exp.Expr = sql(":day + CAST(:number AS integer)", day=day, number=number)
        return found
    # from the lower end, so that double precision keeps the microseconds of short ranges
    first, last = (_literal(type_, written(type_, end)) for end in (low, high))
    found = sql(
        "least(greatest(:first + CAST(:number - :low AS double precision) * :second, :first),"
        " :last)",
        first=first, last=last, number=number, second=_literal("interval", "00:00:01"),
        low=_literal("numeric", _decimal(low)),
    )  # fmt: skip
    return found


def _literal(type_: str, text: str) -> exp.Cast:
    return cast(exp.Literal(this=text, is_string=True), type_)


def _decimal(seconds: Fraction) -> str:
    """Write a number of seconds."""
    steps = int(seconds * 10**6)
    sign = "-" if steps < 0 else ""
    return f"{sign}{abs(steps) // 10**6}.{abs(steps) % 10**6:06}"
