"""A description of an expression: one text for equal expressions, and different ones for others.

It is no SQL: nothing reads it.  Questions are told apart by it, and operands that may stand in any
order are sorted by it.
"""

from __future__ import annotations

from typing import cast

from dpsql.query.ir import Expr, alias_of
from dpsql.relation import quote_identifier


def described(e: Expr) -> str:
    """Describe an expression; a column by its relation and name, and by its type if it is cast."""
    if e.kind == "col":
        occurrence, name, *_ = cast("tuple[int, str, bool, str]", e.data)
        shown = f"{alias_of(occurrence)}.{quote_identifier(name)}"
        return f"{shown}::{e.type}" if e.data[4:] else shown  # type: ignore[index]
    return f"{e.kind}[{e.type!r} {e.data!r}]({_listed(e.args)})"


def _listed(args: tuple[Expr, ...]) -> str:
    # a call more than a tree takes, so that what can be described before a charge can be written
    # after it
    return ", ".join([described(a) for a in args])
