"""Typed expressions over the columns of occurrences: what the analyser builds and renders.

Everything in this form is allowed and total: it cannot raise an error on any row
(PRIVACY.md section 2), because :mod:`dpsql.query.functions` adds a guard while building
wherever PostgreSQL's own function is partial.  SQL for the server is only ever made of it
here, with explicit casts, so its meaning does not depend on a parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from string import ascii_lowercase
from typing import cast

from sqlglot import exp

from dpsql import sqltree
from dpsql.errors import InternalError
from dpsql.expression import Expr as Expr
from dpsql.relation import Column, base, quote_identifier
from dpsql.sqltree import Tree, all_of, closed, infix, join_all, name, number, raw

#: The names of a template's arguments.
_ARGUMENTS = ascii_lowercase


def template(type_: str, text: str, *args: Expr) -> Expr:
    """Make an expression of a constant text of `dpsql.sqltree.sql`, and of ``:a``, ``:b``, ...."""
    return Expr("sql", type_, args, text)


#: The system column that tells in which part a row is.
TABLEOID = "tableoid"
TRUE = Expr("const", "boolean", data="t")
FALSE = Expr("const", "boolean", data="f")
#: Conditions that say nothing, and that nothing meets.
ALWAYS = template("boolean", "true")
NEVER = template("boolean", "false")


def column(occurrence: int, name: str, type_: str, full_type: str, not_null: bool) -> Expr:
    """Make a column reference; ``full_type`` has the type modifier."""
    return Expr("col", type_, data=(occurrence, name, not_null, full_type))


def column_of(occurrence: int, found: Column, not_null: bool) -> Expr:
    """Make a reference to a column of a relation; a domain is replaced by its base type."""
    made = column(occurrence, found.name, base(found.type_name), found.type_name, not_null)
    return Expr("col", made.type, data=(*made.data, True)) if found.domain else made  # type: ignore[misc]


def constant(type_: str, text: str | None) -> Expr:
    """Make a typed constant."""
    return Expr("const", type_, data=text)


def conjuncts(expression: Expr) -> Iterator[Expr]:
    """Take AND apart; a row is kept iff all parts are true, so this loses nothing."""
    if expression.kind == "and":
        for argument in expression.args:
            yield from conjuncts(argument)
    else:
        yield expression


def map_columns(expression: Expr, replace: Callable[[Expr], Expr]) -> Expr:
    """Rebuild with every column reference replaced."""
    if expression.kind == "col":
        return replace(expression)
    if not expression.args:
        return expression
    args = tuple(map_columns(a, replace) for a in expression.args)
    return Expr(expression.kind, expression.type, args, expression.data)


def renumber(expression: Expr, numbers: dict[int, int]) -> Expr:
    """Give occurrences new numbers."""

    def replace(col: Expr) -> Expr:
        occurrence, *rest = cast("tuple[int, str, bool, str]", col.data)
        return Expr("col", col.type, data=(numbers[occurrence], *rest))

    return map_columns(expression, replace)


def decimal(number: Fraction | int, digits: int = 0) -> str:
    """Write ``number * 10**-digits``, which must have a finite decimal expansion.

    Zeros stand up to that digit, as numeric prints a number of this scale.
    """
    while number.denominator != 1:
        number, digits = number * 10, digits + 1
    sign = "-" if number < 0 else ""
    text = str(abs(number.numerator)).rjust(digits + 1, "0")
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)


def alias_of(occurrence: int | str) -> str:
    """Name an occurrence in SQL; the empty string is any."""
    return f"r{occurrence}"


def tree(expression: Expr) -> Tree:
    """Write an expression as a tree, columns over ``r<i>`` and attributes as ``a<i>``."""
    return _TREES[expression.kind](expression)


def render(expression: Expr) -> str:
    """Write an expression as SQL that may stand anywhere: in parentheses, if it must be."""
    return sqltree.render(closed(tree(expression)))


def _col(e: Expr) -> Tree:
    occurrence, own, *_ = cast("tuple[int, str, bool, str]", e.data)
    # a system column is one by its bare name, and no column of a user has it
    shown = sqltree.column(alias_of(occurrence), own if own == TABLEOID else quote_identifier(own))
    # COALESCE and CASE would keep the domain, and enum operators do not take it
    return sqltree.cast(shown, e.type) if e.data[4:] else shown  # type: ignore[index]


def _const(e: Expr) -> Tree:
    return constant_tree(e.type, None if e.data is None else str(e.data))


def constant_tree(type_: str, text: str | None) -> Tree:
    """Write a constant.

    One of a type that is not built in is written as a cast of a text: a literal is read, by code
    of whatever the name means by then, before anybody can look at the analysed statement.
    """
    from dpsql.query.types import SIMPLE

    shown = sqltree.constant(text)
    if base(type_) not in SIMPLE:
        shown = sqltree.cast(shown, "pg_catalog.text")
    return sqltree.cast(shown, type_)


def _literal(e: Expr) -> Tree:
    if isinstance(e.data, int):
        return number(e.data)
    return sqltree.cast(sqltree.constant(str(e.data)), e.type)


_OPERATORS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "%": exp.Mod,
    "||": exp.DPipe,
}


def _op(e: Expr) -> Tree:
    operator, *operands = str(e.data), *map(closed, map(tree, e.args))
    if len(operands) == 1:
        if operator != "-":
            raise InternalError(f"an expression has a sign {operator}")
        return exp.Neg(this=operands[0])
    left, right = operands
    made = _OPERATORS.get(operator)
    return infix(left, operator, right) if made is None else made(this=left, expression=right)


def _fn(e: Expr) -> Tree:
    called = exp.Anonymous(this=quote_identifier(str(e.data)), expressions=[*map(tree, e.args)])
    return exp.Dot(this=name("pg_catalog"), expression=called)


def _narrow(e: Expr) -> Tree:
    type_, operator, low, high = cast("tuple[str, str, str, str]", e.data)
    inner = tree(e.args[0])
    least, most = (sqltree.cast(sqltree.constant(end), type_) for end in (low, high))
    above = _OPERATORS[operator](this=closed(inner), expression=least)
    below = exp.LT(this=closed(inner), expression=most)
    inside = exp.And(this=above, expression=below)
    return exp.Case(ifs=[exp.If(this=inside, true=sqltree.cast(inner, e.type))])


def _is(e: Expr) -> Tree:
    *negated, word = str(e.data).split(" ")
    what = {"NULL": exp.Null(), "TRUE": exp.true(), "FALSE": exp.false()}.get(word) or raw(word)
    return exp.Is(this=closed(tree(e.args[0])), expression=what, negate=bool(negated))


def _distinct(e: Expr) -> Tree:
    left, right = map(closed, map(tree, e.args))
    return exp.NullSafeNEQ(this=left, expression=right)


def _in(e: Expr) -> Tree:
    value, *listed = map(tree, e.args)
    word, made = ("ALL", exp.NEQ) if e.data else ("ANY", exp.EQ)
    array = exp.Array(expressions=listed)
    return made(this=closed(value), expression=exp.Anonymous(this=word, expressions=[array]))


def _case(e: Expr) -> Tree:
    *pairs, last = map(tree, e.args)
    whens = [exp.If(this=pairs[i], true=pairs[i + 1]) for i in range(0, len(pairs), 2)]
    return exp.Case(ifs=whens, default=last)


def _guard(e: Expr) -> Tree:
    condition, value = map(tree, e.args)
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def _place(e: Expr) -> Tree:
    value, *listed = map(tree, e.args)
    return exp.Case(
        this=value, ifs=[exp.If(this=one, true=number(i)) for i, one in enumerate(listed)]
    )


def _call(e: Expr) -> Tree:
    return exp.Anonymous(this=e.kind.upper(), expressions=[*map(tree, e.args)])


def _extract(e: Expr) -> Tree:
    return exp.Extract(this=exp.Var(this=str(e.data)), expression=tree(e.args[0]))


def _collate(e: Expr) -> Tree:
    collation = raw(".".join(map(quote_identifier, e.data)))  # type: ignore[call-overload]
    return exp.Collate(this=closed(tree(e.args[0])), expression=collation)


_TREES: dict[str, Callable[[Expr], Tree]] = {
    "col": _col,
    "const": _const,
    "literal": _literal,
    "op": _op,
    "fn": _fn,
    "cast": lambda e: sqltree.cast(tree(e.args[0]), str(e.data)),
    "narrow": _narrow,
    "and": lambda e: cast("Tree", all_of([*map(tree, e.args)])),
    "or": lambda e: cast("Tree", join_all(exp.Or, [*map(tree, e.args)])),
    "not": lambda e: exp.Not(this=closed(tree(e.args[0]))),
    "named": lambda e: name(str(e.data)),
    "is": _is,
    "distinct": _distinct,
    "in": _in,
    "place": _place,
    "case": _case,
    "guard": _guard,
    "coalesce": _call,
    "greatest": _call,
    "least": _call,
    "nullif": _call,
    "extract": _extract,
    "collate": _collate,
    "array": lambda e: exp.Array(expressions=[*map(tree, e.args)]),
    "attribute": lambda e: sqltree.column("", f"a{e.data}"),
    "output": lambda e: sqltree.column(*cast("tuple[str, str]", e.data)),
    "sql": lambda e: sqltree.sql(
        str(e.data), **dict(zip(_ARGUMENTS, map(tree, e.args), strict=False))
    ),
    "tree": lambda e: cast("Tree", e.data),
}
