"""The arguments of private aggregates: numbers in public bounds, in exact steps.

Values are integers in steps of ``10**-digits`` (PRIVACY.md section 3): exact for integers and
``numeric(p, s)`` and what is made of them by ``+ - *``; others are rounded to a billionth of their
range, which must be known.  They are clamped to declared domains of columns and to bounds in the
call.  NULL is no number; NaN, which PostgreSQL sorts above all others, is clamped to the upper end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from sqlglot import exp

from dpsql.errors import UnsupportedConstruct
from dpsql.query import functions, moments, ranges, refusals
from dpsql.query.bounds import Bounds, ColumnBounds, bounds_of, type_bounds
from dpsql.query.graph import not_null
from dpsql.query.ir import TRUE, Expr, column, conjuncts, constant, decimal, map_columns
from dpsql.query.measures import Value
from dpsql.query.types import FLOATS, INTEGERS
from dpsql.sqltree.nodes import Call, position

#: Bounds beyond are as good as none.
_HOPELESS = 10**50
#: Digits that a double precision keeps as numeric.
_FLOAT_DIGITS = 15
#: Values whose steps are unknown are rounded to this share of their range.
_STEPS = 10**9
#: Numbers of more digits are not summed.
MAX_DIGITS = 100
#: Where results belong to several units values have at most so many steps, so that a thousand of
#: the largest ones still fit into what is told of a set of units ...
WIDEST = 2**51
#: ... but no fewer decimals than these where nobody declared or wrote their bounds.
_LOOSE_DIGITS = 6
_NUMBERS = (*INTEGERS, "numeric", *FLOATS)


def all_of(*conditions: Expr) -> Expr:
    """Join conditions by AND; TRUE if there is none."""
    parts = [p for c in conditions if c != TRUE for p in conjuncts(c)]
    if not parts:
        return TRUE
    return parts[0] if len(parts) == 1 else Expr("and", "boolean", tuple(dict.fromkeys(parts)))


@dataclass(frozen=True, slots=True)
class Argument:
    """The clamped argument of an aggregate, what bounds it, and its type before.

    ``loose``: its bounds follow from the limits of types and were not declared or written.
    """

    expression: Expr
    bounds: Bounds
    type: str
    loose: bool


def argument(
    node: Call,
    args: list[exp.Expr],
    build: Callable[[exp.Expr], Expr],
    bounds: ColumnBounds,
    *,
    declared: bool,
) -> Argument:
    """Read and clamp an argument; with ``declared`` the limits of types bound nothing."""
    if len(args) not in (1, 3):
        refusals.refuse("expression", position(node))
    x, *ends = (build(a) for a in args)
    if x.type not in _NUMBERS:
        raise functions.not_allowed(f"{node.name} of {x.type}", position(node))
    type_ = x.type
    columns = {_place(e): e for e in x.walk() if e.kind == "col"}
    limits = {p: bounds(*p) or (None if ends else _of_type(e)) for p, e in columns.items()}
    found = bounds_of(x, lambda occurrence, name: limits[occurrence, name])
    loose = not ends and _bounded_by_types(x, bounds)
    if declared and loose:
        found = replace(found, low=None, high=None)
    x = map_columns(x, lambda column: _clamped_column(column, limits[_place(column)]))
    if ends:
        low, high = (written_bound(e, node) for e in ends)
        if low > high:
            raise UnsupportedConstruct(
                f"the lower bound of {node.name} is greater than the upper one",
                hint=f"Write {example(node)}.",
                position=position(node),
            )
        if max(-low, high) > _HOPELESS:
            raise UnsupportedConstruct(
                f"the bounds of {node.name} must be below 10^50",
                hint=f"Write {example(node, '0', '100')}.",
                position=position(node),
            )
        x = clamped(wide(x), low, high)
        scale = None if type_ in FLOATS else found.scale
        scale = scale if _whole(scale, low, high) else None
        found = Bounds(low, high, scale, found.may_be_null)
    elif found.special and found.low is not None and found.high is not None:
        x = clamped(x, found.low, found.high)
    return Argument(x, found, type_, loose)


def wide(x: Expr) -> Expr:
    """View a number in a type that holds the bounds of any call, and its steps.

    As numeric a double precision keeps 15 digits and a real 6, so a float is clamped after that.
    """
    if x.type == "smallint":
        return Expr("cast", "integer", (x,), "integer")
    if x.type == "real":
        x = Expr("cast", "double precision", (x,), "double precision")
    return Expr("cast", "numeric", (x,), "numeric") if x.type in FLOATS else x


def _place(column: Expr) -> tuple[int, str]:
    occurrence, name = column.data[:2]  # type: ignore[index]
    return int(occurrence), str(name)


def _of_type(column: Expr) -> Bounds | None:
    """Return the bounds of a column's type if it can hold NaN, which they are to replace."""
    own = bounds_of(column, lambda *_: None)
    return replace(own, special=False) if own.special and own.high is not None else None


def _bounded_by_types(x: Expr, bounds: ColumnBounds) -> bool:
    """Tell whether other limits of its columns' types would give other bounds."""
    types = {_place(e): e for e in x.walk() if e.kind == "col"}

    def limits(occurrence: int, name: str, share: int) -> Bounds | None:
        own = type_bounds(types[occurrence, name])
        declared = bounds(occurrence, name)
        if declared or own.low is None or own.high is None:
            return declared
        low, high = Fraction(ceil(own.low / share)), Fraction(floor(own.high / share))
        return replace(own, low=low, high=high, special=False)

    def differ(one: Expr, other: Expr, share: int) -> bool:
        found = bounds_of(one, lambda occurrence, name: limits(occurrence, name, 1))
        changed = bounds_of(other, lambda occurrence, name: limits(occurrence, name, share))
        return (found.low, found.high) != (changed.low, changed.high)

    def halved(e: Expr) -> Expr:
        """Halve the limits of an integer type that alone bound what is cast to it."""
        if not e.args:
            return e
        changed = Expr(e.kind, e.type, tuple(map(halved, e.args)), e.data)
        if e.kind != "narrow":
            return changed
        found = bounds_of(e.args[0], bounds)
        if _useful(found) and not differ(e.args[0], e.args[0], 2):
            return changed
        own = bounds_of(column(0, "v", e.type, e.type, True), lambda *_: None)
        low, high = (decimal(Fraction(int(end or 0) // 2)) for end in (own.low, own.high))
        most = Expr("least", e.type, (changed, constant(e.type, high)))
        return Expr("greatest", e.type, (most, constant(e.type, low)))

    return differ(x, x, 2) or differ(x, halved(x), 1)


def _useful(found: Bounds) -> bool:
    low, high = found.low, found.high
    return low is not None and high is not None and max(-low, high) <= _HOPELESS


def valid(x: Expr, found: Bounds) -> Expr:
    """Return the condition under which there is a value."""
    return present(x) if found.may_be_null else TRUE


def zeroed(value: Value, found: Bounds) -> Value:
    """Take 0 where there is no value, so that sums need no condition of their own."""
    if not found.may_be_null:
        return value
    x = value.expression
    expression = Expr("coalesce", x.type, (x, constant(x.type, "0")))
    low, high = min(value.low, Fraction(0)), max(value.high, Fraction(0))
    return replace(value, expression=expression, low=low, high=high)


def present(e: Expr) -> Expr:
    """Make ``e IS NOT NULL`` as a condition on what was clamped.

    So a value's count is one with that of its column, in whatever bounds it was summed.  A guard is
    taken apart only where its value is a column: conditions are tested in any order, and another
    value could raise an error, which tells of a row, before its guard is looked at.
    """
    if e.kind == "cast":
        return present(e.args[0])
    if e.kind in ("least", "greatest") and any(
        a.kind == "const" and a.data is not None for a in e.args
    ):
        return TRUE  # they leave NULL out
    if e.kind != "guard":
        return not_null(e)
    condition, value = e.args
    inner = present(value)
    if not all(_tests_column(c) for c in conjuncts(inner)):
        return not_null(e)
    parts = [
        present(c.args[0]) if (c.kind, c.data) == ("is", "NOT NULL") else c
        for c in conjuncts(condition)
    ]
    return all_of(*parts, inner)


def _tests_column(condition: Expr) -> bool:
    return condition == TRUE or (
        (condition.kind, condition.data) == ("is", "NOT NULL") and condition.args[0].kind == "col"
    )


def example(node: Call, low: str = "lower", high: str = "upper") -> str:
    """Write a call of the same aggregate with bounds."""
    name = node.name
    share, cells = name == "dp_percentile", name == "dp_histogram"
    return f"{name}(value, {'0.9, ' if share else ''}{low}, {high}{', 10' if cells else ''})"


def written_bound(e: Expr, node: Call, what: str | None = None) -> Fraction:
    """Read a finite constant that the call names: a bound, or ``what`` it is."""
    whole = False
    while e.kind == "cast" and e.args[0].kind == "const":
        whole = whole or e.type in INTEGERS
        e = e.args[0]
    try:
        if e.kind == "const" and e.data is not None:
            number = Fraction(str(e.data))
            if number.denominator == 1 or not whole:
                return number
    except (ValueError, ZeroDivisionError):
        pass
    name = node.name
    raise UnsupportedConstruct(
        f"{what} of {name} must be a finite constant"
        if what
        else f"the bounds of {name} must be finite constants",
        hint=f"Write {example(node, '0', '100')}.",
        position=position(node),
    )


def _whole(scale: int | None, *numbers: Fraction) -> bool:
    return scale is not None and all((n * 10**scale).denominator == 1 for n in numbers)


def _clamped_column(column: Expr, bounds: Bounds | None) -> Expr:
    if bounds is None or bounds.low is None or bounds.high is None:
        return column
    if column.type in moments.SCALES:
        return moments.clamped(column, bounds.low, bounds.high, not_null(column))
    return clamped(column, bounds.low, bounds.high) if column.type in _NUMBERS else column


def clamped(x: Expr, low: Fraction, high: Fraction) -> Expr:
    """Clamp; NULL stays, which LEAST and GREATEST would lose."""
    type_ = x.type
    if type_ in INTEGERS:
        low, high = Fraction(ceil(low)), Fraction(floor(high))
    ends = [constant(type_, decimal(end)) for end in (low, high)]
    inner = Expr("least", type_, (Expr("greatest", type_, (x, ends[0])), ends[1]))
    known = present(x)
    return inner if known == TRUE else functions.guard(known, inner)


def exact(x: Expr, found: Bounds, node: Call) -> Value:
    """Make the value one of an exact type, in steps that are known."""
    low, high = known(found, node)
    if x.type in INTEGERS:
        return Value(x, 0, low, high)
    digits, found_type = found.scale, x.type
    if digits is None or found_type in FLOATS:
        if found_type in FLOATS:
            low = ranges.significant(low, _FLOAT_DIGITS, floor)
            high = ranges.significant(high, _FLOAT_DIGITS, ceil)
        digits = 0
        while (high - low or 1) * 10**digits < _STEPS and digits < MAX_DIGITS:
            digits += 1
        x = Expr("fn", "numeric", (wide(x), constant("integer", str(digits))), "round")
        low, high = (ranges.rounded(end, digits, ranges.half_away) for end in (low, high))
        if found_type in FLOATS:
            # a bound that the type does not have was moved, and casts keep fewer digits
            x = clamped(x, low, high)
    largest = max(abs(low), abs(high)) * 10**digits
    if largest >= 10**MAX_DIGITS:
        raise UnsupportedConstruct(
            f"the argument of {node.name} may have too many digits",
            detail=f"Its values are known to be below 10^{len(str(int(largest))) - digits} only.",
            hint=f"Give bounds: {example(node)}.",
            position=position(node),
        )
    return Value(x, digits, low, high)


def fitted(value: Value) -> Value:
    """Round to steps of which the sums of several units are told, each set of them in 64 bits.

    Raises
    ------
    UnsupportedConstruct
        When bounds that were declared or written are too wide.
    """
    fewest = _LOOSE_DIGITS if value.loose else 0
    x, digits, low, high = value.expression, value.digits, value.low, value.high
    while max(-low, high) * 10**digits > WIDEST and digits > fewest:
        digits -= 1
    if digits < value.digits:
        x = Expr("fn", "numeric", (wide(x), constant("integer", str(digits))), "round")
        low, high = (ranges.rounded(end, digits, ranges.half_away) for end in (low, high))
    if max(-low, high) * 10**digits > WIDEST and not value.loose:
        raise UnsupportedConstruct(
            "the bounds of a value are too wide where results can belong to several privacy units",
            detail="There values of up to 2^51 steps are summed, in steps of 1 or of a decimal.",
            hint="Give narrower bounds, for example dp_sum(value, 0, 1000000).",
        )
    return replace(value, expression=x, digits=digits, low=low, high=high)


def known(found: Bounds, node: Call) -> tuple[Fraction, Fraction]:
    """Return the bounds, which must be public."""
    low, high = found.low, found.high
    if low is not None and high is not None and _useful(found):
        return low, high
    raise UnsupportedConstruct(
        f"nothing bounds the argument of {node.name}",
        detail="Which values it can have must be declared or written down.",
        hint=f"Give bounds: {example(node)}; or let the owner of the data declare the range"
        " of its columns: dp.set_domain(relation, column, lower, upper). SELECT * FROM"
        " dp.suggest_bounds(relation, column) finds bounds privately, for a part of the budget.",
        position=position(node),
    )
