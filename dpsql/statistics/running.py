"""Run a counting statement: in bigint and, when a number does not fit, in numeric."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.ports import Database

OUT_OF_RANGE = "22003"


def run(database: Database, write: Callable[[bool], str]) -> list[tuple[object, ...]]:
    """Run what ``write`` returns; it is told whether to count in numeric."""
    try:
        return database.execute(write(False))
    except Exception as error:
        if getattr(error, "sqlstate", None) != OUT_OF_RANGE:
            raise
        return database.execute(write(True))
