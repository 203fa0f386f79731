"""Output columns and the perturbed numbers that they show.

Which numbers ``a<j>`` an output column uses, and how an interval around a number becomes one
around the column.  A column has an interval if it is a monotone function of one number, or of one
mean: the column's values at the ends of its interval are the ends.  Casts to numbers, ``+ - * /``
with constants, rounding, GREATEST and LEAST are monotone; anything else is not looked into.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from dpsql.query.nodes import constant_of, type_of, uncast
from dpsql.query.noisy import column, columns, mean_ends, place, replaced
from dpsql.query.types import EXACT, FLOATS
from dpsql.relation import base
from dpsql.sqltree import cast
from dpsql.sqltree.nodes import Call, Operation, Written, exact
from dpsql.statement import Shown

_RISING = frozenset(("round", "floor", "ceil", "ceiling", "trunc"))
_EXTREMES = frozenset(("greatest", "least"))


def shown(node: exp.Expr, type_: str) -> Shown:
    """Describe the output column ``CAST(node AS type_)``, an expression over ``noisy``."""
    used = [(letter, number) for letter, number in columns(node) if letter != "g"]
    numbers = tuple(sorted({number for _, number in used}))
    if all(letter != "a" for letter, _ in used):
        return Shown(numbers, bare_ends=bool(numbers))
    atoms = {exact(atom): atom for atom in _atoms(node)}
    direction = _direction(node) if len(atoms) == 1 and _is_number(type_) else None
    if direction not in (1, -1):
        return Shown(numbers)
    (atom,) = atoms.values()
    ends = [cast(replaced(node, atom, end), type_) for end in _ends(atom)]
    low, high = ends if direction == 1 else ends[::-1]
    return Shown(numbers, low=low, high=high)


def _is_mean(node: exp.Expr) -> bool:
    return isinstance(node, Written) and bool(node.args.get("mean"))


def _atoms(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the numbers and means that an expression is made of."""
    if _is_mean(node) or (isinstance(node, exp.Column) and place(node)[0] == "a"):
        yield node
        return
    for below in node.iter_expressions():
        yield from _atoms(below)


def _ends(atom: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """Make the ends of the interval around a number or a mean."""
    first, *second = (number for _, number in columns(atom))
    return mean_ends(first, *second) if second else (column("l", first), column("h", first))


def _is_number(type_: str) -> bool:
    return base(type_) in (*EXACT, *FLOATS)


def _direction(node: exp.Expr) -> int | None:
    """1: grows with the number, -1: falls, 0: does not depend on it, ``None``: unknown."""
    if isinstance(node, exp.Paren):
        return _direction(node.this)
    if isinstance(node, exp.Column):
        return 1 if place(node)[0] == "a" else None
    if _is_mean(node):
        return 1
    if constant_of(node) is not None:
        return 0
    if isinstance(node, Written):
        inner = [_direction(argument) for argument in node.expressions]
        return 0 if not inner else inner[0] if node.args.get("rising") else None
    if isinstance(node, exp.Cast):
        found = _direction(node.this)
        return found if found == 0 or _is_number(type_of(node)) else None
    if isinstance(node, Operation):
        return _operator(node)
    if isinstance(node, Call) and node.schema in ("", "pg_catalog"):
        inner = [_direction(argument) for argument in node.expressions]
        if node.name in _RISING and all(d == 0 for d in inner[1:]):
            return inner[0]
        if node.name in _EXTREMES:
            return _joined(inner)
    return None


def _operator(node: Operation) -> int | None:
    operator, first = node.args["operator"], node.args.get("this")
    right = _direction(node.expression)
    if first is None:
        return {"-": _turned(right), "+": right}.get(operator)
    left = _direction(first)
    if operator == "+":
        return _joined([left, right])
    if operator == "-":
        return _joined([left, _turned(right)])
    if operator == "*" and left == 0:
        return _scaled(right, first)
    if operator in ("*", "/") and right == 0:
        return _scaled(left, node.expression)
    return None


def _turned(direction: int | None) -> int | None:
    return None if direction is None else -direction


def _joined(directions: list[int | None]) -> int | None:
    """Return the direction of a sum or an extreme."""
    found = {d for d in directions if d != 0}
    return found.pop() if len(found) == 1 else (None if found else 0)


def _scaled(direction: int | None, factor: exp.Expr) -> int | None:
    """Return the direction of a product with a constant."""
    factor, negative = uncast(factor).unnest(), False
    while isinstance(factor, Operation) and not factor.args.get("this"):
        if factor.args["operator"] != "-":
            break
        factor, negative = uncast(factor.expression).unnest(), not negative
    known = constant_of(factor)
    if known is None or direction is None:
        return None
    try:
        value = Decimal(str(known.text))
    except InvalidOperation:
        return None
    if not value.is_finite() or value == 0:
        return None
    return -direction if (value < 0) != negative else direction
