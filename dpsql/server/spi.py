"""The Database port over plpy.

Every call runs in the snapshot of the statement that called the STABLE function
``dp.run``, so counts and boundaries come from one state of the database.
Text without parameters is planned by ``plpy.execute``, which may use parallel plans;
prepared statements may not (measured).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TypeVar, cast

from dpsql.errors import ChangedWhileRead, InternalError, NotAnswerable
from dpsql.server.shards import Shards, Wait

T = TypeVar("T")

_TICK = "select 1"
#: PostgreSQL's directory of temporary files, from which it removes leftovers when it starts.
_TEMPORARY = "base/pgsql_tmp"
# Domains of the question's columns may list rows of other relations.
_COVERAGE = """
select (select coalesce(jsonb_agg(to_jsonb(c)), '[]')::text from dp.coverage($1) as c) as covers,
  array(select distinct unnest(dp.statistics_members(n.oid))
          from (select unnest($1) as oid
                 union
                select d.reference::oid from dp.column_domain as d
                 where d.relation::oid = any ($1) and d.kind = 'reference') as n)::int8[] as members
"""
_WRITTEN_BY = """
select exists (
  select from pg_locks as l
   where l.pid = $2 and l.locktype = 'relation' and l.granted
     and l.database = (select d.oid from pg_database as d where d.datname = current_database())
     and l.mode in ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock',
                    'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
     and l.relation = any ($1)) as written
"""
_KEEP_DEAD_ROWS = """
select dp.keep_dead_rows(
  array(select p.relation::oid from dp.policy as p
         where p.kind = 'public' and p.relation = any ($1)),
  $1)::text as crowded
"""
# SPI_OK_UTILITY, SPI_OK_INSERT, SPI_OK_DELETE, SPI_OK_UPDATE
_WITHOUT_ROWS = frozenset((4, 7, 8, 9))


class _Done(Exception):
    """Raised to roll a subtransaction back after its result is known."""


class SpiDatabase:
    """`dpsql.ports.Database` inside the server."""

    def __init__(self, plpy: Any, statements: dict[str, Any], wait: Wait) -> None:
        self._plpy = plpy
        self._statements = statements
        self.shards = Shards(self.execute, wait)

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        """Run one statement; see `dpsql.ports.Database`.

        Result columns must have distinct names: plpy gives rows as dictionaries.
        """
        if parameters:
            plan = self.plan(sql, tuple(kind for kind, _ in parameters))
            result = self._plpy.execute(plan, [value for _, value in parameters])
        else:
            result = self._plpy.execute(sql)
        if result.status() in _WITHOUT_ROWS:
            return []
        names = result.colnames()
        if len(set(names)) < len(names):
            raise InternalError("a statement's result columns have equal names")
        return [tuple(row.values()) for row in result]

    def stream(self, sql: str, size: int) -> Iterator[list[tuple[object, ...]]]:
        """Run one statement through a cursor, in one snapshot and without parallel workers."""
        cursor = self._plpy.cursor(sql)
        try:
            while rows := cursor.fetch(size):
                yield [tuple(row.values()) for row in rows]
        finally:
            cursor.close()

    def file(self) -> BinaryIO:
        """Open a file without a name in the server's directory of temporary files."""
        os.makedirs(_TEMPORARY, mode=0o700, exist_ok=True)
        return tempfile.TemporaryFile(dir=_TEMPORARY, prefix="pgsql_tmp")

    def plan(self, sql: str, types: tuple[str, ...]) -> Any:
        """Prepare once per backend."""
        key = f"{sql}\x1f{types}"
        plan = self._statements.get(key)
        if plan is None:
            while len(self._statements) >= 256:
                self._statements.pop(next(iter(self._statements)))
            plan = self._statements[key] = self._plpy.prepare(sql, list(types))
        return plan

    def apart(self, work: Callable[[], T]) -> T:
        """Run a function that writes nothing, then release the locks that it took.

        See ``sql/hook/locks.c``.
        """
        found: list[T] = []
        try:
            with self._plpy.subtransaction():
                found.append(work())
                raise _Done
        except _Done:
            return found[0]

    def lock_members(self, relations: Sequence[int], *, before_rows: bool) -> None:
        """Lock relations with their parts; ``before_rows``: and all that their rows may need."""
        parameters = [("oid[]", list(relations)), ("bool", before_rows)]
        self.execute("select dp.lock_members($1, $2) as locked", parameters)

    def before_reading(self, relations: Sequence[int]) -> None:
        """Refuse relations whose rows other servers hold; see `dpsql.ports.Database`."""
        self.shards.require_none(relations)

    def reads_shards(self, relations: Sequence[int]) -> bool:
        """Whether some of these relations are, in part, on other servers."""
        return self.shards.any(relations)

    def meet(
        self,
        relations: Sequence[int],
        check: Callable[[], None],
        *,
        named: Sequence[int] = (),
        by_steps: bool = False,
        charged: bool = False,
    ) -> None:
        """Wait for locks, and find out whether all servers with parts answer; reads no row."""
        self.lock_members(relations, before_rows=True)
        if others := sorted(set(named) - set(relations)):
            self.execute("select dp.hold_types($1) is null as held", [("oid[]", others)])
        self._keep_dead_rows(relations, charged=charged)
        if charged:
            self.shards.meet_again(relations, check, by_steps=by_steps)
        else:
            self.shards.meet(relations, check, by_steps=by_steps)

    def _keep_dead_rows(self, relations: Sequence[int], *, charged: bool) -> None:
        """Keep reading from pruning pages of public relations; see ``sql/hook/dead_rows.c``."""
        crowded = self.execute(_KEEP_DEAD_ROWS, [("oid[]", list(relations))])[0][0]
        if crowded is not None:
            if charged:
                raise ChangedWhileRead(
                    f"relation {crowded} has dead rows on too many pages by now",
                    hint="Ask again when fewer questions run.",
                )
            raise NotAnswerable(
                f"relation {crowded} has dead rows on too many pages",
                detail="A question keeps each of these pages in a shared buffer, so that nobody"
                " sees which of them it read.",
                hint=f"VACUUM {crowded} once the transactions have ended that began before its"
                " rows died, or ask again when fewer questions run.",
            )

    def at_one_moment(self, relations: Sequence[int], work: Callable[[], T]) -> T:
        """Read relations, as of one moment where they need one."""
        return self.shards.read(relations, work)

    def coverage(self, objects: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """Return which accounts pay for rows of these objects, and which relations hold the rows.

        The accounts are in the form in which the ledger stores them.  The relations include
        partitions, children, and those whose rows a declared domain lists.
        """
        covers, members = self.execute(_COVERAGE, [("oid[]", list(objects))])[0]
        return str(covers), tuple(int(str(oid)) for oid in cast("list[object]", members))

    def written_by(self, backend: int | None, relations: Sequence[int]) -> bool:
        """Tell whether a backend's transaction may have changed rows of these relations."""
        parameters = [("oid[]", list(relations)), ("int4", backend)]
        return bool(self.execute(_WRITTEN_BY, parameters)[0][0])

    def tick(self) -> None:
        """Let the server notice a cancel or a timeout (4 µs)."""
        self._plpy.execute(self.plan(_TICK, ()))

    def warn(self, message: str, detail: str, hint: str) -> None:
        """Show the caller a warning: public facts only, since no setting of ours holds it back."""
        self.execute(
            "select dp.warn($1, $2, $3) as warned", [("text", t) for t in (message, detail, hint)]
        )

    def note(self, message: str, detail: str = "", hint: str = "") -> None:
        """Show the caller a notice: public facts only; its client_min_messages may hide it."""
        self.execute(
            "select dp.note($1, $2, $3) as noted", [("text", t) for t in (message, detail, hint)]
        )


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of an SPI error, ``""`` for any other.

    PL/Python gives ``sqlstate`` to the conditions that PostgreSQL knows; of others (class PD)
    only ``spidata`` tells, with five characters of six bits each in one integer.
    """
    known = getattr(error, "sqlstate", None)
    if known:
        return str(known)
    data = getattr(error, "spidata", None)
    if not data:
        return ""
    return "".join(chr(((int(data[0]) >> (6 * i)) & 0x3F) + ord("0")) for i in range(5))


def diagnostics(error: BaseException) -> tuple[str | None, str | None]:
    """Return detail and hint of an SPI error."""
    data = getattr(error, "spidata", None) or (0, None, None)
    return data[1], data[2]
