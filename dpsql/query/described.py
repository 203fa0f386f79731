"""A description of an expression: one text for equal expressions, and different ones for others.

Descriptions tell questions apart, and sort operands that may stand in any order.  A description is
the SQL that earlier versions made of the expression.  They found stored answers by it, so that an
answer which was paid for there stays free.  Nothing executes or parses it.
"""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase
from typing import cast

from dpsql.query.ir import TABLEOID, Expr, alias_of
from dpsql.query.types import SIMPLE
from dpsql.relation import base, quote_identifier
from dpsql.sqltree import literal

#: What stands around and between the operands of expressions that have no other data.
_AROUND = {
    "and": ("(", " AND ", ")"),
    "or": ("(", " OR ", ")"),
    "not": ("(NOT ", "", ")"),
    "distinct": ("(", " IS DISTINCT FROM ", ")"),
    "guard": ("CASE WHEN ", " THEN ", " END"),
    "array": ("ARRAY[", ", ", "]"),
    **{
        word: (f"{word.upper()}(", ", ", ")")
        for word in ("coalesce", "greatest", "least", "nullif")
    },
}


def described(e: Expr) -> str:
    """Describe an expression; a column by its relation and name, and by its type if it is cast."""
    around = _AROUND.get(e.kind)
    if around is None:
        return _KINDS[e.kind](e)
    # a call more than a tree takes, so that what can be described before a charge can be written
    # after it
    return around[0] + around[1].join([described(a) for a in e.args]) + around[2]


def _col(e: Expr) -> str:
    occurrence, name, *_ = cast("tuple[int, str, bool, str]", e.data)
    shown = f"{alias_of(occurrence)}.{name if name == TABLEOID else quote_identifier(name)}"
    return f"CAST({shown} AS {e.type})" if e.data[4:] else shown  # type: ignore[index]


def _const(e: Expr) -> str:
    shown = "NULL" if e.data is None else literal(str(e.data))
    if base(e.type) not in SIMPLE:
        shown = f"({shown}::pg_catalog.text)"
    return f"{shown}::{e.type}"


def _op(e: Expr) -> str:
    *left, right = (described(a) for a in e.args)
    return f"({' '.join([*left, str(e.data), right])})"


def _narrow(e: Expr) -> str:
    source, least, low, high = cast("tuple[str, str, str, str]", e.data)
    inner = described(e.args[0])
    inside = f"{inner} {least} '{low}'::{source} AND {inner} < '{high}'::{source}"
    return f"CASE WHEN {inside} THEN CAST({inner} AS {e.type}) END"


def _in(e: Expr) -> str:
    value, *listed = (described(a) for a in e.args)
    return f"({value} {'<> ALL' if e.data else '= ANY'} (ARRAY[{', '.join(listed)}]))"


def _case(e: Expr) -> str:
    *pairs, last = (described(a) for a in e.args)
    words = ("WHEN", "THEN") * (len(pairs) // 2)
    whens = " ".join(f"{word} {part}" for word, part in zip(words, pairs, strict=True))
    return f"CASE {whens} ELSE {last} END"


def _literal(e: Expr) -> str:
    return str(e.data) if isinstance(e.data, int) else f"'{e.data}'::{e.type}"


def _template(e: Expr) -> str:
    """Put the arguments of a template into the places of their names; ``::`` is a cast."""
    first, *rest = str(e.data).replace("::", "\0").split(":")
    parts = [described(e.args[ascii_lowercase.index(part[0])]) + part[1:] for part in rest]
    return "".join([first, *parts]).replace("\0", "::")


_KINDS: dict[str, Callable[[Expr], str]] = {
    "col": _col,
    "const": _const,
    "literal": _literal,
    "op": _op,
    "fn": lambda e: (
        f"pg_catalog.{quote_identifier(str(e.data))}({', '.join([described(a) for a in e.args])})"
    ),
    "cast": lambda e: f"CAST({described(e.args[0])} AS {e.data})",
    "narrow": _narrow,
    "named": lambda e: str(e.data),
    "is": lambda e: f"({described(e.args[0])} IS {e.data})",
    "in": _in,
    "case": _case,
    "extract": lambda e: f"EXTRACT({e.data} FROM {described(e.args[0])})",
    "collate": lambda e: (
        f"({described(e.args[0])} COLLATE {'.'.join(map(quote_identifier, e.data))})"  # type: ignore
    ),
    "attribute": lambda e: f"a{e.data}",
    "sql": _template,
}
