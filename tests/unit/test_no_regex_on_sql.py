"""No regular expression reads SQL but the tokenizer's: who uses any is listed here with the reason."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "dpsql/client/install.py": "messages and the version of a server",
    "dpsql/client/report_charts.py": "SVG",
    "dpsql/query/lexer.py": "the tokenizer",
    "dpsql/relation.py": "single names, and modifiers of types",
    "dpsql/statistics/running.py": "strings of a finished statement, for a check before it is run",
    "dpsql/synthesis/plan_values.py": "numbers",
    "dpsql/synthesis/relinking.py": "numbers",
}


def imported(path: Path) -> set[str]:
    """List the modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_regular_expressions_are_where_they_are_listed() -> None:
    files = [*(ROOT / "dpsql").rglob("*.py")]
    users = {
        str(p.relative_to(ROOT)) for p in files if {"re", "regex", "sre_compile"} & imported(p)
    }
    assert users == set(ALLOWED)
