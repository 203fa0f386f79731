"""Parts of relations on other servers: one moment for all, and whose fault it was (docs/shards.md).

What another server says can hold values of its rows, so nothing of it is told (PRIVACY.md
section 2): an error after the charge names the server where its connection is gone, which
depends on no row, and is PD900 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from dpsql.errors import DpsqlError, ShardFailed, UnsupportedConstruct

T = TypeVar("T")
#: Runs a statement that calls, below it, the work that it was given (`Session.wait`).
Wait = Callable[[str, Callable[[], Any]], Any]


class _Execute(Protocol):
    def __call__(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]: ...


class Shards:
    """What one call of ours reads of other servers."""

    def __init__(self, execute: _Execute, wait: Wait) -> None:
        self._execute = execute
        self._wait = wait
        self._found: dict[tuple[int, ...], list[int] | None] = {}
        #: Whether other servers were read, whose errors say what they like.
        self.read_any = False

    def meet(self, relations: Sequence[int], check: Callable[[], None]) -> None:
        """Take snapshots of one moment on all servers that hold parts, and here.

        Before the charge; a server that cannot be read is named (sql/hook/shards.c).
        """
        together = self._together(relations)
        if together is None:
            return
        given = [("oid[]", list(relations)), ("oid[]", together)]
        self._execute("select dp.meet_shards($1, $2) as met", given)
        if together:
            # the moment can be that of an earlier question: what is declared was so then
            self._in_snapshots(check)

    def any(self, relations: Sequence[int]) -> bool:
        """Whether some of these relations are, in part, on other servers."""
        return self._together(relations) is not None

    def read(self, relations: Sequence[int], work: Callable[[], T]) -> T:
        """Read, as of that moment where relations need one."""
        together = self._together(relations)
        if together is None:
            return work()
        self.read_any = True
        try:
            return self._in_snapshots(work) if together else work()
        except Exception as error:
            failed = None if _passes(error) else self._failed(relations)
            if failed is None:
                raise
            raise ShardFailed(
                f'server "{failed}", which holds parts of a relation, failed while it was read'
            ) from error

    def require_none(self, relations: Sequence[int]) -> None:
        """Refuse relations that are read as of one moment for what cannot do that."""
        if self._together(relations):
            raise UnsupportedConstruct(
                "a relation has parts on several servers, whose rows only questions read together",
                hint="Ask without stored statistics and sketches.",
            )

    def _in_snapshots(self, work: Callable[[], T]) -> T:
        found: list[T] = []
        failed: list[Exception] = []

        def kept() -> None:
            try:
                found.append(work())
            except Exception as error:  # noqa: BLE001 - raised below, as what it is
                failed.append(error)

        self._wait("select dp.read_together() as done", kept)
        if failed:
            raise failed[0]
        return found[0]

    def _together(self, relations: Sequence[int]) -> list[int] | None:
        """Return the relations that need one moment; ``None``: nothing is on other servers."""
        key = tuple(relations)
        if key not in self._found:
            sql = "select far, together::int8[] as together from dp.shards_of($1)"
            ((far, together),) = self._execute(sql, [("oid[]", list(relations))])
            oids = together if isinstance(together, list) else []
            self._found[key] = [int(oid) for oid in oids] if far else None
        return self._found[key]

    def _failed(self, relations: Sequence[int]) -> str | None:
        given = [("oid[]", list(relations))]
        ((server,),) = self._execute("select dp.failed_shard($1) as server", given)
        return None if server is None else str(server)


def _passes(error: Exception) -> bool:
    """Tell what is no other server's fault: a cancel, or an answer of ours."""
    from dpsql.server.spi import sqlstate

    return isinstance(error, DpsqlError) or sqlstate(error)[:2] in ("57", "40")
