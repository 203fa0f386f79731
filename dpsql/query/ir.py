"""Typed expressions over the columns of occurrences: what the analyser builds and renders.

Everything in this form is allowed and total: it cannot raise an error on any row
(PRIVACY.md section 2), because :mod:`dpsql.query.functions` adds a guard while building
wherever PostgreSQL's own function is partial.  SQL text for the server is only ever
rendered from here, with explicit casts, so its meaning does not depend on a parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import cast

from dpsql.expression import Expr as Expr
from dpsql.relation import Column, base, quote_identifier

#: The system column that tells in which part a row is.
TABLEOID = "tableoid"
TRUE = Expr("const", "boolean", data="t")
FALSE = Expr("const", "boolean", data="f")
#: Conditions that say nothing, and that nothing meets.
ALWAYS = Expr("sql", "boolean", data="true")
NEVER = Expr("sql", "boolean", data="false")


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


def literal(text: str) -> str:
    """Quote a string so that it reads the same whatever standard_conforming_strings is."""
    quoted = "'" + text.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


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


def render(expression: Expr) -> str:
    """Write an expression as SQL, columns over ``r<i>`` and attributes as ``a<i>``."""
    return _RENDER[expression.kind](expression)


def _col(e: Expr) -> str:
    occurrence, name, *_ = cast("tuple[int, str, bool, str]", e.data)
    # stored answers are found by texts that have the system column bare
    shown = f"{alias_of(occurrence)}.{name if name == TABLEOID else quote_identifier(name)}"
    # COALESCE and CASE would keep the domain, and enum operators do not take it
    return f"CAST({shown} AS {e.type})" if e.data[4:] else shown  # type: ignore[index]


def _const(e: Expr) -> str:
    return written_constant(e.type, None if e.data is None else str(e.data))


def written_constant(type_: str, text: str | None) -> str:
    """Write a constant.

    One of a type that is not built in is written as a cast of a text: a literal is read, by code
    of whatever the name means by then, before anybody can look at the analysed statement.
    """
    shown = "NULL" if text is None else literal(text)
    from dpsql.query.types import SIMPLE

    if base(type_) in SIMPLE:
        return f"{shown}::{type_}"
    return f"({shown}::pg_catalog.text)::{type_}"


def _op(e: Expr) -> str:
    if len(e.args) == 1:
        return f"({e.data} {render(e.args[0])})"
    return f"({render(e.args[0])} {e.data} {render(e.args[1])})"


def _fn(e: Expr) -> str:
    return f"pg_catalog.{quote_identifier(str(e.data))}({', '.join(map(render, e.args))})"


def _cast(e: Expr) -> str:
    return f"CAST({render(e.args[0])} AS {e.data})"


def _narrow(e: Expr) -> str:
    low, high = cast("tuple[str, str]", e.data)
    inner = render(e.args[0])
    return f"CASE WHEN {inner} {low} AND {inner} {high} THEN CAST({inner} AS {e.type}) END"


def _joined(word: str) -> Callable[[Expr], str]:
    return lambda e: "(" + f" {word} ".join(map(render, e.args)) + ")"


def _in(e: Expr) -> str:
    values = ", ".join(map(render, e.args[1:]))
    word = "<> ALL" if e.data else "= ANY"
    return f"({render(e.args[0])} {word} (ARRAY[{values}]))"


def _case(e: Expr) -> str:
    *pairs, last = map(render, e.args)
    whens = " ".join(f"WHEN {pairs[i]} THEN {pairs[i + 1]}" for i in range(0, len(pairs), 2))
    return f"CASE {whens} ELSE {last} END"


def _call(word: str) -> Callable[[Expr], str]:
    return lambda e: f"{word}({', '.join(map(render, e.args))})"


_RENDER: dict[str, Callable[[Expr], str]] = {
    "col": _col,
    "const": _const,
    "op": _op,
    "fn": _fn,
    "cast": _cast,
    "narrow": _narrow,
    "and": _joined("AND"),
    "or": _joined("OR"),
    "not": lambda e: f"(NOT {render(e.args[0])})",
    "named": lambda e: str(e.data),
    "is": lambda e: f"({render(e.args[0])} IS {e.data})",
    "distinct": _joined("IS DISTINCT FROM"),
    "in": _in,
    "case": _case,
    "guard": lambda e: f"CASE WHEN {render(e.args[0])} THEN {render(e.args[1])} END",
    "coalesce": _call("COALESCE"),
    "greatest": _call("GREATEST"),
    "least": _call("LEAST"),
    "nullif": _call("NULLIF"),
    "extract": lambda e: f"EXTRACT({e.data} FROM {render(e.args[0])})",
    "collate": lambda e: (
        f"({render(e.args[0])} COLLATE {'.'.join(map(quote_identifier, e.data))})"  # type: ignore
    ),
    "array": lambda e: f"ARRAY[{', '.join(map(render, e.args))}]",
    "attribute": lambda e: f"a{e.data}",
    "sql": lambda e: str(e.data).format(*map(render, e.args)) if e.args else str(e.data),
}
