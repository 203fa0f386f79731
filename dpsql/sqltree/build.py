"""Trees whose number of parts depends on a query: lists of columns, conditions, unions, WITH.

Names and types are given as texts, values as trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from sqlglot import exp

from dpsql.sqltree.dialect import literal
from dpsql.sqltree.nodes import Call, Infix, Place, Raw, Value, Written

Tree = exp.Expr
Statement = TypeVar("Statement", bound=Tree)

#: What is written as one word or in parentheses of its own, so that operators cannot tear it apart.
_ATOMS = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Anonymous,
    exp.Cast,
    exp.Case,
    exp.Paren,
    exp.Subquery,
    exp.Array,
    exp.Parameter,
    exp.Dot,
    exp.Bracket,
    exp.Star,
    exp.Extract,
    exp.Exists,
    Raw,
    Value,
    Call,
    Place,
    Written,
)


#: Clauses that would be of the whole union.
LAST = ("order", "limit", "offset", "with_")


def closed(tree: Tree) -> Tree:
    """Return an operand: in parentheses, unless it is written as one word or call."""
    if isinstance(tree, exp.Query) and not isinstance(tree, exp.Subquery):
        return exp.Subquery(this=tree)
    return tree if isinstance(tree, _ATOMS) else exp.Paren(this=tree)


def name(text: str) -> exp.Identifier:
    """Return a name that PostgreSQL reads as it is written: lower case, or quoted by the caller."""
    return exp.Identifier(this=text, quoted=False)


def column(source: str, text: str) -> exp.Column:
    """Return the column ``text`` of what FROM calls ``source``; of ``""``: of whatever has it.

    Names of columns are most of a tree: as texts they cost a third of what nodes do.
    """
    return exp.Column(this=text, table=source) if source else exp.Column(this=text)


def aliased(tree: Tree, text: str) -> exp.Alias:
    """Return an output column ``tree AS text``."""
    return exp.Alias(this=tree, alias=text)


def table(text: str, alias: str = "", *, only: bool = False) -> exp.Table:
    """Return a WITH query, or a relation by its quoted name, for FROM."""
    given = exp.TableAlias(this=name(alias)) if alias else None
    return exp.Table(this=name(text), alias=given, only=only)


def join(source: exp.Table | exp.Subquery, condition: Tree | None) -> exp.Join:
    """Return what FROM joins with it; without a condition, all of it."""
    return exp.Join(this=source, on=condition)


def raw(text: str) -> Raw:
    """Return text that is SQL already; see `Raw`."""
    return Raw(this=text)


def call(function: str, *arguments: Tree) -> exp.Anonymous:
    """Return a call of a function by its name, which may be qualified."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def parameter(place: int) -> exp.Parameter:
    """Return the parameter ``$place``."""
    return exp.Parameter(this=exp.Literal(this=str(place), is_string=False))


def number(value: int) -> Tree:
    """Return a whole number."""
    written = exp.Literal(this=str(abs(value)), is_string=False)
    return written if value >= 0 else exp.Paren(this=exp.Neg(this=written))


def constant(text: str | None) -> Tree:
    """Return a string, read the same whatever standard_conforming_strings is; NULL of ``None``."""
    if text is None:
        return exp.Null()
    return Raw(this=literal(text))


def cast(tree: Tree, type_: str) -> exp.Cast:
    """Return ``CAST(tree AS type_)``, the type as PostgreSQL's ``format_type`` writes it."""
    return exp.Cast(this=tree, to=Raw(this=type_))


def infix(left: Tree, operator: str, right: Tree) -> Infix:
    """Return ``left operator right``, of an operator that is written as a word of signs."""
    return Infix(this=closed(left), operator=operator, expression=closed(right))


def equal(left: Tree, right: Tree) -> exp.EQ:
    """Return ``left = right``."""
    return exp.EQ(this=closed(left), expression=closed(right))


def all_of(conditions: Iterable[Tree]) -> Tree | None:
    """Return that all conditions are true; ``None`` without any."""
    found: Tree | None = None
    for condition in conditions:
        part = closed(condition) if isinstance(condition, exp.Or) else condition
        found = part if found is None else exp.And(this=found, expression=part)
    return found


def any_of(conditions: Iterable[Tree]) -> Tree | None:
    """Return that one of the conditions is true; ``None`` without any."""
    found: Tree | None = None
    for condition in conditions:
        found = condition if found is None else exp.Or(this=found, expression=condition)
    return found


def join_all(operator: type[exp.Binary], trees: Iterable[Tree]) -> Tree | None:
    """Return operands joined from left to right, as ``a || b || c``; ``None`` without any."""
    found: Any = None
    for tree in trees:
        found = closed(tree) if found is None else operator(this=found, expression=closed(tree))
    made: Tree | None = found
    return made


def from_(sources: Sequence[Tree], where: Tree | None = None) -> exp.Select:
    """Return a SELECT without output columns; sources after the first are joined to it.

    They are listed after commas, or are `joined`.
    """
    first, *others = sources
    joins = [one if isinstance(one, exp.Join) else exp.Join(this=one) for one in others]
    condition = None if where is None else exp.Where(this=where)
    return exp.Select(from_=exp.From(this=first), joins=joins, where=condition)


def joined(source: Tree, on: Tree | None) -> exp.Join:
    """Return ``JOIN source ON on``, or CROSS JOIN without a condition."""
    return exp.Join(this=source, kind="CROSS") if on is None else exp.Join(this=source, on=on)


def select(columns: Sequence[Tree], source: exp.Select) -> exp.Select:
    """Return ``source`` with these output columns; ``1`` if there are none."""
    return exp.Select(**{**source.args, "expressions": list(columns) or [number(1)]})


def subquery(query: Tree, alias: str = "", columns: Iterable[str] = ()) -> exp.Subquery:
    """Return a query in parentheses."""
    named = [name(c) for c in columns]
    given = exp.TableAlias(this=name(alias), columns=named) if alias else None
    return exp.Subquery(this=query, alias=given)


def unnest(
    arrays: Iterable[Tree], alias: str, columns: Iterable[str], *, ordinality: bool = False
) -> exp.Unnest:
    """Return arrays side by side for FROM; with ``ordinality`` the last column numbers rows."""
    named = exp.TableAlias(this=name(alias), columns=[name(c) for c in columns])
    return exp.Unnest(expressions=list(arrays), alias=named, offset=ordinality)


def union_all(queries: Sequence[exp.Query]) -> exp.Query:
    """Return the rows of all queries, each in parentheses if it has ORDER BY or LIMIT."""
    first, *others = (subquery(q) if any(map(q.args.get, LAST)) else q for q in queries)
    found: exp.Query = first
    for other in others:
        found = exp.Union(this=found, expression=other, distinct=False)
    return found


def cte(text: str, query: exp.Query, *, materialized: bool | None = None) -> exp.CTE:
    """Return one query of WITH; ``materialized`` as PostgreSQL has it."""
    return exp.CTE(this=query, alias=exp.TableAlias(this=name(text)), materialized=materialized)


def insert(target: str, columns: Sequence[str], query: exp.Query) -> exp.Insert:
    """Return INSERT of a query's rows, also into columns that number rows themselves."""
    if not columns:
        return exp.Insert(this=table(target), expression=query)
    into = exp.Schema(this=table(target), expressions=[name(c) for c in columns])
    return exp.Insert(this=into, settings=Raw(this="OVERRIDING SYSTEM VALUE"), expression=query)


def with_(ctes: Sequence[exp.CTE], query: Statement) -> Statement:
    """Return a statement with WITH before it, if there is anything in it."""
    if ctes:
        query.set("with_", exp.With(expressions=list(ctes)))
    return query
