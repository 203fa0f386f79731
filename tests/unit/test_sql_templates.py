"""Every constant text of SQL means to PostgreSQL's parser what its tree is written as."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from dpsql.sqltree import column, render, sql, table
from dpsql.sqltree.dialect import Server
from dpsql.sqltree.template import _read
from tests.server_parsed import parsed

PACKAGE = Path(__file__).parents[2] / "dpsql"
#: A text whose first argument is an expression (`dpsql.query.ir.template`).
OF_EXPRESSION = re.compile(r"(?<![:\w]):a\b")


def templates() -> Iterator[str]:
    """Yield the texts that the package's calls of `sql` are given, and those of expressions."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        called = "from dpsql.sqltree import" in source
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and OF_EXPRESSION.search(str(node.value)):
                if "``" not in str(node.value):
                    yield str(node.value)
            elif called and (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "sql"
            ):
                text = node.args[0]
                assert isinstance(text, ast.Constant), f"{path}:{node.lineno}: no constant text"
                yield str(text.value)


@pytest.mark.parametrize("text", sorted(set(templates())))
def test_a_template_is_written_as_it_reads(text: str) -> None:
    tree, (_, names) = sqlglot.parse_one(text, read=Server), _read(text)
    given: dict[str, exp.Expr] = {name: column("", f"given_{name}") for name in names}
    for source in tree.find_all(exp.Table):
        if isinstance(source.this, exp.Placeholder):
            given[source.this.name] = table(f"given_{source.this.name}")
    bare = re.sub(r"(?<!:):([a-z]\w*)", r"given_\1", text)
    assert parsed(render(sql(text, **given))) == parsed(bare)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(a IS NOT TRUE)", "(NOT a IS TRUE)"),
        ("now()", "CURRENT_TIMESTAMP"),
        ("btrim(a)", "TRIM(BOTH FROM a)"),
        ("'1'::float8", "'1'::numeric"),
        ("sum(a) OVER (ROWS UNBOUNDED PRECEDING)", "sum(a) OVER ()"),
    ],
)
def test_statements_of_two_meanings_are_told_apart(one: str, other: str) -> None:
    assert parsed(one) != parsed(other)
