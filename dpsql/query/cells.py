"""Cells of a range: histograms, and values that a share of the results lies below."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor

from dpsql.errors import UnsupportedConstruct
from dpsql.query import refusals
from dpsql.query.bounds import Bounds, ColumnBounds
from dpsql.query.graph import as_type
from dpsql.query.ir import Expr, constant, decimal
from dpsql.query.measures import Formula, Measure
from dpsql.query.syntax import Node
from dpsql.query.types import FLOATS, INTEGERS
from dpsql.query.values import all_of, argument, clamped, known, valid, wide, written_bound

#: Values are told apart in so many cells at most.
MAX_CELLS = 2**16


def share(node: Node, args: list[Node], build: Callable[[Node], Expr]) -> Fraction:
    """Take the share out of the arguments of ``dp_percentile``."""
    if len(args) not in (2, 4):
        refusals.refuse("expression", node.position)
    found = written_bound(build(args.pop(1)), node)
    if not 0 <= found <= 1:
        raise UnsupportedConstruct(
            "the share of dp_percentile must be between 0 and 1",
            hint="Use dp_percentile(value, 0.9).",
            position=node.position,
        )
    return found


def ranked(
    x: Expr, found: Bounds, condition: Expr, rank: Fraction, type_: str, node: Node
) -> Formula:
    """Seek the cell up to which a share of the results lies."""
    _require_one_relation(x, node)
    low, high = known(found, node)
    x = clamped(x, low, high) if x.type not in INTEGERS else x
    scale = found.scale
    if scale is not None and x.type not in FLOATS and (high - low) * 10**scale < MAX_CELLS:
        step = Fraction(1, 10**scale)
        low, cells = Fraction(floor(low / step)) * step, floor((high - low) / step) + 2
        number = _numeric_op("-", x, decimal(low))
        number = _numeric_op("+", _numeric_op("*", number, str(10**scale)), "1")
        cell = Expr("cast", "integer", (number,), "integer")
        text = f"({decimal(low)}::numeric + ({{0}} - 1) * {decimal(step)}::numeric)"
    else:
        top, high = high, max(high, low + Fraction(1, 10**9))
        cells = MAX_CELLS
        cell = _numbered(x, low, high, cells)
        width = (high - low) / cells
        digits = 0
        while Fraction(2, 10**digits) > width:
            digits += 1
        text = f"{decimal(low)}::numeric + ({{0}} - 0.5) * {decimal(width)}::numeric"
        text = f"pg_catalog.round({text}, {digits})"
        high = top
    text = f"least(greatest({text}, {decimal(low)}::numeric), {decimal(high)}::numeric)"
    measure = Measure(condition, cell=cell, cells=cells, rank=rank)
    return Formula(text, (measure,), type_)


def _require_one_relation(x: Expr, node: Node) -> None:
    if len(x.occurrences()) != 1:
        raise UnsupportedConstruct(
            f"the argument of {node.pair()[1]} must use columns of one relation",
            hint="Use columns of one relation, or dp_avg.",
            position=node.position,
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
    node: Node,
    args: list[Node],
    chosen: Expr,
    build: Callable[[Node], Expr],
    bounds: ColumnBounds,
) -> Formula:
    """Count the results in cells of equal width between two bounds; what lies outside is not."""
    if len(args) != 4:
        refusals.refuse("expression", node.position)
    low, high = (written_bound(build(a), node) for a in args[1:3])
    cells = written_bound(build(args[3]), node)
    if not (low < high and cells.denominator == 1 and 1 <= cells <= MAX_CELLS):
        raise UnsupportedConstruct(
            "dp_histogram needs increasing bounds and a number of cells",
            detail=f"At most {MAX_CELLS} cells are counted.",
            hint="Write dp_histogram(value, 0, 100, 10).",
            position=node.position,
        )
    x, found, _ = argument(node, args[:1], build, bounds, declared=False)
    x = wide(x)
    _require_one_relation(x, node)
    ends = [constant(x.type, _ended(low, x.type, up=True))]
    ends += [constant(x.type, _ended(high, x.type, up=False))]
    inside = Expr(
        "and",
        "boolean",
        (
            Expr("op", "boolean", (x, ends[0]), ">="),
            Expr("op", "boolean", (x, ends[1]), "<="),
        ),
    )
    cell = _numbered(clamped(x, low, high), low, high, int(cells))
    condition = all_of(chosen, valid(x, found), inside)
    return Formula("{0}", (Measure(condition, cell=cell, cells=int(cells)),), "bigint[]")


def _ended(end: Fraction, type_: str, *, up: bool) -> str:
    """Write an end in a type, inward for integers."""
    return str(ceil(end) if up else floor(end)) if type_ in INTEGERS else decimal(end)
