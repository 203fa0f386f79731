"""The ledger's own connection: cancellable, strict, re-made when it broke between calls.

Made from inside a backend, so nothing here may block for longer than a tick: every wait is a
poll of at most ``TICK_MS`` followed by ``tick()``, where the server can cancel the query.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.ledger.refusals import unavailable

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

TICK_MS = 20
#: How long a statement may take to end after it was cancelled.
STOP_SECONDS = 5.0
SETTINGS = {
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "15s",
    # The server ends a connection that idles; dp.ledger_open suspends this while one computes.
    "idle_session_timeout": "60s",
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "search_path": "pg_catalog,pg_temp",
    "client_min_messages": "error",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # every lookup is by a key, and planning it again costs more than it does
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "timezone": "UTC",
    "datestyle": "ISO,MDY",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on",
}
_IDLE = "57P05"  # idle_session_timeout
_WHO = """
select session_user::text = 'dp_ledger' and not r.rolsuper, d.oid::text, a.backend_start::text
  from pg_catalog.pg_roles as r, pg_catalog.pg_database as d,
       pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) as a
 where r.rolname = session_user and d.datname = pg_catalog.current_database()
"""

Row = tuple[str | None, ...]


class ConnectionBroken(Exception):
    """The connection broke after a statement was sent: whether it committed is unknown."""


class _EndedIdle(ConnectionBroken):
    """The server ended the idle connection just when it was needed."""


class _StillRuns(Exception):
    """A cancelled statement did not end in time."""


class StatementFailed(Exception):
    """The server refused a statement and rolled it back."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def conninfo(place: Mapping[str, str]) -> str:
    """Return a connection string for ``host``, ``port``, ``dbname`` and ``user``, quoted."""
    from psycopg.conninfo import make_conninfo

    return make_conninfo("", **place)


class LedgerConnection:
    """A lazily made connection as the role ``dp_ledger``.

    Parameters
    ----------
    conninfo : str
        How to reach the database; the role must be ``dp_ledger``.
    tick : callable
        Called at least every 20 ms while waiting; may raise to cancel.
    database_oid : int, optional
        OID of the database that must be reached.
    connect_timeout : float
        Seconds.
    settings : mapping
        The session's settings.
    """

    def __init__(
        self,
        conninfo: str,
        tick: Callable[[], None],
        *,
        database_oid: int | None = None,
        connect_timeout: float = 5.0,
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        self.tick = tick
        self.backend_start = ""
        self._conninfo = conninfo
        self._database_oid = database_oid
        self._connect_timeout = connect_timeout
        self._settings = settings
        self._connection: PGconn | None = None
        self._prepared: set[str] = set()

    def call(
        self,
        name: str,
        sql: str,
        parameters: Sequence[str | None] = (),
        undo: Callable[[list[Row]], None] | None = None,
    ) -> list[Row]:
        """Run a statement, which is prepared under ``name`` once, and return its rows as texts.

        If the asker is cancelled, the statement is cancelled as well.  If it committed before that,
        ``undo`` is called with its rows, and makes a new connection if it needs one.

        Raises
        ------
        LedgerUnavailable
            There is no connection; nothing was sent.
        StatementFailed
            The server refused the statement; nothing was committed.
        ConnectionBroken
            The connection ended before an answer came.
        """
        try:
            return self._call(name, sql, parameters, undo)
        except _EndedIdle:
            # The server was waiting for a statement when it left, so it ran none.
            return self._call(name, sql, parameters, undo)

    def _call(
        self,
        name: str,
        sql: str,
        parameters: Sequence[str | None],
        undo: Callable[[list[Row]], None] | None,
    ) -> list[Row]:
        from psycopg import OperationalError

        connection, sent = self._ready(), False
        values = [None if value is None else value.encode() for value in parameters]
        try:
            if name not in self._prepared:
                connection.send_prepare(name.encode(), sql.encode())
                self._collect(connection)
                self._prepared.add(name)
            connection.send_query_prepared(name.encode(), values)
            sent = True
            return _rows(self._collect(connection))
        except StatementFailed as error:
            if error.sqlstate.startswith("57P"):
                # Told to go while the answer was due: the commit may have come first.
                self.close()
                broken = _EndedIdle if error.sqlstate == _IDLE else ConnectionBroken
                raise broken(error.sqlstate) from None
            raise
        except OperationalError as error:
            self.close()
            raise ConnectionBroken(str(error)) from None
        except BaseException:
            rows = self._abandon(connection, wait=sent and undo is not None)
            if rows is not None and undo is not None:
                undo(rows)
            raise

    def connect(self) -> None:
        """Make the connection unless there is one."""
        self._ready()

    def close(self) -> None:
        """Drop the connection; the server's side ends and gives up what it held."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.finish()

    def _ready(self) -> PGconn:
        if self._connection is not None and not _usable(self._connection):
            self.close()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> PGconn:
        from psycopg import OperationalError, pq
        from psycopg.conninfo import make_conninfo

        options = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        conninfo = make_conninfo(
            self._conninfo,
            options=options,
            application_name="dpsql_ledger",
            client_encoding="UTF8",
        )
        deadline = time.monotonic() + self._connect_timeout
        connection = pq.PGconn.connect_start(conninfo.encode())
        try:
            while (status := connection.connect_poll()) != pq.PollingStatus.OK:
                if status == pq.PollingStatus.FAILED:
                    raise unavailable(
                        _reason(connection.error_message),
                        "Ask again later; if it stays so, the administrator must look at"
                        " max_connections and at the authentication of the role dp_ledger.",
                    )
                reading = status == pq.PollingStatus.READING
                self._wait(connection.socket, select.POLLIN if reading else select.POLLOUT)
                if time.monotonic() > deadline:
                    raise unavailable("Connecting took too long.", "Ask again later.")
            connection.nonblocking = 1
            connection.send_query(_WHO.encode())
            ((is_ledger, oid, start),) = _rows(self._collect(connection))
        except (OperationalError, StatementFailed):
            connection.finish()
            raise unavailable("The connection was refused.", "Ask again later.") from None
        except BaseException:
            connection.finish()
            raise
        if is_ledger != "t" or (self._database_oid is not None and oid != str(self._database_oid)):
            connection.finish()
            raise unavailable(
                "Its connection reached another role or another database.",
                "The administrator must run dpsql install again.",
            )
        self.backend_start = start or ""
        self._prepared = set()
        return connection

    def _wait(self, socket: int, event: int) -> None:
        poller = select.poll()  # select.select cannot take the high descriptors of a busy backend
        poller.register(socket, event)
        if not poller.poll(TICK_MS):
            self.tick()

    def _collect(self, connection: PGconn) -> PGresult | None:
        """Return the last result of what was sent; raise its error after reading all of it."""
        from psycopg import OperationalError, pq

        while connection.flush():
            self._wait(connection.socket, select.POLLIN | select.POLLOUT)
            connection.consume_input()
        last: PGresult | None = None
        failed: StatementFailed | None = None
        while True:
            while connection.is_busy():
                self._wait(connection.socket, select.POLLIN)
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                break
            if result.status == pq.ExecStatus.FATAL_ERROR:
                state = result.error_field(pq.DiagnosticField.SQLSTATE)
                if state is None:
                    raise OperationalError("the connection ended")
                failed = StatementFailed(state.decode())
                if failed.sqlstate.startswith("57P"):
                    raise failed  # the server's goodbye: nothing comes after it
            last = result
        if failed is not None:
            raise failed
        return last

    def _abandon(self, connection: PGconn, *, wait: bool) -> list[Row] | None:
        """Cancel a statement and disconnect; with ``wait``, return its rows if it committed."""
        from psycopg import Error

        deadline = time.monotonic() + STOP_SECONDS

        def check() -> None:
            if time.monotonic() > deadline:
                raise _StillRuns

        tick, self.tick = self.tick, check
        try:
            connection.get_cancel().cancel()
            # the server runs no statement that was not sent completely
            if wait and not connection.flush():
                return _rows(self._collect(connection))
        except (Error, StatementFailed, _StillRuns):
            pass  # it is over already, or the server is gone
        finally:
            self.tick = tick
            self.close()
        return None


def _usable(connection: PGconn) -> bool:
    """Whether an idle connection still lives: an idle one has nothing to say but goodbye."""
    from psycopg import OperationalError, pq

    if connection.status != pq.ConnStatus.OK:
        return False
    poller = select.poll()
    poller.register(connection.socket, select.POLLIN)
    while poller.poll(0):
        try:
            connection.consume_input()
        except OperationalError:
            return False
        if connection.status != pq.ConnStatus.OK:
            return False
    return True


def _rows(result: PGresult | None) -> list[Row]:
    if result is None:
        return []
    return [
        tuple(
            None if (value := result.get_value(row, column)) is None else value.decode()
            for column in range(result.nfields)
        )
        for row in range(result.ntuples)
    ]


def _reason(message: bytes) -> str:
    """Return what the server said, without the socket's path."""
    text = message.decode(errors="replace").strip().splitlines()
    said = text[-1].rpartition("FATAL:")[2].strip() if text else ""
    return f"Connecting failed: {said}." if said else "Connecting failed."
