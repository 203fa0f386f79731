"""Wait for what another process does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg


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


def connected(database: Any, role: str) -> Any:
    """Connect; sessions that ended just before give their places back a moment later."""
    found: list[Any] = []

    def connects() -> bool:
        with suppress(psycopg.OperationalError):
            found.append(database.connect(role))
        return bool(found)

    wait_until(connects)
    return found[0]


def worked(pid: int) -> float | None:
    """Return the processor time of a backend in seconds, ``None`` when it has ended."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return None
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
