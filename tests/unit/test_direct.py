"""The tests' stand-in for the server's database has all that the catalogue calls."""

from __future__ import annotations

import ast
import inspect

from dpsql.server import catalog
from tests.direct import Direct


def test_all_that_the_catalogue_calls_is_there() -> None:
    called = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(catalog)))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "_database"
    }
    assert {"execute", "lock_members"} <= called
    assert not {name for name in called if not hasattr(Direct, name)}
