"""No module of a package imports a name that another one keeps for itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["bench", "dpsql", "demo"])
def test_private_names_stay_in_their_modules(folder: str) -> None:
    files = [*(ROOT / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {node.module}.{name.name}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    ]
    assert files or folder == "demo"
    assert found == []
