"""Writers of the nodes that most of a tree is made of.

They write what sqlglot's own do, in a fraction of the time, of nodes that have the usual clauses;
what has others is left to sqlglot's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.generators.postgres import PostgresGenerator

_CLAUSES = ("where", "group", "having", "order", "limit", "offset")
_OF_SELECT = frozenset({"with_", "expressions", "from_", "joins", *_CLAUSES})
_OF_SOURCE = frozenset({"this", "alias"})
_OF_JOIN = frozenset({"this", "on"})


def _has_others(node: exp.Expr, usual: frozenset[str]) -> bool:
    return any(value and key not in usual for key, value in node.args.items())


def _identifier(_: PostgresGenerator, node: exp.Identifier) -> str:
    """Write a name as it is; one that a template has in quotes with them."""
    text: str = node.this
    return '"' + text.replace('"', '""') + '"' if node.args.get("quoted") else text


def _column(self: PostgresGenerator, node: exp.Column) -> str:
    args = node.args
    if args.get("db"):
        return self.column_sql(node)
    own, source = self.sql(args["this"]), args.get("table")
    return f"{self.sql(source)}.{own}" if source else own


def _cast(self: PostgresGenerator, node: exp.Cast) -> str:
    return f"CAST({self.sql(node.args['this'])} AS {self.sql(node.args['to'])})"


def _alias(self: PostgresGenerator, node: exp.Alias) -> str:
    return f"{self.sql(node.args['this'])} AS {self.sql(node.args['alias'])}"


def _paren(self: PostgresGenerator, node: exp.Paren) -> str:
    return f"({self.sql(node.args['this'])})"


def _select(self: PostgresGenerator, node: exp.Select) -> str:
    # never by sqlglot's rewriting of what PostgreSQL does not have
    args = node.args
    columns = args.get("expressions")
    if not columns or _has_others(node, _OF_SELECT):
        return self.select_sql(node)
    before = f"{self.sql(args['with_'])} " if args.get("with_") else ""
    written = [before, "SELECT ", ", ".join([self.sql(column) for column in columns])]
    written.append(self.sql(args.get("from_")))
    written += [self.sql(join) for join in args.get("joins") or ()]
    written += [self.sql(args.get(clause)) for clause in _CLAUSES]
    return "".join(written)


def _subquery(self: PostgresGenerator, node: exp.Subquery) -> str:
    if _has_others(node, _OF_SOURCE):
        return self.subquery_sql(node)
    return _named(self, f"({self.sql(node.args['this'])})", node)


def _table(self: PostgresGenerator, node: exp.Table) -> str:
    if _has_others(node, _OF_SOURCE):
        return self.table_sql(node)
    return _named(self, self.sql(node.args["this"]), node)


def _named(self: PostgresGenerator, written: str, node: exp.Expr) -> str:
    alias = node.args.get("alias")
    return f"{written} AS {self.sql(alias)}" if alias else written


def _join(self: PostgresGenerator, node: exp.Join) -> str:
    args = node.args
    if not args.get("on") or _has_others(node, _OF_JOIN):
        return self.join_sql(node)
    return f" JOIN {self.sql(args['this'])} ON {self.sql(args['on'])}"


WRITERS: dict[type[exp.Expr], Callable[[Any, Any], str]] = {
    exp.Identifier: _identifier,
    exp.Column: _column,
    exp.Cast: _cast,
    exp.Alias: _alias,
    exp.Paren: _paren,
    exp.Select: _select,
    exp.Subquery: _subquery,
    exp.Table: _table,
    exp.Join: _join,
}
