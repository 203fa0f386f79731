"""What the server says to a statement: its answer, or why not."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest


def say(connection: psycopg.Connection[Any], statement: str) -> str:
    """Return what a statement gives or why not, in words."""
    try:
        return str(connection.execute(statement).fetchall())
    except psycopg.Error as error:
        return f"{error.sqlstate} {error} {error.diag.message_detail}"


def refused(connection: psycopg.Connection[Any], statement: str) -> psycopg.Error:
    """Return the error of a statement that must fail."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement)
    return caught.value
