"""The ledger's statements in a service session, which commits for itself (PRIVACY.md section 7).

What writes the ledger is a transaction of its own, READ COMMITTED because it waits for locks; what
reads protected rows is the next one, in one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from dpsql.ledger.transactions import Row, StatementFailed
from dpsql.server.spi import sqlstate
from dpsql.sqltree import raw, render, sql, subquery

if TYPE_CHECKING:
    from dpsql.server.spi import SpiDatabase

#: The number of columns that each statement returns, if it is not one.
_COLUMNS = {"peek": 3, "outlook": 14, "open": 14, "purge": 2}
_READING = frozenset({"peek", "outlook"})
_PHASE = "select dp.serve_phase($1) is null as done"
_START = "select backend_start::text as start from pg_stat_get_activity(pg_backend_pid())"


class OwnTransactions:
    """`dpsql.ledger.transactions.Transactions` of the session itself."""

    def __init__(self, plpy: Any, database: SpiDatabase) -> None:
        self._plpy = plpy
        self.database = database
        self.backend_start = str(database.execute(_START)[0][0])
        self.tick: Callable[[], None] = database.tick

    def close(self) -> None:
        """End the session after its question: others do not wait for what it gave up then."""
        self.database.execute("select dp.end_service() is null as done")

    def call(self, name: str, sql: str, parameters: Sequence[str | None] = ()) -> list[Row]:
        """Run a statement of the ledger, committed if it writes.

        A cancel comes before the commit, or after it in what is computed then: nothing has to be
        undone here.

        Raises
        ------
        StatementFailed
            The server refused the statement; nothing was committed.
        """
        writes = name not in _READING
        if writes:
            self._end_reading(charged=name != "open")
        try:
            rows = self._run(name, sql, parameters)
        except self._plpy.SPIError as error:
            if writes:
                self._plpy.rollback()
                self._next()
            if sqlstate(error).startswith("57"):
                raise
            raise StatementFailed(sqlstate(error)) from None
        if writes:
            self._next()
        return rows

    def _run(self, name: str, sql: str, parameters: Sequence[str | None]) -> list[Row]:
        text = _named(sql, _COLUMNS.get(name, 1))
        found = self.database.execute(text, [("text", value) for value in parameters])
        return [tuple(_text(value) for value in row) for row in found]

    def _end_reading(self, *, charged: bool) -> None:
        """Begin the transaction that writes.

        What was read has nothing to commit.  Another server that is gone cannot say so, which
        matters before the charge only.
        """
        try:
            self._next(writes=True)
        except self._plpy.SPIError as error:
            if not charged or sqlstate(error).startswith("57"):
                raise

    def _next(self, *, writes: bool = False) -> None:
        """Commit, and begin the next transaction."""
        self.database.execute(_PHASE, [("bool", writes)])
        self._plpy.commit()


@cache
def _named(text: str, columns: int) -> str:
    """Write a statement of the ledger with names for its columns."""
    found = subquery(raw(text), "q", [f"c{number}" for number in range(columns)])
    return render(sql("SELECT q.* FROM :found", found=found))


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return str(value)
