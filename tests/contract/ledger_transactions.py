"""The ledger's statements over a connection of psycopg, where no service session runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from dpsql.ledger.transactions import Row, StatementFailed

_START = "select backend_start::text from pg_stat_get_activity(pg_backend_pid())"


class Connection:
    """`dpsql.ledger.transactions.Transactions` of a superuser who became ``dp_ledger``."""

    def __init__(self, database: Any, **settings: str) -> None:
        self._database = database
        self._options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self.tick = lambda: None
        self._connect()

    def _connect(self) -> None:
        """Log in; like a service session, the backend is another one after it was ended."""
        self._connection = psycopg.connect(
            self._database.conninfo(), autocommit=True, options=self._options
        )
        row = self._connection.execute(_START).fetchone()
        assert row is not None
        self._connection.execute("set session authorization dp_ledger")
        self._start = str(row[0])

    @property
    def backend_start(self) -> str:
        if self._connection.closed:
            self._connect()
        return self._start

    def call(self, name: str, sql: str, parameters: Sequence[str | None] = ()) -> list[Row]:
        del name
        if self._connection.closed:
            self._connect()
        cursor = psycopg.RawCursor(self._connection)
        try:
            cursor.execute(sql, parameters)
        except psycopg.Error as error:
            raise StatementFailed(error.sqlstate or "") from error
        found = cursor.pgresult
        assert found is not None
        return [
            tuple(_text(found.get_value(row, column)) for column in range(found.nfields))
            for row in range(found.ntuples)
        ]

    def close(self) -> None:
        self._connection.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
