"""Expressions in the form that postgres_fdw sends to other servers.

It sends operators, functions, casts, NULL tests and CASE, but neither COALESCE, GREATEST, LEAST and
NULLIF nor tests of booleans, nor what takes the name of a field or a time zone as a text: a
condition or value with one of these would have every row fetched.  What is written here has the
same value on every row.  Of what is not sent all the same less is read: of a moment its day.
"""

from __future__ import annotations

from dpsql.query.ir import FALSE, TRUE, Expr, constant
from dpsql.query.types import TEXTS, TIME, TIMESTAMP

#: An argument is written several times; above so many nodes all stays as it is.
_MOST = 1000
#: Fields that depend on the day alone, of which an infinite one has the moment's.
_OF_DAYS = frozenset(
    [
        *("year", "month", "day", "quarter", "week", "dow", "isodow", "doy", "isoyear"),
        *("decade", "century", "millennium"),
    ]
)
_HOURS = tuple(constant(TIME, f"{hour:02}:00:00") for hour in range(1, 25))
#: Always at the same time as UTC.
_UTC = frozenset(["UTC", "ETC/UTC", "GMT", "ETC/GMT", "UCT", "ETC/UCT", "ZULU", "ETC/ZULU"])
_TO_TEXT = {
    "text": "pg_catalog.text",
    "character varying": "pg_catalog.varchar",
    "bpchar": "pg_catalog.bpchar",
}


def shippable(e: Expr) -> Expr:
    """Write an expression by CASE where postgres_fdw sends nothing else."""
    found, size = _rewritten(e)
    return found if size <= _MOST else e


def _rewritten(e: Expr) -> tuple[Expr, int]:
    """Return the expression and how many nodes it is written with."""
    if (clamped := _clamped(e)) is not None:
        return clamped
    e = _of_day(e)
    pairs = [_rewritten(a) for a in e.args]
    args, size = tuple(a for a, _ in pairs), 1 + sum(n for _, n in pairs)
    e = Expr(e.kind, e.type, args, e.data)
    if e.kind == "coalesce":
        found = args[-1]
        for a in reversed(args[:-1]):
            found = Expr("case", e.type, (Expr("is", "boolean", (a,), "NOT NULL"), a, found))
        return found, 2 * size
    if e.kind in ("greatest", "least"):
        found = args[0]
        for a in args[1:]:
            found = _extreme(e, found, a)
        return found, size * 4 ** (len(args) - 1)
    if e.kind == "nullif" and args[0].type == args[1].type:
        equal = Expr("op", "boolean", args, "=")
        return Expr("case", e.type, (equal, constant(e.type, None), args[0])), 2 * size
    if e.kind == "is" and e.data in _TESTS:
        word = str(e.data)
        test = args[0] if word.endswith("TRUE") else Expr("not", "boolean", args)
        values = (FALSE, TRUE) if word.startswith("NOT") else (TRUE, FALSE)
        return Expr("case", "boolean", (test, *values)), size + 3
    if e.kind == "cast" and e.type in _TO_TEXT and args[0].type not in TEXTS[:3]:
        # written with the schema, it is known not to be sent
        modifier = str(e.data).partition("(")[1:]
        return Expr(e.kind, e.type, args, _TO_TEXT[e.type] + "".join(modifier)), size
    if e.kind == "fn" and e.data == "timezone" and str(args[0].data).upper() in _UTC:
        return Expr("fn", e.type, (constant("interval", "00:00:00"), args[1]), "timezone"), size
    return e, size


_TESTS = ("TRUE", "NOT TRUE", "FALSE", "NOT FALSE")


def _extreme(e: Expr, left: Expr, right: Expr) -> Expr:
    """Take the greater or lesser of two values, the first of equal ones, the other of NULL."""
    no_left, no_right = (Expr("is", "boolean", (a,), "NULL") for a in (left, right))
    first = Expr("op", "boolean", (left, right), ">=" if e.kind == "greatest" else "<=")
    nothing = () if left.kind == "const" and left.data is not None else (no_left, right)
    alone = () if right.kind == "const" and right.data is not None else (no_right, left)
    return Expr("case", e.type, (*nothing, *alone, first, left, right))


def _clamped(e: Expr) -> tuple[Expr, int] | None:
    """Write ``LEAST(GREATEST(x, low), high)`` of constants with few copies of ``x``."""
    if e.kind != "least" or len(e.args) != 2 or e.args[0].kind != "greatest":
        return None
    high, bounds = e.args[1], e.args[0].args
    if len(bounds) != 2 or any(c.kind != "const" or c.data is None for c in (bounds[1], high)):
        return None
    (x, size), low = _rewritten(bounds[0]), bounds[1]

    def test(left: Expr, operator: str, right: Expr) -> Expr:
        return Expr("op", "boolean", (left, right), operator)

    within = Expr("case", e.type, (test(x, ">", high), high, x))
    # NULL is the lower bound, which may be above the upper one
    below = Expr("case", e.type, (test(low, ">", high), high, low))
    found = Expr("case", e.type, (test(x, ">=", low), within, below))
    return found, 3 * size + 10


def _of_day(e: Expr) -> Expr:
    """Let a field of a moment, or its truncation, read the day or the hour only."""
    if e.kind == "extract":
        of = e.args[0]
        if of.type == TIMESTAMP and e.data in _OF_DAYS:
            return Expr("extract", e.type, (_day(of),), e.data)
        if of.type in (TIMESTAMP, TIME) and e.data == "hour":
            return Expr("cast", e.type, (_hour(of),), e.type)
    if e.kind != "fn" or e.data not in ("date_part", "date_trunc"):
        return e
    field, of = e.args[:2]
    if of.type == TIMESTAMP and field.data in (*_OF_DAYS, "day"):
        midnight = Expr("cast", TIMESTAMP, (_day(of),), TIMESTAMP)
        if e.data == "date_trunc" and field.data == "day":
            return midnight
        return Expr("fn", e.type, (field, midnight), e.data)
    if of.type in (TIMESTAMP, TIME) and (e.data, field.data) == ("date_part", "hour"):
        return Expr("cast", e.type, (_hour(of),), e.type)
    return e


def _day(e: Expr) -> Expr:
    return Expr("fn", "date", (e,), "date")


def _hour(e: Expr) -> Expr:
    """Count the full hours that have passed; a time can be 24:00, an infinite moment has none."""
    time = e if e.type == TIME else Expr("cast", TIME, (e,), TIME)
    return Expr("fn", "integer", (time, Expr("array", f"{TIME}[]", _HOURS)), "width_bucket")
