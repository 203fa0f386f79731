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

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any

import sqlglot
from sqlglot import exp

from dpsql.errors import InternalError
from dpsql.sqltree.build import LAST, Tree, closed
from dpsql.sqltree.dialect import Server
from dpsql.sqltree.nodes import Raw

Given = Tree | Sequence[Tree] | None
Make = Callable[[Mapping[str, Given]], Any]
#: Clauses that go away with what is in them.
_CLAUSES = (exp.Where, exp.Having, exp.Group, exp.Order, exp.Limit, exp.Offset)
_CONTENT = ("this", "expression", "expressions")


def sql(text: str, /, **given: Given) -> Any:
    """Return the tree of a constant text, with trees in the place of its ``:names``.

    Parameters
    ----------
    text : str
        A statement or an expression of PostgreSQL, without types in the place of names.
    **given
        What each name stands for; see the module.
    """
    make, names = _read(text)
    if names != given.keys():
        raise InternalError(f"a template takes {sorted(names)}, not {sorted(given)}")
    return make(given)


@cache
def _read(text: str) -> tuple[Make, frozenset[str]]:
    """Read a text; return what makes its trees, and the names in it."""
    tree = sqlglot.parse_one(text, read=Server)
    names = frozenset(node.name for node in tree.find_all(exp.Placeholder))
    return _maker(tree) or partial(_made, tree, [], [], False), names


def _maker(node: Tree) -> Make | None:
    """Return what copies a tree with trees for its names; ``None``: it has none, and is shared."""
    if isinstance(node, exp.Placeholder):
        return itemgetter(node.name)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Placeholder):
        return partial(_source, node)
    if isinstance(node, exp.Ordered) and isinstance(node.this, exp.Placeholder):
        return partial(_ordered, node)
    operator = isinstance(node, (exp.Binary, exp.Unary, exp.Between, exp.Bracket, exp.Window)) and (
        not isinstance(node, (exp.Paren, exp.Dot))
    )
    trees: list[tuple[str, Make]] = []
    lists: list[tuple[str, list[Make]]] = []
    for key, value in node.args.items():
        if isinstance(value, list):
            makers = [_maker(one) if isinstance(one, exp.Expr) else None for one in value]
            if any(makers):
                listed = zip(makers, value, strict=True)
                lists.append((key, [make or partial(_same, one) for make, one in listed]))
        elif isinstance(value, exp.Expr) and (make := _maker(value)):
            closes = operator and isinstance(value, exp.Placeholder)
            trees.append((key, partial(_closed, make) if closes else make))
    if not trees and not lists:
        return None
    return partial(_made, node, trees, lists, isinstance(node, _CLAUSES))


def _made(
    node: Tree,
    trees: list[tuple[str, Make]],
    lists: list[tuple[str, list[Make]]],
    goes: bool,
    given: Mapping[str, Given],
) -> Any:
    """Copy a node with what is below it; a clause goes away with what is in it."""
    args = {k: [*value] if isinstance(value, list) else value for k, value in node.args.items()}
    for key, make in trees:
        found = make(given)
        if found is None:
            del args[key]
        else:
            args[key] = found
    for key, makers in lists:
        listed: list[Any] = []
        for make in makers:
            found = make(given)
            if isinstance(found, (list, tuple)):
                listed += found
            else:
                listed.append(found)
        args[key] = listed
    if goes and not any(args.get(key) for key in _CONTENT):
        return None
    return type(node)(**args)


def _same(tree: Given, _: Mapping[str, Given]) -> Given:
    return tree


def _closed(make: Make, given: Mapping[str, Given]) -> Tree:
    return closed(make(given))


def _ordered(node: exp.Ordered, given: Mapping[str, Given]) -> list[Tree]:
    """Return a key of ORDER BY for each tree that a name stands for."""
    found = given[node.this.name]
    keys = found if isinstance(found, (list, tuple)) else [found]
    return [exp.Ordered(**{**node.args, "this": key}) for key in keys]


def _source(node: exp.Table, given: Mapping[str, Given]) -> Tree:
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
