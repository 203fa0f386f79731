"""Output columns and the perturbed numbers that they show.

Which numbers ``a<j>`` an output column uses, and how an interval around a number becomes one
around the column.  A column has an interval if it is a monotone function of one number, or of one
mean: the column's values at the ends of its interval are the ends.  Casts to numbers, ``+ - * /``
with constants, rounding, GREATEST and LEAST are monotone; anything else is not looked into.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from dpsql.query.noisy import column, columns, mean_ends, place, replaced, write
from dpsql.query.syntax import Node
from dpsql.query.types import EXACT, FLOATS
from dpsql.relation import base
from dpsql.statement import Shown

_RISING = frozenset(("round", "floor", "ceil", "ceiling", "trunc"))
_EXTREMES = frozenset(("greatest", "least"))


def shown(node: Node, type_: str) -> Shown:
    """Describe the output column ``CAST(node AS type_)``, an expression over ``noisy``."""
    used = [(letter, number) for letter, number in columns(node) if letter != "g"]
    numbers = tuple(sorted({number for _, number in used}))
    if all(letter != "a" for letter, _ in used):
        return Shown(numbers, bare_ends=bool(numbers))
    atoms = set(_atoms(node))
    direction = _direction(node) if len(atoms) == 1 and _is_number(type_) else None
    if direction not in (1, -1):
        return Shown(numbers)
    (atom,) = atoms
    ends = [f"CAST({write(replaced(node, atom, end))} AS {type_})" for end in _ends(atom)]
    low, high = ends if direction == 1 else ends[::-1]
    return Shown(numbers, low=low, high=high)


def _atoms(node: Node) -> Iterator[Node]:
    """Yield the numbers and means that an expression is made of."""
    if node.kind == "mean" or (node.kind == "noisy" and place(node)[0] == "a"):
        yield node
        return
    for argument in node.args:
        yield from _atoms(argument)


def _ends(atom: Node) -> tuple[Node, Node]:
    """Make the ends of the interval around a number or a mean."""
    first, *second = (number for _, number in columns(atom))
    return mean_ends(first, *second) if second else (column("l", first), column("h", first))


def _is_number(type_: str) -> bool:
    return base(type_) in (*EXACT, *FLOATS)


def _direction(node: Node) -> int | None:
    """1: grows with the number, -1: falls, 0: does not depend on it, ``None``: unknown."""
    if node.kind == "noisy":
        return 1 if place(node)[0] == "a" else None
    if node.kind == "mean":
        return 1
    if node.kind == "const":
        return 0
    inner = [_direction(argument) for argument in node.args]
    if node.kind == "written":
        return 0 if not inner else inner[0] if "rising" in node.flags else None
    if node.kind == "cast":
        return inner[0] if inner[0] == 0 or _is_number(str(node.value)) else None
    if node.kind == "op":
        return _operator(node, inner)
    if node.kind == "call":
        schema, name = node.pair()
        if schema not in ("", "pg_catalog"):
            return None
        if name in _RISING and all(d == 0 for d in inner[1:]):
            return inner[0]
        if name in _EXTREMES:
            return _joined(inner)
    return None


def _operator(node: Node, inner: list[int | None]) -> int | None:
    if len(inner) == 1:
        return {"-": _turned(inner[0]), "+": inner[0]}.get(str(node.value))
    left, right = inner
    if node.value == "+":
        return _joined([left, right])
    if node.value == "-":
        return _joined([left, _turned(right)])
    if node.value == "*" and left == 0:
        return _scaled(right, node.args[0])
    if node.value in ("*", "/") and right == 0:
        return _scaled(left, node.args[1])
    return None


def _turned(direction: int | None) -> int | None:
    return None if direction is None else -direction


def _joined(directions: list[int | None]) -> int | None:
    """Return the direction of a sum or an extreme."""
    found = {d for d in directions if d != 0}
    return found.pop() if len(found) == 1 else (None if found else 0)


def _scaled(direction: int | None, factor: Node) -> int | None:
    """Return the direction of a product with a constant."""
    while factor.kind == "cast":
        factor = factor.args[0]
    negative = False
    while factor.kind == "op" and factor.value == "-" and len(factor.args) == 1:
        factor, negative = factor.args[0], not negative
        while factor.kind == "cast":
            factor = factor.args[0]
    if factor.kind != "const" or direction is None:
        return None
    try:
        value = Decimal(str(factor.value))
    except InvalidOperation:
        return None
    if not value.is_finite() or value == 0:
        return None
    return -direction if (value < 0) != negative else direction
