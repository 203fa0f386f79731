"""The Database port over plpy.

Every call runs in the snapshot of the statement that called the STABLE function
``dp.run``, so counts and boundaries come from one state of the database.
Text without parameters is planned by ``plpy.execute``, which may use parallel plans;
prepared statements may not (measured).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_TICK = "select 1"


class SpiDatabase:
    """`dpsql.ports.Database` inside the server."""

    def __init__(self, plpy: Any, statements: dict[str, Any]) -> None:
        self._plpy = plpy
        self._statements = statements

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        """Run one statement; see `dpsql.ports.Database`.

        Result columns must have distinct names: plpy gives rows as dictionaries.
        """
        if not parameters:
            return [tuple(row.values()) for row in self._plpy.execute(sql)]
        plan = self.plan(sql, tuple(kind for kind, _ in parameters))
        return [
            tuple(row.values()) for row in self._plpy.execute(plan, [v for _, v in parameters])
        ]

    def plan(self, sql: str, types: tuple[str, ...]) -> Any:
        """Prepare once per backend."""
        key = f"{sql}\x1f{types}"
        plan = self._statements.get(key)
        if plan is None:
            while len(self._statements) >= 256:
                self._statements.pop(next(iter(self._statements)))
            plan = self._statements[key] = self._plpy.prepare(sql, list(types))
        return plan

    def tick(self) -> None:
        """Let the server notice a cancel or a timeout (4 µs)."""
        self._plpy.execute(self.plan(_TICK, ()))

    def ledger_conninfo(self) -> str:
        """Return how to reach this very database as the ledger's role, over the unix socket."""
        from psycopg.conninfo import make_conninfo

        rows = self._plpy.execute(
            "select current_setting('unix_socket_directories') as d,"
            " current_setting('port') as p, current_database() as n"
        )
        directory = str(rows[0]["d"]).split(",")[0].strip().strip('"')
        return make_conninfo(
            "", host=directory, port=str(rows[0]["p"]), dbname=str(rows[0]["n"]), user="dp_ledger"
        )
