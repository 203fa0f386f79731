"""Guards: rewritings that make arithmetic, dates, texts and casts total.

See the table in :mod:`dpsql.query.functions`.  Each helper states what it bounds.
"""

from __future__ import annotations

from dpsql.errors import UnsupportedConstruct
from dpsql.query.functions import between, compare, either, guard, not_allowed
from dpsql.query.ir import Expr, constant
from dpsql.query.types import (
    EXACT,
    FLOATS,
    INTEGERS,
    TEXTS,
    TIMESTAMP,
    TIMESTAMPTZ,
    digits,
    modifier,
    octets,
    weight,
)

MAX_WEIGHT = 20_000
MAX_DIGITS = 60_000
MAX_OCTETS = 1_048_576
# Bounds of what rounds into the type.  Numeric rounds halves away from zero, floats to even: the
# lower bound itself still fits for floats.
_BOUNDS = {
    "smallint": ("-32768.5", "32767.5"),
    "integer": ("-2147483648.5", "2147483647.5"),
    "bigint": ("-9223372036854775808.5", "9223372036854775807.5"),
}
_FLOAT_BOUNDS = {
    "smallint": ("-32768.5", "32767.5"),
    "integer": ("-2147483648.5", "2147483647.5"),
    "bigint": ("-9223372036854775808", "9223372036854775808"),
}
_SAFE = {
    "date": ("1000-01-01 BC", "200000-01-01"),
    TIMESTAMP: ("1000-01-01 00:00:00 BC", "200000-01-01 00:00:00"),
    TIMESTAMPTZ: ("1000-01-01 00:00:00+00 BC", "200000-01-01 00:00:00+00"),
}


def checked(e: Expr, position: int | None) -> Expr:
    """Refuse an expression whose guards have grown too large to send."""
    if weight(e) > MAX_WEIGHT or (e.type == "numeric" and (digits(e) or 0) > MAX_DIGITS):
        raise UnsupportedConstruct("the expression is too complex", position=position)
    return e


def cast_node(e: Expr, full: str, type_: str) -> Expr:
    """Make a cast without asking whether it is total."""
    return Expr("cast", type_, (e,), full)


def wide(e: Expr) -> Expr:
    """View an integer as numeric, without the range check of an inner result.

    What was rounded to become an integer, or is a float underneath, keeps its cast: without it
    ``x::int * 2`` would be another number, and a product of floats could overflow.
    """
    if e.kind == "narrow" and _integral(e.args[0]):
        return e.args[0]
    if e.type == "numeric":
        return bounded(e)
    if e.kind == "const":
        return constant("numeric", None if e.data is None else str(e.data))
    return cast_node(e, "numeric", "numeric")


def _integral(e: Expr) -> bool:
    """Tell whether a numeric expression was made of integers by exact operations."""
    if e.kind == "narrow":
        return _integral(e.args[0])
    if e.kind == "cast":
        return e.data == "numeric" and e.args[0].type in INTEGERS
    if e.kind == "const":
        return e.data is not None and str(e.data).lstrip("-").isdigit()
    exact = (e.kind == "op" and e.data in ("+", "-", "*")) or (e.kind, e.data) == ("fn", "abs")
    return exact and e.type == "numeric" and all(_integral(a) for a in e.args)


def narrow(e: Expr, type_: str) -> Expr:
    """Convert a number to an integer type; NULL outside its range and for NaN.

    Rounding happens before PostgreSQL's range check, hence the .5; NaN compares greater
    than every number, so the upper bound excludes it.
    """
    if e.type in INTEGERS:
        e = wide(e)
    source = "double precision" if e.type in FLOATS else "numeric"
    low, high = (_FLOAT_BOUNDS if source != "numeric" else _BOUNDS)[type_]
    least = ">=" if source != "numeric" else ">"
    return Expr("narrow", type_, (e,), (source, least, low, high))


def bounded(e: Expr) -> Expr:
    """Bound a numeric operand to 10^100 unless its type does it already."""
    size = digits(e)
    if size is not None and size <= MAX_DIGITS:
        return e
    limit = "1" + 100 * "0"
    return guard(between(e, "-" + limit, limit), e, 101)


def castable(e: Expr, low: str, high: str) -> Expr:
    """Bound a number as :func:`sized` does, but keep NaN and infinities, which any float has."""
    special = (compare(e, "=", constant(e.type, v)) for v in ("NaN", "Infinity", "-Infinity"))
    return guard(either(*_magnitudes(e, low, high), *special), e)


#: Longest char(n) that a statement may cast to: it takes that much memory a row.
MAX_PADDED = 1000


def sized(e: Expr, low: str, high: str) -> Expr:
    """Bound a float's magnitude: 0 or between ``low`` and ``high`` (NaN excluded)."""
    if e.kind == "const" and e.data is not None:
        value = abs(float(str(e.data)))
        if value == 0 or float(low) <= value <= float(high):
            return e
    return guard(either(*_magnitudes(e, low, high)), e)


def _magnitudes(e: Expr, low: str, high: str) -> tuple[Expr, ...]:
    """Make the conditions of which one holds if ``e`` is 0 or of such a magnitude."""
    return (
        between(e, low, high),
        between(e, "-" + high, "-" + low),
        compare(e, "=", zero(e.type)),
    )


def zero(type_: str) -> Expr:
    """Make the constant 0."""
    return constant(type_, "0")


def short(e: Expr) -> Expr:
    """Bound a text to 1 MB; ``octet_length`` does not fetch a toasted value."""
    size = octets(e)
    if size is not None and size <= MAX_OCTETS:
        return e
    length = Expr("fn", "integer", (e,), "octet_length")
    return guard(compare(length, "<=", constant("integer", str(MAX_OCTETS))), e, MAX_OCTETS)


def safe_range(type_: str) -> tuple[str, str]:
    """Return the range of a date or timestamp type in which arithmetic cannot overflow."""
    return _SAFE[type_]


def in_range(e: Expr) -> Expr:
    """Bound a date or timestamp to the range in which date arithmetic cannot overflow."""
    if e.kind == "guard" and e.data is None and e.args[0] == between(e.args[1], *_SAFE[e.type]):
        return e
    if e.kind == "guard" and e.args[1].kind == "cast" and e.args[1].args[0].type == "date":
        return guard(between(e.args[1].args[0], *_SAFE["date"]), e.args[1])
    return guard(between(e, *_SAFE[e.type]), e)


def to_timestamp(e: Expr) -> Expr:
    """Convert a date: timestamps end in AD 294276, dates in AD 5874897."""
    fits = either(
        compare(e, "<", constant("date", "294277-01-01")),
        compare(e, "=", constant("date", "infinity")),
    )
    return guard(fits, cast_node(e, TIMESTAMP, TIMESTAMP))


def at_zone(e: Expr, zone: str) -> Expr:
    """Apply ``AT TIME ZONE`` a constant zone, within the safe range."""
    result = TIMESTAMPTZ if e.type == TIMESTAMP else TIMESTAMP
    return Expr("fn", result, (constant("text", zone), in_range(e)), "timezone")


def with_zone(e: Expr, zone: str) -> Expr:
    """Convert a date or timestamp to timestamptz in a constant zone."""
    if e.type == TIMESTAMPTZ:
        return e
    return at_zone(to_timestamp(e) if e.type == "date" else e, zone)


def cast(e: Expr, full: str, type_: str, zone: str, *, is_enum: bool, position: int) -> Expr:
    """Cast totally, or raise ``FunctionNotAllowed``."""
    source = e.type
    size = modifier(full)
    plain = not size
    if source == type_ and plain:
        return e
    if type_ in TEXTS:
        # "char" to bpchar copies a byte that may be no character; to text it is written in octal
        unchanged = (source in TEXTS and (source, type_) != ('"char"', "bpchar")) or (
            source == "boolean"
        )
        if type_ == "bpchar" and size and size[0] > MAX_PADDED:
            raise not_allowed(f"the cast to {full}, which pads every value,", position)
        through_text = source in (*EXACT, "uuid") or is_enum
        if unchanged or (through_text and type_ in ("text", "character varying")):
            return cast_node(e, full, type_)
    elif type_ in INTEGERS and plain:
        if source in INTEGERS:
            wider = INTEGERS.index(type_) >= INTEGERS.index(source)
            return cast_node(e, full, type_) if wider else narrow(e, type_)
        if source == "numeric":
            return narrow(e, type_)
        if source in FLOATS:
            return narrow(double(e), type_)
        if source == "boolean" and type_ == "integer":
            return cast_node(e, full, type_)
    elif type_ == "numeric":
        if source in EXACT or source in FLOATS:
            return _to_numeric(e, full, size)
    elif type_ in FLOATS and plain:
        return _to_float(e, type_, position)
    elif type_ == "boolean" and source == "integer":
        return cast_node(e, full, type_)
    elif plain:
        converted = _to_date_time(e, type_, zone)
        if converted is not None:
            return converted
    raise not_allowed(f"the cast from {source} to {full}", position)


def double(e: Expr) -> Expr:
    """View a real as double precision, which is exact."""
    return cast_node(e, "double precision", "double precision") if e.type == "real" else e


def _to_numeric(e: Expr, full: str, size: tuple[int, ...]) -> Expr:
    value = e if e.type == "numeric" else cast_node(e, "numeric", "numeric")
    if not size:
        return value
    precision, scale = (*size, 0)[:2]
    rounded = Expr("fn", "numeric", (bounded(value), constant("integer", str(scale))), "round")
    limit = "1" + (precision - scale) * "0" if precision >= scale >= 0 else None
    if limit is None:
        raise not_allowed(f"the cast to {full}", None)
    inside = Expr(
        "and",
        "boolean",
        (
            compare(rounded, "<", constant("numeric", limit)),
            compare(rounded, ">", constant("numeric", "-" + limit)),
        ),
    )
    # every numeric type has NaN, none with a precision has infinities
    inside = either(inside, compare(value, "=", constant("numeric", "NaN")))
    return guard(inside, cast_node(value, full, "numeric"))


# the least and the greatest magnitude that PostgreSQL converts without an error
_FLOAT_LIMITS = {
    "double precision": ("3e-324", "1.7976931348623157e308"),
    "real": ("8e-46", "3.4028234663852886e38"),
}


def _to_float(e: Expr, type_: str, position: int) -> Expr:
    """Convert to a float: beyond the exponents of the type PostgreSQL raises an error."""
    limits = _FLOAT_LIMITS[type_]
    if e.type in INTEGERS or (e.type == "real" and type_ == "double precision"):
        return cast_node(e, type_, type_)
    if e.type == "numeric":
        size = digits(e)
        known = modifier(str(e.data[3])) if e.kind == "col" else ()  # type: ignore[index]
        if known and size is not None and size <= 37 and abs((*known, 0)[1]) <= 37:
            return cast_node(e, type_, type_)
        return cast_node(castable(e, *limits), type_, type_)
    if e.type == "double precision":
        return cast_node(castable(e, *limits), type_, type_)
    raise not_allowed(f"the cast from {e.type} to {type_}", position)


def _to_date_time(e: Expr, type_: str, zone: str) -> Expr | None:
    match e.type, type_:
        case "date", "timestamp without time zone":
            return to_timestamp(e)
        case "date" | "timestamp without time zone", "timestamp with time zone":
            return with_zone(e, zone)
        case "timestamp without time zone", "date" | "time without time zone":
            return cast_node(e, type_, type_)
        case "timestamp with time zone", "timestamp without time zone":
            return at_zone(e, zone)
        case "timestamp with time zone", "date" | "time without time zone":
            return cast_node(at_zone(e, zone), type_, type_)
    return None
