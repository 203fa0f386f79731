"""Expressions over the relation ``noisy`` of released values.

Beside the nodes of `dpsql.query.parse` that need no rows there are columns of the relation, such as
``a0``, and what is `dpsql.sqltree.nodes.Written`: formulas of columns and of other expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from sqlglot import exp

from dpsql.query import types
from dpsql.query.measures import FIRST, HELD
from dpsql.relation import base
from dpsql.sqltree import aliased, cast, number, render, sql
from dpsql.sqltree import column as named
from dpsql.sqltree.nodes import (
    Call,
    Operation,
    Place,
    Quantified,
    Value,
    Written,
    exact,
    rebuilt,
)
from dpsql.statement import Statement

_SECOND, _THIRD, _FOURTH = (Place(this=n) for n in (1, 2, 3))
_MEAN = sql("CAST(:total AS numeric) / greatest(:count, 1)", total=FIRST, count=_SECOND)
_QUOTIENT = sql(
    "CAST(:total AS numeric)"
    " / CASE WHEN :total < 0 THEN greatest(:below, 1) ELSE greatest(:above, 1) END",
    total=FIRST, below=_SECOND, above=_THIRD,
)  # fmt: skip
_LOW, _HIGH = (
    sql(
        "CASE WHEN :one IS NOT NULL AND :other IS NOT NULL THEN :quotient END",
        one=one, other=other, quotient=_QUOTIENT,
    )
    for one, other in ((FIRST, _SECOND), (_FOURTH, _THIRD))
)  # fmt: skip
_Tree = TypeVar("_Tree", bound=exp.Expr)
#: Nodes of the syntax that can be computed without rows.
COMPUTED = (
    exp.Literal, exp.Boolean, exp.Null, exp.Cast, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is,
    exp.NullSafeNEQ, exp.Array, exp.Case, exp.If, exp.Collate, Call, Operation, Quantified, Value,
)  # fmt: skip


def column(letter: str, place: int) -> exp.Column:
    """Make a column of the relation."""
    return named("", f"{letter}{place}")


def place(node: exp.Column) -> tuple[str, int]:
    """Return letter and number of a column of the relation."""
    return node.name[0], int(node.name[1:])


def columns(node: exp.Expr) -> Iterator[tuple[str, int]]:
    """Yield the columns of the relation that an expression uses."""
    return (place(n) for n in node.dfs() if isinstance(n, exp.Column))


def mean(total: int, count: int) -> Written:
    """Make the mean of a sum and a count."""
    return Written(this=_MEAN, expressions=[column("a", total), column("a", count)], mean=True)


def mean_ends(total: int, count: int) -> tuple[Written, Written]:
    """Make the ends of an interval around a mean, of the columns ``p<j>`` and ``q<j>``.

    Those are ends around its sum and its count, each of which fails with half the probability that
    the interval may: so both hold the truth as often as is asked, and then the mean lies between
    the least and the greatest quotient.  NULL where one of the four is.
    """
    low, high = column("p", total), column("q", total)
    fewest, most = column("p", count), column("q", count)
    return written(_LOW, low, fewest, most), written(_HIGH, high, most, fewest, low)


def written(tree: exp.Expr, *args: exp.Expr, rising: bool = False) -> Written:
    """Make an expression of a formula with places for arguments."""
    return Written(this=tree, expressions=list(args), rising=rising)


def fitted(node: exp.Expr, type_: str) -> exp.Cast:
    """Make the cast of a released number to its result type, which never fails.

    What lies beyond the type becomes its nearest value (post-processing, PRIVACY.md section 2 (b)):
    an error after the charge could not be mended by another text.
    """
    if type_ in HELD:
        low, high, digits = HELD[type_]
        ends = {"low": constant("numeric", str(low)), "high": constant("numeric", str(high))}
        tree = sql("least(greatest(:x, :low), :high)", x=FIRST, **ends)
        if digits is not None:
            tree = sql("pg_catalog.round(:x, :digits)", x=tree, digits=number(digits))
        node = written(tree, node, rising=True)
    return cast(node, type_)


def constant(type_: str, text: str | None) -> exp.Expr:
    """Write a constant; one without a type is a string or NULL.

    One of a type that is not built in is written as a cast of a text: a literal is read, by code
    of whatever the name means by then, before anybody can look at the analysed statement.
    """
    shown = exp.Null() if text is None else exp.Literal(this=text, is_string=True)
    if not type_:
        return shown
    return cast(shown if base(type_) in types.SIMPLE else cast(shown, "pg_catalog.text"), type_)


def divides(node: exp.Expr) -> bool:
    """Tell whether an expression is a division, which 0 can make fail."""
    if isinstance(node, Operation):
        return bool(node.args.get("this")) and node.args["operator"] in ("/", "%")
    return (
        isinstance(node, Call)
        and node.name in ("div", "mod")
        and len(node.expressions) == 2
        and not node.flags
    )


def over_zero(node: _Tree) -> _Tree:
    """Change an expression or a query so that a division by 0 gives NULL."""
    made = rebuilt(node, lambda below: over_zero(below))
    if divides(node):
        name = "expressions" if isinstance(node, Call) else "expression"
        *first, divisor = made.expressions or [made.expression]
        divisor = sql("NULLIF(:divisor, 0)", divisor=divisor)
        made.set(name, [*first, divisor] if first else divisor)
    return made


def replaced(node: exp.Expr, old: exp.Expr, new: exp.Expr) -> exp.Expr:
    """Put one expression in the place of another."""
    if type(node) is type(old) and exact(node) == exact(old):
        return new
    return rebuilt(node, lambda below: replaced(below, old, new))


def statement(query: exp.Select, used: Iterable[str]) -> Statement:
    """Write a statement over the relation."""
    return Statement(query, render(query), frozenset(used))


def extended(given: Statement, more: Iterable[exp.Expr], used: Iterable[str]) -> Statement:
    """Append expressions to a statement's output columns, and what they use."""
    shown = list(given.query.expressions)
    shown += (aliased(tree, f"c{n}") for n, tree in enumerate(more, len(shown) + 1))
    query = exp.Select(**{**given.query.args, "expressions": shown})
    return statement(query, given.used | frozenset(used))
