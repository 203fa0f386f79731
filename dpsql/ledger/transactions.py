"""How the ledger's statements are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Row = tuple[str | None, ...]


class StatementFailed(Exception):
    """The server refused a statement and rolled it back."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Transactions(Protocol):
    """A session of the server that runs each statement of the ledger in a transaction of its own.

    Attributes
    ----------
    backend_start : str
        When the session's backend started: with its process ID, the name of who computes an answer.
    tick : callable
        Called at least every 20 ms while the ledger waits; raises to cancel.
    """

    backend_start: str
    tick: Callable[[], None]

    def call(self, name: str, sql: str, parameters: Sequence[str | None] = ()) -> list[Row]:
        """Run a statement, committed durably if it writes, and return its rows as texts.

        Raises
        ------
        StatementFailed
            The server refused the statement; nothing was committed.
        """
        ...

    def close(self) -> None:
        """End the session after its question; others may compute what it had begun."""
        ...
