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
``dp_histogram``    results in each cell of a range               the counts, as an array
``dp_percentile``,  results in each cell of the argument's range  a cell with about the share p of
``dp_median``,                                                    results up to it; its middle
``dp_min, dp_max``
=================== ============================================= ==============================

Values are integers in steps of ``10**-digits`` (PRIVACY.md section 3): exact for integers and
``numeric(p, s)`` and what is made of them by ``+ - *``; others are rounded to a billionth of their
range, which must be known.  They are clamped to declared domains of columns and to bounds in the
call.  NULL is not counted; NaN is clamped to the upper end.  Nothing is NULL: of no rows at all the
sum is noise around 0, and averages stay within their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TypeGuard

from sqlglot import exp

from dpsql.errors import UnsupportedConstruct
from dpsql.query import refusals
from dpsql.query.bounds import ColumnBounds
from dpsql.query.cells import histogram, ranked, share
from dpsql.query.graph import as_type, bare, not_null
from dpsql.query.ir import TRUE, Expr, constant, decimal
from dpsql.query.measures import FIRST, Formula, Measure, Value, decimal_tree
from dpsql.query.types import FLOATS
from dpsql.query.values import all_of, argument, exact, valid, zeroed
from dpsql.sqltree import sql
from dpsql.sqltree.nodes import Call, Place, position

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
#: So many times the width of their bounds values are that averages over units move to the middle.
_WORTH_MOVING = 2
_RANKS = {
    "dp_min": Fraction(0),
    "dp_median": Fraction(1, 2),
    "dp_max": Fraction(1),
    "dp_percentile": None,
}
NAMES = frozenset({"dp_count", "dp_sum", "dp_histogram", *_AVERAGES, *_RANKS})


def is_aggregate(node: exp.Expr) -> TypeGuard[Call]:
    """Tell whether a node is a call of one of the extension's aggregates."""
    return isinstance(node, Call) and node.schema == "public" and node.name in NAMES


def formula(
    node: Call,
    build: Callable[[exp.Expr], Expr],
    bounds: ColumnBounds,
    *,
    declared: bool,
    summed: bool = False,
) -> Formula:
    """Take a call apart.

    Parameters
    ----------
    node : Call
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
    name = node.name
    if "order" in node.flags:
        refusals.refuse("aggregate_order", position(node))
    args = list(node.expressions)
    if any(is_aggregate(n) for n in node.walk() if n is not node):
        refusals.refuse("nested_count", position(node))
    chosen = build(node.args["filter"]) if "filter" in node.flags else TRUE
    if node.flags - {"filter", "distinct", "star"}:
        refusals.refuse("expression", position(node))
    if "distinct" in node.flags and name != "dp_count":
        refusals.refuse("aggregate_distinct", position(node))
    if name == "dp_count":
        return Formula(FIRST, (_count(node, args, chosen, build),))
    if name == "dp_histogram":
        return histogram(node, args, chosen, build, bounds)
    if name in _RANKS:
        rank = _RANKS[name]
        sought = share(node, args, build) if rank is None else rank
        return ranked(node, args, chosen, build, bounds, sought)
    given = argument(node, args, build, bounds, declared=declared)
    x, found, type_ = given.expression, given.bounds, given.type
    counted = all_of(chosen, valid(x, found))
    value = replace(exact(x, found, node), loose=given.loose)
    if name == "dp_sum":
        measure = Measure(chosen, zeroed(value, found))
        return Formula(FIRST, (measure,), _SUMS.get(type_, type_), loose=given.loose)
    result = "double precision" if type_ in FLOATS else "numeric"
    centre = Fraction(0) if summed else _centre(value, loose=given.loose, cut=not declared)
    moved = _less(value, centre)
    total = Measure(chosen, zeroed(moved, found))
    squares = Measure(chosen, zeroed(_squared(moved), found))
    kind, sample = _AVERAGES[name]
    if kind == "mean":
        found_formula = _mean(value, centre, (total, Measure(counted)), result)
    else:
        measures = (total, Measure(counted), squares)
        found_formula = _moments(kind, sample, value, measures, result)
    return replace(found_formula, loose=given.loose)


def _count(
    node: Call, args: list[exp.Expr], chosen: Expr, build: Callable[[exp.Expr], Expr]
) -> Measure:
    if "star" in node.flags:
        return Measure(chosen)
    if len(args) != 1:
        refusals.refuse("expression", position(node))
    counted = build(args[0])
    condition = all_of(chosen, not_null(bare(counted)))
    if "distinct" not in node.flags:
        return Measure(condition)
    if not counted.occurrences() or counted.type == "interval":
        raise UnsupportedConstruct(
            "DISTINCT needs an expression over columns, and no interval",
            hint="Use dp_count(DISTINCT column).",
            position=position(node),
        )
    return Measure(condition, distinct=counted)


# -- averages ----------------------------------------------------------------------


def _mean(value: Value, centre: Fraction, measures: tuple[Measure, ...], result: str) -> Formula:
    """Write an average by the sum of the values less their centre, which is smaller."""
    tree = sql(
        "least(greatest(:centre + :mean, :low), :high)",
        centre=decimal_tree(centre), mean=FIRST,
        low=decimal_tree(value.low), high=decimal_tree(value.high),
    )  # fmt: skip
    return Formula(tree, measures, result, of_mean=True)


def _moments(
    kind: str, sample: bool, value: Value, measures: tuple[Measure, ...], result: str
) -> Formula:
    """Write a variance, which the centre does not change, or its root.

    Divided once, as PostgreSQL does it: each division has as many digits as numbers of its size
    deserve, and products of quotients would have twice as many.
    """
    total, count, squares = FIRST, Place(this=1), Place(this=2)
    rows = sql("CAST(greatest(:count, 1) AS numeric)", count=count)
    tree = sql(
        "least(greatest((:rows * CAST(:squares AS numeric)"
        " - CAST(:total AS numeric) * CAST(:total AS numeric)) / (:rows * :rows), 0), :most)",
        rows=rows, squares=squares, total=total,
        most=decimal_tree((value.high - value.low) ** 2 / 4),
    )  # fmt: skip
    if sample:
        tree = sql(":found * greatest(:n, 2) / (greatest(:n, 2) - 1)", found=tree, n=count)
    if kind == "deviation":
        tree = sql("pg_catalog.sqrt(:found)", found=tree)
    return Formula(tree, measures, result)


def _centre(value: Value, *, loose: bool, cut: bool) -> Fraction:
    """Return the middle of the bounds, on the value's own grid, or the number nearest to 0.

    Of bounds that only types have the middle tells nothing.  Where units are cut off, what they
    lose is lost of sum and number alike, and the more it is of the differences from a centre that
    is far from the values: there it must make the differences much smaller.
    """
    largest = max(abs(value.low), abs(value.high))
    if loose or (cut and largest < _WORTH_MOVING * (value.high - value.low)):
        return max(value.low, min(Fraction(0), value.high))
    low, high = value.steps
    middle = 0 if abs(low + high) <= 1 else (low + high) // 2
    return Fraction(middle, 10**value.digits)


def _less(value: Value, centre: Fraction) -> Value:
    if centre == 0:
        return value
    number = as_type(value.expression, "numeric")
    moved = Expr("op", "numeric", (number, constant("numeric", decimal(centre))), "-")
    low, high = value.low - centre, value.high - centre
    return replace(value, expression=moved, low=low, high=high)


def _squared(value: Value) -> Value:
    number = as_type(value.expression, "numeric")
    most = max(value.low**2, value.high**2)
    square = Expr("op", "numeric", (number, number), "*")
    return Value(square, 2 * value.digits, Fraction(0), most, value.loose)
