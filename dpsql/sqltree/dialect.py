"""The dialect in which dpsql's statements are read and written: PostgreSQL's, with nothing guessed.

sqlglot translates between dialects: it knows functions by name and writes equivalent ones.  Here
a function keeps its name, a type its text, and a set operation its clauses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import ErrorLevel, exp
from sqlglot.dialects import Dialect
from sqlglot.dialects.postgres import Postgres
from sqlglot.generator import Generator
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser

from dpsql.sqltree.nodes import (
    Call,
    Infix,
    Operation,
    Quantified,
    Raw,
    Value,
    Written,
    filled,
)
from dpsql.sqltree.quick import WRITERS

_Write = PostgresGenerator


def literal(text: str) -> str:
    """Quote a string, read the same whatever standard_conforming_strings is."""
    found = "'" + text.replace("'", "''") + "'"
    return "E" + found.replace("\\", "\\\\") if "\\" in text else found


def _operation(write: _Write, node: Operation) -> str:
    left = write.sql(node, "this")
    return f"{left}{left and ' '}{node.args['operator']} {write.sql(node, 'expression')}"


def _quantified(write: _Write, node: Quantified) -> str:
    left, right = write.sql(node, "this"), write.sql(node, "expression")
    return f"{left} {node.args['operator']} {node.args['quantifier']} ({right})"


def _call(write: _Write, node: Call) -> str:
    """Write a call as it was read; PostgreSQL has no operand here that is not one word or call."""
    flags, form = node.flags, node.args.get("form")
    args = [write.sql(one) for one in node.expressions]
    name = node.name if form == "keyword" else write.sql(exp.to_identifier(node.name, quoted=True))
    if form == "EXTRACT":
        field = write.sql(exp.to_identifier(node.expressions[0].this.name, quoted=True))
        return f"EXTRACT({field} FROM {args[1]})"
    if form == "AT TIME ZONE":
        return f"{args[1]} AT TIME ZONE {args[0]}"
    if form == "IN":
        return f"POSITION({args[1]} IN {args[0]})"
    if form == "FROM":
        return f"SUBSTRING({' '.join(map(' '.join, zip(('', 'FROM', 'FOR'), args)))})"  # noqa: B905
    if form in ("BOTH", "LEADING", "TRAILING"):
        return f"TRIM({' '.join([form, *args[1:], 'FROM', args[0]])})"
    if "variadic" in flags:
        args[-1] = f"VARIADIC {args[-1]}"
    inside = "*" if "star" in flags else ", ".join(args)
    schema = node.schema and write.sql(exp.to_identifier(node.schema, quoted=True)) + "."
    where = f" FILTER (WHERE {write.sql(node, 'filter')})" if "filter" in flags else ""
    distinct = "DISTINCT " if "distinct" in flags else ""
    return f"{schema}{name}({distinct}{inside}){where}"


def _written(write: _Write, node: Written) -> str:
    return f"({write.sql(filled(node.this, node.expressions))})"


def _join(write: _Write, node: exp.Join) -> str:
    alias = node.args.get("using_alias")
    if not alias:
        return WRITERS[exp.Join](write, node)
    return f"{write.join_sql(node)} AS {write.sql(alias)}"


def _infix(writer: _Write, node: Infix) -> str:
    return f"{writer.sql(node, 'this')} {node.args['operator']} {writer.sql(node, 'expression')}"


def _unnest(writer: _Write, node: exp.Unnest) -> str:
    """Write UNNEST as it is: sqlglot looks for arrays of JSON, and changes the tree."""
    alias, offset = node.args.get("alias"), node.args.get("offset")
    if alias is not None and isinstance(offset, exp.Expr):
        alias = exp.TableAlias(this=alias.this, columns=[*alias.columns, offset])
    numbered = " WITH ORDINALITY" if offset else ""
    named = f" AS {writer.sql(alias)}" if alias is not None else ""
    return f"UNNEST({writer.expressions(node, flat=True)}){numbered}{named}"


class Server(Postgres):
    """PostgreSQL, as its server reads statements of dpsql."""

    #: Subscripts are what they are written as.
    INDEX_OFFSET = 0

    class Parser(PostgresParser):
        """Reads the constant texts of `dpsql.sqltree.sql`: all functions are calls by name."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS = {  # noqa: RUF012
            word: parse
            for word, parse in PostgresParser.FUNCTION_PARSERS.items()
            if word in ("CAST", "EXTRACT")
        }

    class Generator(PostgresGenerator):
        """Writes trees: names as they are, and types as they were given."""

        SET_OP_MODIFIERS = True
        MULTI_ARG_DISTINCT = True
        TRANSFORMS = {  # noqa: RUF012
            **PostgresGenerator.TRANSFORMS,
            **WRITERS,
            exp.Unnest: _unnest,
            Raw: lambda writer, node: writer.prepend_ctes(node, node.this),
            Infix: _infix,
            Value: lambda _, node: node.this,
            Operation: _operation,
            Quantified: _quantified,
            Call: _call,
            Written: _written,
            exp.Join: _join,
            exp.Literal: lambda _, node: literal(node.this) if node.is_string else node.this,
        }


def render(tree: exp.Expr) -> str:
    """Write a tree as one statement or expression of PostgreSQL.

    Raises
    ------
    sqlglot.errors.UnsupportedError
        When PostgreSQL has no form of a node.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEP))
    try:
        return _GENERATOR.generate(tree, copy=False)
    finally:
        sys.setrecursionlimit(before)


#: The generator calls itself several times for what recurses once where it was analysed; what
#: passed there must be written.
_DEEP = 10_000


def make_generator(dialect: Dialect) -> Generator:
    """Return what writes trees in a dialect.

    Raises
    ------
    ImportError
        When sqlglotc is installed: its compiled classes cannot be extended.
    """
    try:
        made: Generator = dialect.generator(
            normalize_functions=False, comments=False, unsupported_level=ErrorLevel.RAISE
        )
    except TypeError as error:
        raise ImportError(
            "the compiled parts of sqlglot cannot be extended by dpsql's dialect:"
            " run pip uninstall sqlglotc"
        ) from error
    return made


_GENERATOR = make_generator(Server())
