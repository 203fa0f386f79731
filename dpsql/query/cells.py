"""Cells of a range: histograms, and values that a share of the results lies below."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor

from sqlglot import exp

from dpsql.errors import UnsupportedConstruct
from dpsql.query import moments, refusals
from dpsql.query.bounds import Bounds, ColumnBounds
from dpsql.query.constants import number
from dpsql.query.functions import compare
from dpsql.query.graph import as_type, not_null
from dpsql.query.ir import Expr, constant, decimal
from dpsql.query.measures import FIRST, Formula, Measure, decimal_tree
from dpsql.query.types import FLOATS, INTEGERS
from dpsql.query.values import all_of, argument, clamped, known, valid, wide, written_bound
from dpsql.sqltree import number as whole
from dpsql.sqltree import sql
from dpsql.sqltree.nodes import Call, position

#: Values are told apart in so many cells at most.
MAX_CELLS = 2**16


def share(node: Call, args: list[exp.Expr], build: Callable[[exp.Expr], Expr]) -> Fraction:
    """Take the share out of the arguments of ``dp_percentile``."""
    if len(args) not in (2, 4):
        refusals.refuse("expression", position(node))
    found = written_bound(build(args.pop(1)), node, "the share")
    if not 0 <= found <= 1:
        raise UnsupportedConstruct(
            "the share of dp_percentile must be between 0 and 1",
            hint="Use dp_percentile(value, 0.9).",
            position=position(node),
        )
    return found


def ranked(
    node: Call,
    args: list[exp.Expr],
    chosen: Expr,
    build: Callable[[exp.Expr], Expr],
    bounds: ColumnBounds,
    rank: Fraction,
) -> Formula:
    """Seek the cell up to which a share of the results lies."""
    x, found, type_, counted = _measured(node, args, build, bounds, chosen)
    value = number(x) if x.kind == "const" else None
    if value is not None:
        # tools ask whether a column is ever NULL, of columns that never are
        return Formula(decimal_tree(value), (), type_)
    _require_columns(x, node)
    low, high = known(found, node)
    moment = type_ in moments.SCALES
    if not moment and x.type not in INTEGERS:
        x = clamped(x, low, high)
    scale = found.scale
    if scale is not None and x.type not in FLOATS and (high - low) * 10**scale < MAX_CELLS:
        step = Fraction(1, 10**scale)
        low, cells = Fraction(floor(low / step)) * step, floor((high - low) / step) + 2
        place = _numeric_op("-", x, decimal(low))
        place = _numeric_op("+", _numeric_op("*", place, str(10**scale)), "1")
        cell = Expr("cast", "integer", (place,), "integer")
        tree = sql(
            ":low + (:cell - 1) * :step", low=decimal_tree(low), cell=FIRST, step=decimal_tree(step)
        )
    else:
        top, high = high, max(high, low + Fraction(1, 10**9))
        cells = MAX_CELLS
        cell = _numbered(x, low, high, cells)
        width = (high - low) / cells
        digits = 0
        while Fraction(2, 10**digits) > width:
            digits += 1
        tree = sql(
            "pg_catalog.round(:low + (:cell - 0.5) * :width, :digits)",
            low=decimal_tree(low), cell=FIRST, width=decimal_tree(width), digits=whole(digits),
        )  # fmt: skip
        high = top
    ends = {"low": decimal_tree(low), "high": decimal_tree(high)}
    tree = sql("least(greatest(:found, :low), :high)", found=tree, **ends)
    if moment:
        tree = moments.shown(type_, tree, low, high)
    return Formula(tree, (Measure(counted, cell=cell, cells=cells, rank=rank),), type_)


def _measured(
    node: Call,
    args: list[exp.Expr],
    build: Callable[[exp.Expr], Expr],
    bounds: ColumnBounds,
    chosen: Expr,
) -> tuple[Expr, Bounds, str, Expr]:
    """Return the number whose cell is told, its bounds, the argument's type, and what is counted.

    A moment is clamped to bounds in the call, or to the declared ones of a column, and numbered.
    """
    x = build(args[0])
    if x.type not in moments.SCALES or len(args) not in (1, 3):
        given = argument(node, args, build, bounds, declared=True)
        counted = all_of(chosen, valid(given.expression, given.bounds))
        return given.expression, given.bounds, given.type, counted
    if len(args) == 3:
        low, high = (_moment(build(a), node) for a in args[1:])
        if low > high:
            raise UnsupportedConstruct(
                f"the lower bound of {node.name} is later than the upper one",
                hint=f"Write {_moment_call(node)}.",
                position=position(node),
            )
        found = Bounds(low, high, moments.SCALES[x.type])
    else:
        found = _declared(x, bounds) or Bounds(None, None, None)
        low, high = known(found, node)
    condition = not_null(x)
    number = moments.numbered(x, low, high, condition)
    return number, found, x.type, all_of(chosen, condition)


def _declared(x: Expr, bounds: ColumnBounds) -> Bounds | None:
    """Return the declared bounds of a column."""
    if x.kind != "col":
        return None
    occurrence, name = x.data[:2]  # type: ignore[index]
    return bounds(int(occurrence), str(name))


def _moment(e: Expr, node: Call) -> Fraction:
    """Read a date or timestamp that the call names."""
    found = moments.constant_number(e)
    if found is None:
        raise UnsupportedConstruct(
            f"the bounds of {node.name} must be constants in the years 1 to 9999",
            hint=f"Write {_moment_call(node)}.",
            position=position(node),
        )
    return found


def _moment_call(node: Call) -> str:
    name = node.name
    more = {"dp_percentile": "0.9, ", "dp_histogram": ""}.get(name, "")
    cells = ", 10" if name == "dp_histogram" else ""
    return f"{name}(value, {more}'2000-01-01', '2030-12-31'{cells})"


def _require_columns(x: Expr, node: Call) -> None:
    if not x.occurrences():
        raise UnsupportedConstruct(
            f"the argument of {node.name} must use columns",
            hint=f"Write {node.name}(column).",
            position=position(node),
        )


def _numeric_op(operator: str, x: Expr, number: str) -> Expr:
    left = as_type(x, "numeric")
    return Expr("op", "numeric", (left, constant("numeric", number)), operator)


def _numbered(x: Expr, low: Fraction, high: Fraction, cells: int) -> Expr:
    """Write the number of a clamped value's cell; the upper end belongs to the last."""
    number = as_type(x, "numeric")
    ends = [constant("numeric", decimal(end)) for end in (low, high)]
    count = constant("integer", str(cells))
    place = Expr("fn", "integer", (number, *ends, count), "width_bucket")
    # LEAST would take NULL for the last cell
    last = Expr("op", "boolean", (place, count), ">")
    return Expr("case", "integer", (last, count, place))


def histogram(
    node: Call,
    args: list[exp.Expr],
    chosen: Expr,
    build: Callable[[exp.Expr], Expr],
    bounds: ColumnBounds,
) -> Formula:
    """Count the results in cells of equal width between two bounds; what lies outside is not."""
    if len(args) != 4:
        refusals.refuse("expression", position(node))
    first = build(args[0])
    moment = first.type in moments.SCALES
    low, high = (
        _moment(e, node) if moment else written_bound(e, node) for e in map(build, args[1:3])
    )
    cells = written_bound(build(args[3]), node, "the number of cells")
    if not (low < high and cells.denominator == 1 and 1 <= cells <= MAX_CELLS):
        called = _moment_call(node) if moment else "dp_histogram(value, 0, 100, 10)"
        raise UnsupportedConstruct(
            "dp_histogram needs increasing bounds and a number of cells",
            detail=f"At most {MAX_CELLS} cells are counted.",
            hint=f"Write {called}.",
            position=position(node),
        )
    if moment:
        x, valued, inside = _moments_inside(first, low, high, bounds)
    else:
        given = argument(node, args[:1], build, bounds, declared=False)
        valued = valid(given.expression, given.bounds)
        x = wide(given.expression)
        ends = [constant(x.type, _ended(low, x.type, up=True))]
        ends += [constant(x.type, _ended(high, x.type, up=False))]
        inside = Expr("and", "boolean", (compare(x, ">=", ends[0]), compare(x, "<=", ends[1])))
        x = clamped(x, low, high)
    _require_columns(x, node)
    cell = _numbered(x, low, high, int(cells))
    condition = all_of(chosen, valued, inside)
    return Formula(FIRST, (Measure(condition, cell=cell, cells=int(cells)),), "bigint[]")


def _moments_inside(
    x: Expr, low: Fraction, high: Fraction, bounds: ColumnBounds
) -> tuple[Expr, Expr, Expr]:
    """Return the number of a moment, when it is there, and when it lies between two numbers.

    One beyond the declared range of a column is moved to its end, as numbers are.
    """
    present = not_null(x)
    declared = _declared(x, bounds)
    if declared is None or declared.low is None or declared.high is None:
        return moments.numbered(x, low, high, present), present, moments.inside(x, low, high)
    number = moments.numbered(x, declared.low, declared.high, present)
    ends = (constant(number.type, _ended(e, number.type, up=e == low)) for e in (low, high))
    inside = Expr(
        "and",
        "boolean",
        tuple(compare(number, o, e) for o, e in zip((">=", "<="), ends, strict=True)),
    )
    return clamped(number, low, high), present, inside


def _ended(end: Fraction, type_: str, *, up: bool) -> str:
    """Write an end in a type, inward for integers."""
    return str(ceil(end) if up else floor(end)) if type_ in INTEGERS else decimal(end)
