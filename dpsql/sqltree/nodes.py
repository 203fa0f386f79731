"""Nodes for what PostgreSQL tells apart and sqlglot has one node for, and what is asked of trees.

Positions of the text that a tree was read from are in ``node.meta`` and take no part in `exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sqlglot import exp

_Node = TypeVar("_Node", bound=exp.Expr)
_FLAGS = ("star", "distinct", "variadic", "order", "filter", "form")


class Raw(exp.Expression):
    """A word of SQL: a quoted name of the catalogue, a literal, a type as PostgreSQL writes it.

    Or a whole SELECT, before which there may be WITH.
    """

    arg_types = {"this": True, "with_": False}  # noqa: RUF012  (sqlglot's own form)


class Infix(exp.Expression, exp.Binary):
    """An operator between two operands, by its signs: sqlglot would write ``~~`` as LIKE."""

    arg_types = {"this": True, "operator": True, "expression": True}  # noqa: RUF012


class Value(exp.Expression):
    """``CURRENT_TIMESTAMP(3)`` and its like, which are calls without parentheses."""

    arg_types = {"this": True}  # noqa: RUF012


class Operation(exp.Expression):
    """An operator of pg_catalog by its text; without ``this`` it stands before its operand."""

    arg_types = {"this": False, "operator": True, "expression": True}  # noqa: RUF012


class Quantified(exp.Expression):
    """A comparison with ANY or ALL elements of an array."""

    arg_types = {"this": True, "operator": True, "quantifier": True, "expression": True}  # noqa: RUF012


class Call(exp.Anonymous):
    """A call of a function by schema and name, both exact.

    ``form`` is the syntax of a call that has one of its own: ``keyword`` of COALESCE and its like,
    else the words between its arguments, which are in the order of the function's.
    """

    arg_types = {  # noqa: RUF012
        "this": True, "schema": False, "expressions": False, **dict.fromkeys(_FLAGS, False),
    }  # fmt: skip

    @property
    def schema(self) -> str:
        """The schema, empty where none is written."""
        return str(self.args.get("schema") or "")

    @property
    def flags(self) -> frozenset[str]:
        """The parts of the call beside its arguments, such as DISTINCT and FILTER."""
        return frozenset(flag for flag in _FLAGS if self.args.get(flag))


class Place(exp.Expression):
    """The place of an argument, by its number, in a formula (`Written`)."""

    arg_types = {"this": True}  # noqa: RUF012


class Written(exp.Expression):
    """A formula of arguments, which are words or calls, or in parentheses of their own.

    ``rising``: it has one argument and never falls when that grows; ``mean``: it is the mean of a
    sum and a count.
    """

    arg_types = {"this": True, "expressions": False, "rising": False, "mean": False}  # noqa: RUF012


#: Nodes below which there are no expressions.
_WORDS = (exp.Identifier, exp.Column, exp.Literal, exp.Null, exp.Boolean, Raw, Value)


def at(node: _Node, position: int) -> _Node:
    """Return a node with the place in the text where it was read, from 1."""
    node._meta = {"position": position}
    return node


def position(node: exp.Expr) -> int:
    """Return where a node was read; 0: nowhere."""
    return int(node.meta_get("position", 0))


def exact(node: exp.Expr) -> tuple[object, ...]:
    """Return a key that is equal for equal trees only.

    sqlglot's own ``==`` compares hashes that ignore the case of texts, and numbers with texts.
    """
    found: list[object] = []
    waiting: list[object] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, exp.Expr):
            args = {n: v for n, v in one.args.items() if v is not None and v is not False}
            names = sorted(n for n, v in args.items() if not isinstance(v, list) or v)
            found += (type(one), len(names))
            for name in names:
                waiting += (args[name], name)
        elif isinstance(one, list):
            found += (list, len(one))
            waiting += reversed(one)
        else:
            found += (type(one), one)
    return tuple(found)


def each_once(nodes: Iterable[_Node]) -> list[_Node]:
    """Leave out trees that stood there before."""
    found: dict[object, _Node] = {}
    for node in nodes:
        found.setdefault(exact(node), node)
    return list(found.values())


def rebuilt(node: _Node, change: Callable[[exp.Expr], exp.Expr]) -> _Node:
    """Return a node of the same kind with each node right below it changed; a word is kept."""
    if isinstance(node, _WORDS):
        return node
    made: dict[str, object] = {}
    for name, value in node.args.items():
        if isinstance(value, exp.Expr):
            made[name] = change(value)
        elif isinstance(value, list):
            made[name] = [change(one) if isinstance(one, exp.Expr) else one for one in value]
        else:
            made[name] = value
    return type(node)(**made)


def filled(tree: exp.Expr, args: Sequence[exp.Expr]) -> exp.Expr:
    """Return a formula with its arguments in their places."""
    if isinstance(tree, Place):
        return args[int(tree.args["this"])]
    return rebuilt(tree, lambda node: filled(node, args))
