"""Expressions over the relation ``noisy`` of released values: trees, and their SQL.

Beside the kinds of `dpsql.query.syntax.Node` that need no rows there are

======= ==========================================================================
noisy   (letter, number): a column of the relation, such as ``a0``
mean    nothing; a sum and a count, each of which is a column
written SQL with ``{0}``, ``{1}``, ... in place of arguments; the flag ``rising``
        says that it has one argument and never falls when that grows
======= ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

from dpsql.query.ir import literal, written_constant
from dpsql.query.measures import HELD
from dpsql.query.syntax import Node
from dpsql.relation import quote_identifier

#: Functions that are written as keywords.
_KEYWORDS = frozenset(("coalesce", "nullif", "greatest", "least"))
_MEAN = "{0}::numeric / greatest({1}, 1)"
_QUOTIENT = "{0}::numeric / CASE WHEN {0} < 0 THEN greatest({1}, 1) ELSE greatest({2}, 1) END"
_LOW = f"(CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN {_QUOTIENT} END)"
_HIGH = f"(CASE WHEN {{3}} IS NOT NULL AND {{2}} IS NOT NULL THEN {_QUOTIENT} END)"
_RISING = frozenset(("rising",))


def column(letter: str, number: int) -> Node:
    """Make a column of the relation."""
    return Node("noisy", 0, (letter, number))


def place(node: Node) -> tuple[str, int]:
    """Return letter and number of a column of the relation."""
    return cast("tuple[str, int]", node.value)


def columns(node: Node) -> Iterator[tuple[str, int]]:
    """Yield the columns of the relation that an expression uses."""
    return (place(n) for n in node.walk() if n.kind == "noisy")


def mean(total: int, count: int) -> Node:
    """Make the mean of a sum and a count."""
    return Node("mean", 0, args=(column("a", total), column("a", count)))


def mean_ends(total: int, count: int) -> tuple[Node, Node]:
    """Make the ends of an interval around a mean, of the columns ``p<j>`` and ``q<j>``.

    Those are ends around its sum and its count, each of which fails with half the probability that
    the interval may: so both hold the truth as often as is asked, and then the mean lies between
    the least and the greatest quotient.  NULL where one of the four is.
    """
    low, high = column("p", total), column("q", total)
    fewest, most = column("p", count), column("q", count)
    return written(_LOW, low, fewest, most), written(_HIGH, high, most, fewest, low)


def written(text: str, *args: Node, rising: bool = False) -> Node:
    """Make an expression of SQL with places for arguments."""
    return Node("written", 0, text, args, flags=_RISING if rising else frozenset())


def fitted(node: Node, type_: str) -> Node:
    """Make the cast of a released number to its result type, which never fails.

    What lies beyond the type becomes its nearest value (post-processing, PRIVACY.md section 2 (b)):
    an error after the charge could not be mended by another text.
    """
    if type_ in HELD:
        low, high, digits = HELD[type_]
        text = f"least(greatest({{0}}, '{low}'::numeric), '{high}'::numeric)"
        if digits is not None:
            text = f"pg_catalog.round({text}, {digits})"
        node = written(text, node, rising=True)
    return Node("cast", 0, type_, (node,))


def divides(node: Node) -> bool:
    """Tell whether an expression is a division, which 0 can make fail."""
    if len(node.args) != 2:
        return False
    if node.kind == "op":
        return node.value in ("/", "%")
    return node.kind == "call" and node.pair()[1] in ("div", "mod") and not node.flags


def replaced(node: Node, old: Node, new: Node) -> Node:
    """Put one expression in the place of another."""
    if node == old:
        return new
    return replace(node, args=tuple(replaced(a, old, new) for a in node.args))


def write(node: Node, *, over_zero: bool = False) -> str:
    """Write an expression as SQL; ``over_zero``: so that a division by 0 gives NULL."""
    args = [write(a, over_zero=over_zero) for a in node.args]
    if over_zero and divides(node):
        args[1] = f"NULLIF({args[1]}, 0)"
    return _WRITE[node.kind](node, args)


def _noisy(node: Node, _: list[str]) -> str:
    letter, number = place(node)
    return f"{letter}{number}"


def _const(node: Node, _: list[str]) -> str:
    text = None if node.value is None else str(node.value)
    if not node.type:
        return "NULL" if text is None else literal(text)
    return written_constant(node.type, text)


def _op(node: Node, args: list[str]) -> str:
    return f"({args[0]} {node.value} {args[1]})" if args[1:] else f"({node.value} {args[0]})"


def _any(node: Node, args: list[str]) -> str:
    operator, quantifier = node.pair()
    return f"({args[0]} {operator} {quantifier} ({args[1]}))"


def _case(node: Node, args: list[str]) -> str:
    operand = args.pop(0) if node.value else ""
    pairs = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
    return f"CASE {operand} {pairs} ELSE {args[-1]} END"


def _collate(node: Node, args: list[str]) -> str:
    parts = node.value if isinstance(node.value, tuple) else ()
    return f"({args[0]} COLLATE {'.'.join(map(quote_identifier, parts))})"


def _call(node: Node, args: list[str]) -> str:
    name = node.pair()[1]
    if "variadic" in node.flags:
        args[-1] = "VARIADIC " + args[-1]
    if name in _KEYWORDS and "special" in node.flags:
        return f"{name}({', '.join(args)})"
    return f"pg_catalog.{quote_identifier(name)}({', '.join(args)})"


_WRITE: dict[str, Callable[[Node, list[str]], str]] = {
    "noisy": _noisy,
    "mean": lambda _, args: _MEAN.format(*args),
    "written": lambda node, args: str(node.value).format(*args),
    "const": _const,
    "sqlvalue": lambda node, _: str(node.value),
    "cast": lambda node, args: f"({args[0]})::{node.value}",
    "op": _op,
    "and": lambda _, args: "(" + " AND ".join(args) + ")",
    "or": lambda _, args: "(" + " OR ".join(args) + ")",
    "not": lambda _, args: f"(NOT {args[0]})",
    "is": lambda node, args: f"({args[0]} IS {node.value})",
    "distinct": lambda _, args: f"({args[0]} IS DISTINCT FROM {args[1]})",
    "any": _any,
    "array": lambda _, args: "ARRAY[" + ", ".join(args) + "]",
    "case": _case,
    "collate": _collate,
    "call": _call,
}
#: Kinds of the syntax that can be computed without rows.
COMPUTED = frozenset(_WRITE) - {"noisy", "mean", "written"}
