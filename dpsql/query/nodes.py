"""Read the trees that `dpsql.query.parse` makes: names, constants, casts and clauses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from dpsql.sqltree.nodes import Call, Quantified

_BIGINT_DIGITS = 19


class Constant(NamedTuple):
    """A constant's text, ``None`` of NULL, and its type: empty for a bare string and NULL."""

    text: str | None
    type: str


def identifier(name: str) -> exp.Identifier:
    """Make a name, of any letters."""
    return exp.Identifier(this=name, quoted=True)


def names(node: exp.Expr) -> tuple[str, ...]:
    """Return the parts of a name: of a column reference or of a collation."""
    parts = node.parts if isinstance(node, (exp.Column, exp.Dot)) else [node]
    return tuple(part.name for part in parts)


def constant_of(node: exp.Expr) -> Constant | None:
    """Read a constant; one of a type that it is named with is a cast of a string or NULL."""
    if isinstance(node, exp.Cast):
        inner = node.this
        text = None if isinstance(inner, exp.Null) else inner.name
        return Constant(text, type_of(node)) if is_bare(inner) else None
    if isinstance(node, exp.Literal):
        return Constant(node.name, "" if node.is_string else _number_type(node.name))
    if isinstance(node, exp.Boolean):
        return Constant("t" if node.this else "f", "boolean")
    return Constant(None, "") if isinstance(node, exp.Null) else None


def is_bare(node: exp.Expr) -> bool:
    """Tell whether a node is a constant without a type: a string or NULL."""
    return isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.is_string)


def _number_type(text: str) -> str:
    if not text.isdigit() or len(text) > _BIGINT_DIGITS:
        return "numeric"
    value = int(text)
    return "integer" if value < 2**31 else "bigint" if value < 2**63 else "numeric"


def type_of(cast: exp.Cast) -> str:
    """Return the type's name as it was read."""
    return str(cast.args["to"].this)


def uncast(node: exp.Expr) -> exp.Expr:
    """Return what is below casts."""
    while isinstance(node, exp.Cast) and constant_of(node) is None:
        node = node.this
    return node


def operands(node: exp.Connector) -> list[exp.Expr]:
    """List what AND or OR joins; a nested one of the same kind stands in parentheses."""
    found: list[exp.Expr] = [node]
    while type(found[-1]) is type(node):
        inner = found.pop()
        found += (inner.expression, inner.this)
    return found[::-1]


def label(node: exp.Expr) -> str:
    """Name an expression that has no name of its own."""
    inner = node.unnest()
    if isinstance(inner, (exp.Column, Call)):
        return inner.name
    if isinstance(inner, exp.Collate):
        return names(inner.expression)[-1]
    if isinstance(inner, Quantified):
        return str(inner.args["quantifier"])
    return {"operation": "op", "nullsafeneq": "distinct"}.get(inner.key, inner.key)


def is_join(item: exp.Expr) -> bool:
    """Tell whether something of FROM is a join in parentheses."""
    return isinstance(item, exp.Subquery) and not isinstance(item.this, exp.Select)


def sources(query: exp.Select) -> list[exp.Expr]:
    """List what FROM names."""
    first = query.args.get("from_")
    joined = query.args.get("joins") or []
    return [first.this, *(join.this for join in joined)] if first else []


def clause(query: exp.Select, name: str) -> exp.Expr | None:
    """Return the one expression of WHERE, HAVING, LIMIT or OFFSET."""
    found = query.args.get(name)
    if found is None:
        return None
    made: exp.Expr = found.args.get("expression") or found.this
    return made


def grouped(query: exp.Select) -> list[exp.Expr]:
    """List the expressions of GROUP BY."""
    found = query.args.get("group")
    return list(found.expressions) if found else []


def targets(query: exp.Select) -> list[exp.Expr]:
    """List the output columns without their names."""
    return [target.unalias() for target in query.expressions]


def target_name(target: exp.Expr) -> str:
    """Return the name of an output column."""
    return target.name if isinstance(target, exp.Column) else target.alias or "?column?"


def asked(query: exp.Select) -> Iterator[exp.Expr]:
    """Yield all nodes of the output columns and of HAVING."""
    for part in (*targets(query), clause(query, "having")):
        if part is not None:
            yield from part.walk()
