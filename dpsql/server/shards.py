"""Parts of relations on other servers: one moment for all, and whose fault it was (docs/shards.md).

What another server says can hold values of its rows, so nothing of it is told (PRIVACY.md
section 2): an error after the charge names the server where its connection is gone, which
depends on no row, and is PD900 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from dpsql.errors import (
    ChangedWhileRead,
    DeclarationsChanged,
    DpsqlError,
    InternalError,
    ReleaseFailed,
    ShardFailed,
    ShardUnavailable,
    UnsupportedConstruct,
)

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
        self._steps: dict[tuple[int, ...], bool] = {}
        self._met: set[tuple[int, ...]] = set()
        #: Whether other servers were read, whose errors say what they like.
        self.read_any = False
        #: Whether other servers hold rows of what was met.
        self.far = False

    def meet(
        self, relations: Sequence[int], check: Callable[[], None], *, by_steps: bool = False
    ) -> None:
        """Take snapshots of one moment on all servers that hold parts, and here.

        Before the charge; a server that cannot be read is named (sql/hook/shards.c).  Where there
        is no such moment, ``by_steps`` says that the reading needs none (docs/citus.md).
        """
        if self._by_steps(relations):
            if not by_steps:
                raise self._of_no_moment(relations)
            self._meet_nodes()
            self._met.add(tuple(relations))
        together = self._together(relations)
        if together is None:
            return
        self.far = True
        given = [("oid[]", list(relations)), ("oid[]", together)]
        self._execute("select dp.meet_shards($1, $2) as met", given)
        if together:
            # the moment can be that of an earlier question: what is declared was so then
            self._in_snapshots(check)

    def meet_again(
        self, relations: Sequence[int], check: Callable[[], None], *, by_steps: bool = False
    ) -> None:
        """Do the same after the charge, whose commit ended the other servers' transactions.

        No row was read yet, so that the cause may be told; but it is not free any more.
        """
        self._found.clear()
        self._steps.clear()
        self._met.clear()
        try:
            self.meet(relations, check, by_steps=by_steps)
        except Exception as error:
            failed = _charged(error)
            if failed is None:
                raise
            raise failed from error

    def any(self, relations: Sequence[int]) -> bool:
        """Whether some of these relations are, in part, on other servers."""
        return self._together(relations) is not None

    def read(self, relations: Sequence[int], work: Callable[[], T]) -> T:
        """Read, as of that moment where relations need one."""
        if self._by_steps(relations):
            self.read_any = True
            if tuple(relations) not in self._met:
                raise InternalError("a relation that Citus keeps would be read as of one moment")
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
        """Refuse relations that are read as of one moment, or of none, for what cannot do that."""
        if self._together(relations) or self._by_steps(relations):
            raise UnsupportedConstruct(
                "a relation has rows on several servers, whose rows only questions read together",
                hint="Ask without stored statistics and sketches.",
            )

    def _by_steps(self, relations: Sequence[int]) -> bool:
        """Tell whether protected rows are read with relations that Citus keeps."""
        key = tuple(relations)
        if key not in self._steps:
            sql = "select cardinality(dp.read_by_steps($1)) > 0 as found"
            ((found,),) = self._execute(sql, [("oid[]", list(relations))])
            self._steps[key] = bool(found)
        return self._steps[key]

    def _of_no_moment(self, relations: Sequence[int]) -> UnsupportedConstruct:
        sql = "select bool_or(dp.kept_by_citus(r.oid)) as citus from unnest($1) as r(oid)"
        ((citus,),) = self._execute(sql, [("oid[]", list(relations))])
        proved = "What is asked is proved for rows of one moment only."
        if citus:
            return UnsupportedConstruct(
                "Citus keeps a relation, and cannot read its rows as of one moment",
                detail=proved,
                hint="Ask for counts and sums whose results belong to one privacy unit each.",
            )
        return UnsupportedConstruct(
            "a foreign table of another wrapper than postgres_fdw cannot be read as of one moment",
            detail=proved,
            hint="Leave it out where rows are protected one by one, or let its owner keep a copy of"
            " its rows here.",
        )

    def _meet_nodes(self) -> None:
        """Find out, reading no row, whether the nodes of Citus answer and read SQL as it is."""
        ((problem,),) = self._execute("select dp.citus_node_problem() as problem")
        if problem is not None:
            raise ShardUnavailable(
                f"node {problem}",
                detail="Citus keeps rows of a relation of the question there.",
                hint="There a superuser can run SET citus.enable_ddl_propagation = off; ALTER ROLE"
                " dp_executor LOGIN; standard_conforming_strings must be on, and"
                " transform_null_equals off.",
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


def _charged(error: Exception) -> ReleaseFailed | None:
    """Return a refusal of what is free as the failure that it is after the charge."""
    from dpsql.server.spi import diagnostics, sqlstate

    if isinstance(error, DpsqlError):
        state, detail, hint = error.sqlstate, error.detail, error.hint
    else:
        state = sqlstate(error)
        detail, hint = diagnostics(error)
    if state == DeclarationsChanged.sqlstate:
        return ChangedWhileRead(
            "a relation or a declaration changed while it was read",
            hint="Ask again when the change is done.",
        )
    if state == ShardUnavailable.sqlstate:
        hint = hint and hint.removeprefix("Nothing was charged. ")
        return ShardFailed(str(error), detail=detail, hint=hint)
    return None


def _passes(error: Exception) -> bool:
    """Tell what is no other server's fault: a cancel, or an answer of ours."""
    from dpsql.server.spi import sqlstate

    return isinstance(error, DpsqlError) or sqlstate(error)[:2] in ("57", "40")
