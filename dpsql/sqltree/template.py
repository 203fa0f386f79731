"""Trees of constant texts, in which ``:names`` stand for other trees.

``sql("SELECT max(n) FROM :left AS l JOIN :right AS r ON :same", left=..., right=..., same=...)``

==================  ===================  ========================================
a name stands       and is given         it becomes
==================  ===================  ========================================
for a value         a tree               the tree, in parentheses if it must be
in a list           trees                all of them; GROUP BY of nothing goes
after FROM, JOIN    a query, `table`,    the query in parentheses, or the others as they
                    or `unnest`          are
after WHERE         a tree or ``None``   the condition; WHERE of ``None`` goes
==================  ===================  ========================================

A text is read once, when it is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlglot
from sqlglot import exp

from dpsql.errors import InternalError
from dpsql.sqltree.build import LAST, Tree, closed
from dpsql.sqltree.dialect import Server
from dpsql.sqltree.nodes import Raw

Given = Tree | Sequence[Tree] | None
#: Clauses that go away with what is in them.
_CLAUSES = (exp.Where, exp.Having, exp.Group, exp.Order, exp.Limit, exp.Offset)

_CONTENT = ("this", "expression", "expressions", "grouping_sets")


def sql(text: str, /, **given: Given) -> Any:
    """Return the tree of a constant text, with trees in the place of its ``:names``.

    Parameters
    ----------
    text : str
        A statement or an expression of PostgreSQL, without types in the place of names.
    **given
        What each name stands for; see the module.
    """
    tree, names, above = _read(text)
    if names != given.keys():
        raise InternalError(f"a template takes {sorted(names)}, not {sorted(given)}")
    return _fill(tree, given, above)


@cache
def _read(text: str) -> tuple[Tree, frozenset[str], frozenset[int]]:
    """Read a text, and find the names in it, and what is above them (by ``id``)."""
    tree = sqlglot.parse_one(text, read=Server)
    names, above = set(), set()
    for node in tree.find_all(exp.Placeholder):
        names.add(node.name)
        at: Tree | None = node
        while at is not None:
            above.add(id(at))
            at = at.parent
    return tree, frozenset(names), frozenset(above)


def _fill(node: Tree, given: dict[str, Given], above: frozenset[int]) -> Any:
    """Copy a tree with what its names stand for; what has none below it is shared by all."""
    if isinstance(node, exp.Placeholder):
        return given[node.name]
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Placeholder):
        return _source(node, given)
    if isinstance(node, exp.Ordered) and isinstance(node.this, exp.Placeholder):
        found = _fill(node.this, given, above)
        keys = found if isinstance(found, (list, tuple)) else [found]
        return [exp.Ordered(**{**node.args, "this": key}) for key in keys]
    operator = isinstance(node, (exp.Binary, exp.Unary, exp.Between, exp.Bracket, exp.Window)) and (
        not isinstance(node, (exp.Paren, exp.Dot))
    )
    args: dict[str, Any] = {}
    for key, value in node.args.items():
        if isinstance(value, list):
            made: list[Any] = []
            for one in value:
                found = _fill(one, given, above) if id(one) in above else one
                made.extend(found if isinstance(found, (list, tuple)) else [found])
            args[key] = made
        elif id(value) in above:
            found = _fill(value, given, above)
            if operator and isinstance(value, exp.Placeholder):
                found = closed(found)
            if found is not None:
                args[key] = found
        else:
            args[key] = value
    if isinstance(node, _CLAUSES) and not (
        args.get("this") or args.get("expression") or args.get("expressions")
    ):
        return None
    return type(node)(**args)


def _source(node: exp.Table, given: dict[str, Given]) -> Tree:
    """Return what a name after FROM or JOIN stands for, with its alias."""
    found = given[node.this.name]
    alias = node.args.get("alias")
    if isinstance(found, exp.Unnest):
        return found
    if isinstance(found, exp.Subquery) and not any(map(found.args.get, LAST)):
        return exp.Subquery(this=found.this, alias=alias or found.args.get("alias"))
    if isinstance(found, exp.Query):
        return exp.Subquery(this=found, alias=alias)
    if isinstance(found, exp.Table):
        return exp.Table(**{**found.args, "alias": alias or found.args.get("alias")})
    if isinstance(found, (Raw, exp.Identifier)):
        return exp.Table(this=found, alias=alias)
    raise InternalError(f"a template has no source of the name {node.this.name}")
