"""The engine's `Database` over a psycopg connection, for tests and benchmarks without a hook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.types.string import TextLoader


class Direct:
    """`dpsql.ports.Database`, and the locks of `SpiDatabase`, over a connection.

    All relations are on one server and nothing changes them meanwhile, so that nothing is locked
    and nothing is waited for.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        connection.adapters.register_loader("json", TextLoader)

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[object, ...]]:
        """Run one statement with ``$1 ...`` for parameters."""
        typed = re.sub(r"\$(\d+)", lambda m: f"{m[0]}::{parameters[int(m[1]) - 1][0]}", sql)
        cursor = psycopg.RawCursor(self.connection)
        return cursor.execute(typed, [v for _, v in parameters] or None).fetchall()

    def stream(self, sql: str, size: int) -> Iterator[list[tuple[object, ...]]]:
        """Run one statement; see `dpsql.ports.Database`."""
        rows = self.execute(sql)
        for first in range(0, len(rows), size):
            yield rows[first : first + size]

    def lock_members(self, relations: Any, *, before_rows: bool) -> None:
        """Take no lock."""

    def before_reading(self, relations: Any) -> None:
        """Refuse no relation."""

    def reads_shards(self, relations: Any) -> bool:
        """Return False: no relation is on another server."""
        return False

    def meet(
        self,
        relations: Any,
        check: Any,
        *,
        named: Any = (),
        by_steps: bool = False,
        charged: bool = False,
    ) -> None:
        """Wait for no server."""

    def at_one_moment(self, relations: Any, work: Any) -> Any:
        """Read at once."""
        return work()

    def tick(self) -> None:
        """Do nothing: nobody cancels."""
