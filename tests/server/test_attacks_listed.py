"""docs/attacks.md names a test that exists for every attack, and every attack of a spy has a row."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.server.test_attacks_by_spies import ATTACKS

TESTS = Path(__file__).resolve().parent.parent
PAGE = (TESTS.parent / "docs" / "attacks.md").read_text()
#: How many rows each part has.
ROWS = {"A": 14, "B": 4, "C": 2, "D": 12, "E": 20, "F": 15, "G": 14, "H": 14}
CASE = re.compile(r"\[([^\]]+)\](?!\()")
LISTED = {
    cells[1].strip(): cells[4]
    for cells in (line.split("|") for line in PAGE.splitlines() if line.startswith("| "))
    if re.fullmatch(r"[A-Z]\d+", cells[1].strip())
}


@cache
def functions(module: str) -> set[str]:
    """Return the names of the tests of files of that name."""
    return {
        node.name
        for path in TESTS.rglob(f"{module}.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_rows_are_numbered_one_after_the_other() -> None:
    """Two rows of one number would be one row of `LISTED`."""
    numbers = [cell.strip() for cell in re.findall(r"^\|( [A-Z]\d+ )\|", PAGE, re.MULTILINE)]
    assert numbers == [f"{part}{n}" for part, count in ROWS.items() for n in range(1, count + 1)]


def test_no_row_is_missing() -> None:
    assert set(LISTED) == {
        f"{part}{n}" for part, count in ROWS.items() for n in range(1, count + 1)
    }


@pytest.mark.parametrize("row", LISTED)
def test_a_row_names_tests_that_exist(row: str) -> None:
    named = re.findall(r"`(\w+)(?:::(\w+))?`", LISTED[row])
    cases = CASE.findall(LISTED[row])
    assert named or cases
    for module, function in named:
        assert functions(module), module
        assert not function or function in functions(module), f"{module}::{function}"
    assert set(cases) <= set(ATTACKS)


def test_every_attack_of_a_spy_has_a_row() -> None:
    assert set(ATTACKS) == {case for tests in LISTED.values() for case in CASE.findall(tests)}
