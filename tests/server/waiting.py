"""Wait for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Poll until ``condition`` holds; fail when it does not in time.

    The limit is for a busy machine: what is waited for takes less than a second on an idle one.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def waits(database: Any) -> bool:
    """Whether somebody waits for a lock in a database."""
    asked = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
        " where not granted and datname = %s"
    )
    return bool(database.sql(asked, database.name)[0][0])
