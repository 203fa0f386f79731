"""The allow-list: which operators and functions, and what makes each of them total.

A condition that raises an error on some row tells that the row exists, so every
function here is proved total, or is rewritten so that it is (PRIVACY.md section 2).
Where PostgreSQL would raise an error the rewriting yields NULL.

========================== ==========================================================
comparisons                total: btree support functions never raise
+ - * of integers          exact in numeric, NULL outside the result type
/ % of integers            NULL for a divisor of 0; min / -1 goes through numeric
+ - * / % of numerics      operands beyond 10^100 are NULL unless the column's type
                           bounds them; a divisor of 0 gives NULL
+ - * / of floats          operands whose result could overflow or underflow are NULL
date and time arithmetic   operands outside 1000 BC ... AD 200000 are NULL (infinity
                           included); intervals are constants within 1000 years
LIKE                       constant pattern, no trailing escape character, few wildcards
lower, upper, ||, replace  texts over 1 MB are NULL (the error would be about memory)
left, right, substring     constant bounds, length not negative
width_bucket               constant bounds, NaN gives NULL
extract, date_part         constant field that the type has
date_trunc                 constant field, operand within the range above
timestamptz                the session's time zone is folded in as a constant; with an
                           interval it is added for constants only
========================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from dpsql.errors import FunctionNotAllowed
from dpsql.query import oids
from dpsql.query.ir import Expr, constant
from dpsql.query.types import TIMESTAMPTZ

Signature = tuple[str, ...]


@cache
def operators() -> dict[Signature, tuple[int, str]]:
    """Map (operator, left, right) to (function OID, result type)."""
    found: dict[Signature, tuple[int, str]] = {}
    for line in oids.OPERATORS.splitlines():
        name, left, right, oid, result = line.split(" | ")
        found[name, left, right] = (int(oid), result)
    return found


#: Operators of constants only, computed by the server when the statement is analysed, with the
#: session's time zone.  On rows some would fail, or depend on the zone's rules.
FOLDED: dict[Signature, tuple[int, str]] = {
    ("+", TIMESTAMPTZ, "interval"): (1189, TIMESTAMPTZ),
    ("-", TIMESTAMPTZ, "interval"): (1190, TIMESTAMPTZ),
    ("+", "interval", TIMESTAMPTZ): (2549, TIMESTAMPTZ),
    ("+", "interval", "interval"): (1169, "interval"),
    ("-", "interval", "interval"): (1170, "interval"),
    ("*", "interval", "double precision"): (1618, "interval"),
    ("*", "double precision", "interval"): (1624, "interval"),
    ("/", "interval", "double precision"): (1326, "interval"),
}

#: Functions of constants only, computed likewise: tools write days and moments with them.
FOLDED_FUNCTIONS: dict[Signature, tuple[int, str]] = {
    ("to_date", "text", "text"): (1780, "date"),
    ("to_timestamp", "text", "text"): (1778, TIMESTAMPTZ),
    ("to_timestamp", "double precision"): (1158, TIMESTAMPTZ),
    ("make_date", "integer", "integer", "integer"): (3846, "date"),
}


@cache
def functions() -> dict[Signature, tuple[int, str]]:
    """Map (function, *arguments) to (OID, result type)."""
    found = {}
    for line in oids.FUNCTIONS.splitlines():
        name, arguments, oid, result = (part.strip() for part in line.split("|"))
        types = tuple(a.strip() for a in arguments.split(",") if a.strip())
        found[(name, *types)] = (int(oid), result)
    return found


@cache
def casts() -> dict[tuple[str, str], int]:
    """Map (source, target) to the cast's function OID (0 for none)."""
    found = {}
    for line in oids.CASTS.splitlines():
        source, target, oid, _ = line.split(" | ")
        found[source, target] = int(oid)
    return found


@cache
def allowed_oids() -> frozenset[int]:
    """Every function OID that a condition or group key may use."""
    return frozenset(
        {oid for oid, _ in operators().values()}
        | {oid for oid, _ in FOLDED.values()}
        | {oid for oid, _ in FOLDED_FUNCTIONS.values()}
        | {oid for oid, _ in functions().values()}
        | set(casts().values())
        | oids.INPUT_OUTPUT
    )


def not_allowed(
    what: str,
    position: int | None,
    hint: str | None = None,
    where: str = "a condition, group key or argument",
) -> FunctionNotAllowed:
    """Make the error for a function, operator, cast or type outside the list."""
    return FunctionNotAllowed(
        f"{what} is not allowed in {where}",
        detail="Only functions that cannot raise an error on any row are.",
        hint=hint or "The documentation lists the allowed ones (docs/sql.md).",
        position=position,
    )


#: What to write in place of functions that many try.
_INSTEAD = {
    **dict.fromkeys(
        ("prefix", "all_ranges", "ranges"),
        "dp.prefix, dp.all_ranges and dp.ranges are for the statement of dp.release;"
        " ask WHERE column BETWEEN ... here.",
    ),
    "to_char": "Use date_trunc('month', column) or extract(year FROM column), and format the"
    " answer: SELECT to_char(month, 'YYYY-MM'), n FROM (SELECT date_trunc('month', d) AS month,"
    " dp_count(*) AS n FROM t GROUP BY 1) AS answer.",
    "age": "Use days, date '2026-01-01' - column, or years, 2026 - extract(year FROM column).",
}


_REGULAR = "Use LIKE, or ILIKE for any case: name LIKE '%word%'."
_OTHERWISE = dict.fromkeys(("~", "~*", "!~", "!~*"), _REGULAR)


def result_of(name: str, args: Sequence[Expr], position: int) -> str:
    """Look a function up by its exact signature and return the result type."""
    key = (name, *(a.type for a in args))
    found = functions().get(key)
    if found is None:
        raise not_allowed(f"{name}({', '.join(key[1:])})", position, _INSTEAD.get(name))
    return found[1]


def operator_result(operator: str, left: str, right: str, position: int | None) -> str:
    """Look an operator up by its exact signature and return the result type."""
    found = operators().get((operator, left, right))
    if found is None:
        shown = " ".join(part for part in (left, operator, right) if part)
        raise not_allowed(f"the operator {shown}", position, _OTHERWISE.get(operator))
    return found[1]


def guard(condition: Expr, value: Expr, bound: int | None = None) -> Expr:
    """Make ``value`` NULL unless ``condition``; ``bound`` is a size that the guard proves."""
    return Expr("guard", value.type, (condition, value), bound)


def compare(left: Expr, operator: str, right: Expr) -> Expr:
    """Make a comparison of two expressions of one type."""
    return Expr("op", "boolean", (left, right), operator)


def between(e: Expr, low: str, high: str, type_: str | None = None) -> Expr:
    """Make ``low <= e AND e <= high`` with constants of the expression's type."""
    kind = type_ or e.type
    lower = compare(e, ">=", constant(kind, low))
    return Expr("and", "boolean", (lower, compare(e, "<=", constant(kind, high))))


def either(*parts: Expr) -> Expr:
    """Make a disjunction."""
    return Expr("or", "boolean", parts)
