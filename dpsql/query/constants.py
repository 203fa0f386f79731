"""Constants: folding in the server, array literals, LIKE patterns."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Protocol

from dpsql import sqltree
from dpsql.errors import FunctionNotAllowed, InternalError, UnsupportedConstruct
from dpsql.query.ir import FALSE, TRUE, Expr, constant, tree
from dpsql.query.ranges import as_float
from dpsql.query.types import EXACT, FLOATS, INTEGERS, SIMPLE, TEXTS
from dpsql.relation import base
from dpsql.sqltree import Tree, render, sql

#: Characters of a LIKE pattern.
MAX_PATTERN = 10_000
#: Its wildcards: matching recurses for each % that a row's text matches (sql/hook/stack.c).
MAX_WILDCARDS = 256
_SAME_TEXT = (*INTEGERS, "numeric")
#: Digits of a number that Python reads at once.
MAX_DIGITS = 4000


class Evaluator(Protocol):
    """Evaluates one constant expression in the server, without any relation."""

    def evaluate(self, value: Tree) -> str | None:
        """Return its text under pinned settings."""
        ...

    def enum(self, type_name: str) -> tuple[str, ...] | None:
        """Return the labels of an enum type, ``None`` for any other type."""
        ...


def evaluation(value: Tree) -> str:
    """Write the statement that returns a constant expression's value as text."""
    return render(sql("SELECT :given::text", given=value))


def enum_labels(type_name: str, evaluator: Evaluator) -> tuple[str, ...] | None:
    """Return the labels of an enum type that may be used, ``None`` for any other type.

    Who answers may have no right on the schema of a type that the asker's statement names;
    looking such a type up would be an error instead of an answer.
    """
    if "." in type_name:
        usable = sql(
            "(SELECT pg_catalog.cardinality(p) < 2"
            " OR pg_catalog.has_schema_privilege(p[1], 'USAGE')"
            " FROM pg_catalog.parse_ident(:name, false) AS p)",
            name=sqltree.constant(type_name),
        )
        if evaluator.evaluate(usable) != "true":
            return None
    return evaluator.enum(type_name)


def fold(e: Expr, evaluator: Evaluator) -> Expr:
    """Replace an expression over constants by its value."""
    if e.kind == "const" or any(part.kind == "col" for part in e.walk()):
        return e
    if e.kind == "cast" and e.args[0].kind == "const":
        source = e.args[0]
        if source.data is None:
            return constant(e.type, None)
        widened = source.type in INTEGERS and e.type in _SAME_TEXT and e.data == e.type
        if widened and _SAME_TEXT.index(e.type) >= _SAME_TEXT.index(source.type):
            return constant(e.type, str(source.data))
        if source.type in TEXTS[:2] and e.type in TEXTS[:2] and e.data == e.type:
            return constant(e.type, str(source.data))
    # a cast of char(n) to text would drop the blanks at the end
    written = tree(e)
    if e.type == "bpchar":
        written = sql("pg_catalog.bpcharout(:e)", e=written)
    value = evaluator.evaluate(written)
    if e.type == "boolean" and value is not None:
        return TRUE if value == "true" else FALSE
    return constant(e.type, value)


def array_elements(type_name: str, text: str, evaluator: Evaluator) -> list[Expr]:
    """Take an array constant such as ``'{1,2}'::integer[]`` apart."""
    element = type_name.removesuffix("[]")
    if element.endswith("[]"):
        raise UnsupportedConstruct("arrays of more than one dimension are not supported")
    labels = None
    if base(element) not in SIMPLE:
        labels = enum_labels(element, evaluator)
        if not labels:
            raise FunctionNotAllowed(
                f"type {element} is not supported",
                hint="Use constants of PostgreSQL's own types or of enum types.",
            )
        # Read as texts: a literal of an array type is read by its element's code, and the name
        # could belong to another type by then.
        type_name = "text[]"
    given = sqltree.cast(sqltree.constant(text), type_name)
    listed = sql("pg_catalog.to_json(:given::text[])", given=given)
    found = json.loads(evaluator.evaluate(listed) or "null")
    if not isinstance(found, list) or any(isinstance(v, list) for v in found):
        raise UnsupportedConstruct("arrays of more than one dimension are not supported")
    if labels is not None and not set(found) <= {*labels, None}:
        raise InternalError("an array holds what is no label of its enum type")
    return [constant(element, v) for v in found]


def check_pattern(pattern: Expr, position: int) -> None:
    """Refuse a LIKE pattern that ends in a lone escape character.

    That is the only pattern on which LIKE raises an error, and it does so only on rows
    that match as far as the end: a data-dependent error (PRIVACY.md section 2).
    """
    if pattern.kind != "const":
        raise UnsupportedConstruct(
            "LIKE with a pattern that is not constant is not supported",
            hint="Write the pattern as a constant: name LIKE 'a%'.",
            position=position,
        )
    text = "" if pattern.data is None else str(pattern.data)
    if len(text) > MAX_PATTERN:
        raise UnsupportedConstruct(
            f"a LIKE pattern may have at most {MAX_PATTERN} characters",
            hint="Write a shorter pattern.",
            position=position,
        )
    if text.count("%") > MAX_WILDCARDS:
        raise UnsupportedConstruct(
            f"a LIKE pattern may have at most {MAX_WILDCARDS} wildcards %",
            hint="Write a pattern with fewer of them.",
            position=position,
        )
    trailing = len(text) - len(text.rstrip("\\"))
    if trailing % 2:
        raise UnsupportedConstruct(
            "a LIKE pattern must not end with an escape character",
            hint="Double the backslash to match one.",
            position=position,
        )


def integer_value(e: Expr) -> int:
    """Return the value of an integer constant."""
    if e.kind != "const" or e.data is None or e.type not in INTEGERS:
        raise InternalError("an integer constant was expected")
    return int(str(e.data))


def number(e: Expr) -> Fraction | None:
    """Return the value of a finite numeric constant, exactly; ``None`` for everything else."""
    text = str(e.data)
    if e.data is None or e.type not in (*EXACT, *FLOATS) or len(text) > MAX_DIGITS:
        return None
    if text.lower().lstrip("-") in ("nan", "infinity"):
        return None
    value = Fraction(text)
    return as_float(value, e.type) if e.type in FLOATS else value
