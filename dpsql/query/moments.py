"""Dates and timestamps as numbers: days, or seconds in steps of a microsecond, since 1970.

Values are clamped to public bounds before they become numbers, infinite ones too, so that no
subtraction can fail on a row (PRIVACY.md section 2).  Bounds lie in the years 1 to 9999; those of
timestamps with a time zone are read and written in UTC, whatever the session's zone is.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from fractions import Fraction

from dpsql.query import functions
from dpsql.query.ir import TRUE, Expr, constant
from dpsql.query.types import TIMESTAMP, TIMESTAMPTZ

#: The types, and the decimals that their numbers have.
SCALES = {"date": 0, TIMESTAMP: 6, TIMESTAMPTZ: 6}
_DAY = date(1970, 1, 1)
_MOMENT = datetime(1970, 1, 1)
_STEP = timedelta(microseconds=1)


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


def inside(x: Expr, low: Fraction, high: Fraction) -> Expr:
    """Make the condition that a moment lies between two numbers."""
    return functions.between(x, written(x.type, low), written(x.type, high))


def numbered(x: Expr, low: Fraction, high: Fraction, known: Expr) -> Expr:
    """Clamp a moment and make it a number; NULL where ``known`` is not true."""
    ends = [constant(x.type, written(x.type, end)) for end in (low, high)]
    clamped = Expr("least", x.type, (Expr("greatest", x.type, (x, ends[0])), ends[1]))
    if x.type == "date":
        days = (clamped, constant("date", _DAY.isoformat()))
        found = Expr("op", "integer", days, "-")
    else:
        found = Expr("extract", "numeric", (clamped,), "epoch")
    return found if known == TRUE else functions.guard(known, found)


def shown(type_: str, text: str, low: Fraction, high: Fraction) -> str:
    """Write SQL that makes a moment of the type out of SQL for its number."""
    if type_ not in SCALES:
        return text
    if type_ == "date":
        return f"'{_DAY.isoformat()}'::date + ({text})::integer"
    # from the lower end, so that double precision keeps the microseconds of short ranges
    ends = [f"'{written(type_, end)}'::{type_}" for end in (low, high)]
    seconds = f"({text} - {_decimal(low)})::double precision * '00:00:01'::interval"
    return f"least(greatest({ends[0]} + {seconds}, {ends[0]}), {ends[1]})"


def _decimal(seconds: Fraction) -> str:
    """Write a number of seconds."""
    steps = int(seconds * 10**6)
    sign = "-" if steps < 0 else ""
    return f"({sign}{abs(steps) // 10**6}.{abs(steps) % 10**6:06})::numeric"
