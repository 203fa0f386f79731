"""Date and time functions: constant fields, safe ranges, the time zone folded in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.query import functions, totality
from dpsql.query.constants import fold
from dpsql.query.ir import Expr, constant, tree
from dpsql.query.types import TIME, TIMESTAMP, TIMESTAMPTZ
from dpsql.sqltree import sql

if TYPE_CHECKING:
    from dpsql.query.catalog import Catalog
    from dpsql.query.expressions import Builder

NAMES = frozenset(("extract", "date_part", "date_trunc", "timezone", "isfinite"))
MAX_DAYS = 1_000_000  # 2738 years: from AD 200000 to far below the types' ends
_DAY_FIELDS = frozenset(
    [
        "year",
        "month",
        "day",
        "quarter",
        "week",
        "dow",
        "isodow",
        "doy",
        "isoyear",
        "decade",
        "century",
        "millennium",
        "epoch",
    ]
)
_TIME_FIELDS = frozenset(["hour", "minute", "second", "milliseconds", "microseconds", "epoch"])
_FIELDS = {
    "date": _DAY_FIELDS,
    TIMESTAMP: _DAY_FIELDS | _TIME_FIELDS,
    TIMESTAMPTZ: _DAY_FIELDS | _TIME_FIELDS,
    TIME: _TIME_FIELDS,
    "interval": _TIME_FIELDS | {"day", "month", "year"},
}
_WITHIN_DAY = frozenset(("microseconds", "milliseconds", "second", "minute", "hour"))
_TRUNCATIONS = frozenset(
    [
        "microseconds",
        "milliseconds",
        "second",
        "minute",
        "hour",
        "day",
        "week",
        "month",
        "quarter",
        "year",
        "decade",
        "century",
        "millennium",
    ]
)


def arithmetic(
    operator: str, args: tuple[Expr, ...], result: str, catalog: Catalog, position: int
) -> Expr:
    """Apply ``+`` or ``-`` to dates and timestamps within the safe range."""
    left, right = args
    if operator == "+" and left.type in ("integer", "interval"):
        left, right = right, left
    value = Expr("op", result, args, operator)
    if right.type == "integer":
        days = functions.between(right, str(-MAX_DAYS), str(MAX_DAYS))
        condition = functions.between(left, *totality.safe_range(left.type))
        if right.kind != "const":
            condition = Expr("and", "boolean", (condition, days))
        elif right.data is None or abs(int(str(right.data))) > MAX_DAYS:
            raise functions.not_allowed("that many days", position)
        return functions.guard(condition, value)
    if right.type == "interval":
        _require_small(right, catalog, position)
        return functions.guard(functions.between(left, *totality.safe_range(left.type)), value)
    both = tuple(functions.between(a, *totality.safe_range(a.type)) for a in args)
    return functions.guard(Expr("and", "boolean", both), value)


def folded(operator: str, args: tuple[Expr, ...], catalog: Catalog, position: int) -> Expr:
    """Compute with constant intervals, and times in the caller's TimeZone."""
    if any(a.kind != "const" for a in args):
        if TIMESTAMPTZ not in (a.type for a in args):
            raise functions.not_allowed("arithmetic of intervals that are not constant", position)
        raise functions.not_allowed(
            "adding an interval to a column with time zone",
            position,
            "Move it to the other side, where it meets a constant: WHERE placed_at > now() -"
            " interval '1 year'.",
        )
    result = functions.FOLDED[operator, args[0].type, args[1].type][1]
    return fold(Expr("op", result, args, operator), catalog)


def _require_small(interval: Expr, catalog: Catalog, position: int) -> None:
    """Check that each field of a constant interval stays within 1000 years."""
    if interval.kind != "const" or interval.data is None:
        raise functions.not_allowed(
            "an interval that is not constant", position, "Use interval '1 month'."
        )
    small = sql(
        "pg_catalog.abs(EXTRACT(year FROM :given)) < 1000"
        " AND pg_catalog.abs(EXTRACT(day FROM :given)) < 365000"
        " AND pg_catalog.abs(EXTRACT(hour FROM :given)) < 8760000",
        given=tree(interval),
    )
    if catalog.evaluate(small) != "true":
        raise functions.not_allowed("an interval of more than 1000 years", position)


def call(name: str, args: Sequence[Expr], builder: Builder, position: int) -> Expr:
    """Build ``extract``, ``date_part``, ``date_trunc``, ``timezone`` or ``isfinite``."""
    zone = builder.catalog.time_zone
    result = functions.result_of(name, args, position)
    if name == "isfinite":
        return Expr("fn", result, tuple(args), name)
    if args[0].kind != "const" or args[0].data is None:
        raise functions.not_allowed(f"{name} with a field or zone that is not constant", position)
    constant_part = str(args[0].data)
    operand = args[1]
    if name == "timezone":
        return _at_time_zone(constant_part, operand, builder)
    field = constant_part.lower()
    if name == "date_trunc":
        if field not in _TRUNCATIONS:
            raise functions.not_allowed(f"date_trunc to {field}", position)
        return _truncate(field, operand, zone)
    if field not in _FIELDS[operand.type]:
        raise functions.not_allowed(f"{name} of {field} from {operand.type}", position)
    if operand.type == TIMESTAMPTZ and field != "epoch":
        operand = totality.at_zone(operand, zone)
    extracted = Expr("extract", "numeric", (operand,), field)
    if name == "extract":
        return extracted
    if operand.type == "date":
        return totality.cast_node(extracted, result, result)
    # its floating-point arithmetic is not extract's
    return Expr("fn", result, (constant("text", field), operand), name)


def _at_time_zone(zone: str, operand: Expr, builder: Builder) -> Expr:
    # an unknown zone is an error about the analyst's own text, raised here and not on a row
    name = tree(constant("text", zone))
    builder.catalog.evaluate(sql("pg_catalog.timezone(:zone, '2000-01-01'::timestamp)", zone=name))
    return totality.at_zone(operand, zone)


def _truncate(field: str, operand: Expr, zone: str) -> Expr:
    """Truncate; a date converted to timestamptz is truncated before the zone is applied.

    ``date_trunc(field, date)`` is deparsed as ``date_trunc(field, (date)::timestamptz)``,
    which :func:`dpsql.query.totality.with_zone` has already turned into
    ``timezone(zone, date::timestamp)``: truncating local time and then applying the zone
    is what PostgreSQL does for a timestamptz and units of a day and more.  Of smaller units it
    keeps the row's own offset, which local time does not tell in the hour that a clock repeats.
    """
    if operand.type == TIMESTAMP:
        return _truncate_local(field, operand)
    if field in _WITHIN_DAY:
        return Expr(
            "fn",
            TIMESTAMPTZ,
            (constant("text", field), totality.in_range(operand), constant("text", zone)),
            "date_trunc",
        )
    local = totality.at_zone(operand, zone)
    if operand.kind == "fn" and operand.data == "timezone" and operand.args[0].data == zone:
        local = operand.args[1]
    parts = (constant("text", zone), _truncate_local(field, local))  # stays far from the ends
    return Expr("fn", TIMESTAMPTZ, parts, "timezone")


def _truncate_local(field: str, operand: Expr) -> Expr:
    parts = (constant("text", field), totality.in_range(operand))
    return Expr("fn", TIMESTAMP, parts, "date_trunc")
