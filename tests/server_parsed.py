"""What PostgreSQL's own parser makes of SQL."""

from __future__ import annotations

from pglast import parse_sql
from pglast.ast import Node

STATEMENTS = ("SELECT", "WITH", "(SELECT")
_PLACES = frozenset(
    (
        *("location", "stmt_location", "stmt_len", "list_start", "list_end"),
        *("rexpr_list_start", "rexpr_list_end"),
    )
)


def parsed(text: str) -> object:
    """Return the parse tree of a statement or an expression, without positions."""
    statement = text if text.startswith(STATEMENTS) else f"SELECT {text}"
    (found,) = parse_sql(statement)
    return plain(found.stmt)


def plain(node: object) -> object:
    """Return a parse tree without positions."""
    if isinstance(node, Node):
        fields = {f: plain(getattr(node, f)) for f in node if f not in _PLACES}
        return type(node).__name__, tuple(sorted(fields.items(), key=repr))
    return tuple(map(plain, node)) if isinstance(node, (tuple, list)) else node
