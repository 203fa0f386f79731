"""The private aggregates: which counts and sums each is made of, and how it is read off them.

=================== ============================================= ==============================
aggregate           measured                                      answer
=================== ============================================= ==============================
``dp_count``        results (in which the argument is not NULL)   the count
``dp_count``        different values of the argument              the count
(DISTINCT)
``dp_sum``          sum of the values                             the sum
``dp_avg``          sum of the values less a public centre, count centre + sum/count
``dp_var_*``,       the same, and the sum of squares              mean square less squared mean
``dp_stddev_*``
=================== ============================================= ==============================

Values are integers in steps of ``10**-digits`` (PRIVACY.md section 3): exact for integers and
``numeric(p, s)`` and what is made of them by ``+ - *``; others are rounded to a billionth of their
range, which must be known.  They are clamped to declared domains of columns and to bounds in the
call.  NULL and NaN are not counted.  Nothing is NULL: of no rows at all the sum is noise around 0,
and averages stay within their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from dpsql.errors import UnsupportedConstruct
from dpsql.query import functions, refusals
from dpsql.query.bounds import Bounds, ColumnBounds, bounds_of
from dpsql.query.graph import bare, not_null
from dpsql.query.ir import TRUE, Expr, conjuncts, constant, map_columns
from dpsql.query.syntax import Node
from dpsql.query.types import FLOATS, INTEGERS

#: What stands for the type of a column without declared bounds where these are needed.
_UNKNOWN = Bounds(Fraction(-(10**60)), Fraction(10**60), None)
_HOPELESS = 10**50
#: Values whose steps are unknown are rounded to this share of their range.
_STEPS = 10**9
#: Numbers of more digits are not summed.
MAX_DIGITS = 100
_BIGINT = 2**63
_NUMBERS = (*INTEGERS, "numeric", *FLOATS)
_AVERAGES = {
    "dp_avg": ("mean", False),
    "dp_var_pop": ("variance", False),
    "dp_var_samp": ("variance", True),
    "dp_variance": ("variance", True),
    "dp_stddev_pop": ("deviation", False),
    "dp_stddev_samp": ("deviation", True),
    "dp_stddev": ("deviation", True),
}
#: Result types of sums, as PostgreSQL's own; others keep their type.
_SUMS = {"smallint": "bigint", "integer": "bigint", "bigint": "numeric"}
NAMES = frozenset({"dp_count", "dp_sum", *_AVERAGES})


@dataclass(frozen=True, slots=True)
class Value:
    """A number per result: ``expression``, of an exact type, is a multiple of ``10**-digits``."""

    expression: Expr
    digits: int
    low: Fraction
    high: Fraction

    @property
    def steps(self) -> tuple[int, int]:
        """The bounds in steps."""
        return floor(self.low * 10**self.digits), ceil(self.high * 10**self.digits)


@dataclass(frozen=True, slots=True)
class Measure:
    """One vector of numbers to be measured: a count, a sum or a count of different values.

    ``condition`` restricts the results; ``units`` counts the units of each group.
    """

    condition: Expr = TRUE
    value: Value | None = None
    distinct: Expr | None = None
    units: bool = False


@dataclass(frozen=True, slots=True)
class Formula:
    """SQL over the columns of ``noisy`` that stand for measures, written ``{0}``, ``{1}``, ..."""

    text: str
    measures: tuple[Measure, ...]
    type: str = "bigint"

    @property
    def plain(self) -> bool:
        """Whether it is one measure itself, so that its interval is the measure's."""
        return self.text == "{0}"


def is_aggregate(node: Node) -> bool:
    """Tell whether a node is a call of one of the extension's aggregates."""
    if node.kind != "call":
        return False
    schema, name = node.pair()
    return schema == "public" and name in NAMES


def formula(
    node: Node,
    build: Callable[[Node], Expr],
    bounds: ColumnBounds,
    *,
    declared: bool,
    summed: bool = False,
) -> Formula:
    """Take a call apart.

    Parameters
    ----------
    node : Node
        A call for which `is_aggregate` holds.
    build : callable
        Makes a total expression of an argument.
    bounds : callable
        Declared bounds of a column, ``None`` if there are none.
    declared : bool
        Whether bounds must be declared or written: those of types are of no use for rows.
    summed : bool
        Whether some value is summed in the statement as it is; averages then use that sum.
    """
    name = node.pair()[1]
    if "order" in node.flags:
        refusals.refuse("aggregate_order", node.position)
    args = list(node.args)
    if any(is_aggregate(n) for arg in args for n in arg.walk()):
        refusals.refuse("nested_count", node.position)
    chosen = build(args.pop()) if "filter" in node.flags else TRUE
    if node.flags - {"filter", "distinct", "star"}:
        refusals.refuse("expression", node.position)
    if "distinct" in node.flags and name != "dp_count":
        refusals.refuse("aggregate_distinct", node.position)
    if name == "dp_count":
        return Formula("{0}", (_count(node, args, chosen, build),))
    value, valid, type_ = _value(node, args, build, bounds, declared=declared)
    condition = _all_of(chosen, valid)
    if name == "dp_sum":
        return Formula("{0}", (Measure(condition, value),), _SUMS.get(type_, type_))
    result = "double precision" if type_ in FLOATS else "numeric"
    return _moments(*_AVERAGES[name], value, condition, result, centred=not summed)


def _count(node: Node, args: list[Node], chosen: Expr, build: Callable[[Node], Expr]) -> Measure:
    if "star" in node.flags:
        return Measure(chosen)
    if len(args) != 1:
        refusals.refuse("expression", node.position)
    counted = build(args[0])
    condition = _all_of(chosen, not_null(bare(counted)))
    if "distinct" not in node.flags:
        return Measure(condition)
    if len(counted.occurrences()) != 1 or counted.type == "interval":
        raise UnsupportedConstruct(
            "DISTINCT needs an expression over columns of one relation, and no interval",
            hint="Use dp_count(DISTINCT column).",
            position=node.position,
        )
    return Measure(condition, distinct=counted)


def _all_of(*conditions: Expr) -> Expr:
    parts = [p for c in conditions if c != TRUE for p in conjuncts(c)]
    if not parts:
        return TRUE
    return parts[0] if len(parts) == 1 else Expr("and", "boolean", tuple(dict.fromkeys(parts)))


# -- values ------------------------------------------------------------------------


def _value(
    node: Node,
    args: list[Node],
    build: Callable[[Node], Expr],
    bounds: ColumnBounds,
    *,
    declared: bool,
) -> tuple[Value, Expr, str]:
    """Return what is summed, the condition under which it is a number, and its type."""
    if len(args) not in (1, 3):
        refusals.refuse("expression", node.position)
    x, *ends = (build(a) for a in args)
    if x.type not in _NUMBERS:
        raise functions.not_allowed(f"{node.pair()[1]} of {x.type}", node.position)
    type_ = x.type
    found = bounds_of(
        x, lambda o, name: bounds(o, name) or (_UNKNOWN if declared and not ends else None)
    )
    x = map_columns(x, lambda column: _clamped_column(column, bounds(*column.data[:2])))  # type: ignore[index]
    special = x.type in FLOATS or found.special
    if ends:
        low, high = (_bound(e, node) for e in ends)
        if low > high:
            raise UnsupportedConstruct(
                f"the lower bound of {node.pair()[1]} is greater than the upper one",
                hint=f"Write {node.pair()[1]}(value, lower, upper).",
                position=node.position,
            )
        x = _clamped(x, low, high)
        found = Bounds(low, high, found.scale if _whole(found.scale, low, high) else None)
    valid = [not_null(x)]
    if special:
        valid.append(Expr("op", "boolean", (x, constant(x.type, "NaN")), "<>"))
    return _exact(x, found, node), _all_of(*valid), type_


def _bound(e: Expr, node: Node) -> Fraction:
    while e.kind == "cast" and e.args[0].kind == "const":
        e = e.args[0]
    try:
        if e.kind == "const" and e.data is not None:
            return Fraction(str(e.data))
    except (ValueError, ZeroDivisionError):
        pass
    raise UnsupportedConstruct(
        f"the bounds of {node.pair()[1]} must be finite constants",
        hint=f"Write {node.pair()[1]}(value, 0, 100).",
        position=node.position,
    )


def _whole(scale: int | None, *numbers: Fraction) -> bool:
    return scale is not None and all((n * 10**scale).denominator == 1 for n in numbers)


def _clamped_column(column: Expr, bounds: Bounds | None) -> Expr:
    if bounds is None or bounds.low is None or bounds.high is None:
        return column
    return _clamped(column, bounds.low, bounds.high)


def _clamped(x: Expr, low: Fraction, high: Fraction) -> Expr:
    """Clamp; NULL and NaN stay, which LEAST and GREATEST would lose."""
    type_ = x.type
    if type_ in INTEGERS:
        low, high = Fraction(ceil(low)), Fraction(floor(high))
    ends = [constant(type_, _decimal(end)) for end in (low, high)]
    inner = Expr("least", type_, (Expr("greatest", type_, (x, ends[0])), ends[1]))
    valid = [] if (known := not_null(x)) == TRUE else [known]
    if type_ not in INTEGERS:
        valid.append(Expr("op", "boolean", (x, constant(type_, "NaN")), "<>"))
    return functions.guard(_all_of(*valid), inner) if valid else inner


def _decimal(number: Fraction) -> str:
    """Write a number that has a finite decimal expansion."""
    digits = 0
    while (number * 10**digits).denominator != 1:
        digits += 1
    whole = number * 10**digits
    sign = "-" if whole < 0 else ""
    text = str(abs(whole.numerator)).rjust(digits + 1, "0")
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)


def _exact(x: Expr, found: Bounds, node: Node) -> Value:
    """Make the value one of an exact type, in steps that are known."""
    low, high = found.low, found.high
    if low is None or high is None or max(-low, high) > _HOPELESS:
        raise UnsupportedConstruct(
            f"nothing bounds the argument of {node.pair()[1]}",
            detail="How much one row can add must be public.",
            hint=f"Give bounds: {node.pair()[1]}(value, lower, upper); or let the owner of the data"
            " declare the range of its columns: dp.set_domain(relation, column, lower, upper).",
            position=node.position,
        )
    if x.type in INTEGERS:
        return Value(x, 0, low, high)
    digits = found.scale
    if digits is None or x.type in FLOATS:
        digits = 0
        while (high - low) * 10**digits < _STEPS and digits < MAX_DIGITS:
            digits += 1
        number = x if x.type == "numeric" else Expr("cast", "numeric", (x,), "numeric")
        x = Expr("fn", "numeric", (number, constant("integer", str(digits))), "round")
        half = Fraction(1, 2 * 10**digits)
        low, high = low - half, high + half
    largest = max(abs(low), abs(high)) * 10**digits
    if largest >= 10**MAX_DIGITS:
        raise UnsupportedConstruct(
            f"the argument of {node.pair()[1]} may have too many digits",
            detail=f"Its values are known to be below 10^{len(str(int(largest))) - digits} only.",
            hint=f"Give bounds: {node.pair()[1]}(value, lower, upper).",
            position=node.position,
        )
    return Value(x, digits, low, high)


# -- averages ----------------------------------------------------------------------


def _moments(
    kind: str, sample: bool, value: Value, condition: Expr, result: str, *, centred: bool
) -> Formula:
    """Write an average by sums of a value less its centre, which are smaller."""
    centre = _centre(value) if centred else Fraction(0)
    moved = _less(value, centre)
    low, high = _decimal(value.low), _decimal(value.high)
    total, number = Measure(condition, moved), Measure(condition)
    if kind == "mean":
        mean = f"{_decimal(centre)}::numeric + {{0}}::numeric / greatest({{1}}, 1)"
        text = f"least(greatest({mean}, {low}::numeric), {high}::numeric)"
        return Formula(text, (total, number), result)
    squares = Measure(condition, _squared(moved))
    mean, square = "({0}::numeric / greatest({1}, 1))", "({2}::numeric / greatest({1}, 1))"
    most = _decimal((value.high - value.low) ** 2 / 4)
    text = f"least(greatest({square} - {mean} * {mean}, 0), {most}::numeric)"
    if sample:
        text = f"({text} * greatest({{1}}, 2) / (greatest({{1}}, 2) - 1))"
    if kind == "deviation":
        text = f"pg_catalog.sqrt({text})"
    return Formula(text, (total, number, squares), result)


def _centre(value: Value) -> Fraction:
    """Return the middle of the bounds, on the value's own grid."""
    low, high = value.steps
    middle = 0 if abs(low + high) <= 1 else (low + high) // 2
    return Fraction(middle, 10**value.digits)


def _less(value: Value, centre: Fraction) -> Value:
    if centre == 0:
        return value
    x = value.expression
    number = x if x.type == "numeric" else Expr("cast", "numeric", (x,), "numeric")
    moved = Expr("op", "numeric", (number, constant("numeric", _decimal(centre))), "-")
    return Value(moved, value.digits, value.low - centre, value.high - centre)


def _squared(value: Value) -> Value:
    x = value.expression
    number = x if x.type == "numeric" else Expr("cast", "numeric", (x,), "numeric")
    least = Fraction(0)
    most = max(value.low**2, value.high**2)
    return Value(Expr("op", "numeric", (number, number), "*"), 2 * value.digits, least, most)


def fits_bigint(value: Value) -> bool:
    """Whether values can be summed as integers of the server."""
    return value.expression.type in INTEGERS and max(map(abs, value.steps)) < _BIGINT
