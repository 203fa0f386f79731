"""A function that is marked safe for parallel workers calls none that is not."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytestmark = pytest.mark.server

FUNCTIONS = """
select p.oid::regprocedure::text, p.proname, p.proparallel::text, p.prosrc
  from pg_proc as p join pg_language as l on l.oid = p.prolang
 where p.pronamespace = 'dp'::regnamespace and l.lanname in ('sql', 'plpgsql')
"""
ORDER = "sru"


def _calls(source: str) -> set[str]:
    """Names behind "dp." that are called; hints and statements in strings call nothing."""
    source = re.sub(r"--[^\n]*|'(?:[^']|'')*'", " ", source)
    return set(re.findall(r"\bdp\.(\w+)\s*\(", source))


def test_no_function_is_marked_safer_than_what_it_calls(database: Any) -> None:
    marks: dict[str, str] = {}
    for name, mark in database.sql(
        "select proname, proparallel::text from pg_proc where pronamespace = 'dp'::regnamespace"
    ):
        marks[name] = max(marks.get(name, "s"), mark, key=ORDER.index)
    functions = database.sql(FUNCTIONS)
    wrong = [
        (shown, mark, callee, marks[callee])
        for shown, name, mark, source in functions
        for callee in sorted(_calls(source) & marks.keys() - {name})
        if ORDER.index(marks[callee]) > ORDER.index(mark)
    ]  # fmt: skip
    assert len(functions) > 200
    assert not wrong, "\n".join(map(str, wrong))
