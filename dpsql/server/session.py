"""The state that one backend keeps between calls: plans, strategies, the ledger; no answers.

``GD`` survives ``SET ROLE``, ``ROLLBACK`` and ``DISCARD ALL``, so nothing here may depend on
who asked (STYLE.md 5.4).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from dpsql.engine.facts import Facts
from dpsql.engine.services import Measured, Services
from dpsql.errors import InternalError, UnsupportedConstruct
from dpsql.ledger.model import Charge, Charged, Hit, Outlook
from dpsql.server.catalog import SpiCatalog
from dpsql.server.spi import SpiDatabase, sqlstate

if TYPE_CHECKING:
    from dpsql.ledger.store import LedgerStore


# query_canceled (also by statement_timeout), admin_shutdown.  Serialization failures, deadlocks and
# lock timeouts of other servers are left out: they can depend on which rows were read.
_ENDED = frozenset({"57014", "57P01"})
# The catalogue changed between two statements of one reading, and sql/hook/executed.c refuses the
# next one.  A name that has no object any more is a failure that counts: what a question names is
# held (sql/hook/held.c), and rows can decide whether there is another statement.
_CHANGED = frozenset({"PD011", "PD013"})


def _is_public(error: BaseException) -> bool:
    """Tell whether an error's cause is public: time, an administrator or the catalogue."""
    return sqlstate(error) in _ENDED | _CHANGED


@dataclass(slots=True)
class Session:
    """The state under ``GD["dpsql_session"]``."""

    plans: dict[str, Any] = field(default_factory=dict)
    # refusals, each with whom it was told and when (dpsql/engine/refused.py)
    refusals: dict[Any, Any] = field(default_factory=dict)
    # what follows from a version of the catalogue (dpsql/engine/facts.py)
    facts: dict[Any, tuple[int, object]] = field(default_factory=dict)
    statements: dict[str, Any] = field(default_factory=dict)
    store: LedgerStore | None = None
    # Whether this call may have read protected rows, and whether it charged the role.
    touched: bool = False
    charged: bool = False
    pending: Callable[[], None] | None = None
    database: SpiDatabase | None = None
    # what one synthesis writes, which follows from its catalogue entry and is looked up by that
    syntheses: dict[str, Any] = field(default_factory=dict)
    # strategies of releases: functions of public facts
    strategies: dict[bytes, Any] = field(default_factory=dict)

    # in a service session: the backend that asks, and whether its transaction wrote anything
    asker: int | None = None
    wrote: bool = False

    def services(self, plpy: Any, *, asker: int | None = None, wrote: bool = False) -> Services:
        """Wire the ports for one call; ``asker`` is whom a service session serves."""
        from dpsql.core.rng import SystemNoise

        self.asker, self.wrote = asker, wrote
        self.touched = self.charged = False
        database = self.database = SpiDatabase(plpy, self.statements, self.wait)
        facts = Facts(self.facts)
        return Services(
            database=database,
            catalog=SpiCatalog(database, facts),
            ledger=(
                cast("Any", _NoLedger()) if asker is None else _Ledger(self, database, facts, plpy)
            ),
            noise=SystemNoise(),
            warn=database.warn,
            note=database.note,
            plans=self.plans,
            refusals=self.refusals,
            strategies=self.strategies,
            facts=facts,
            is_public=_is_public,
            apart=database.apart,
            moved=asker is not None,
            elsewhere=self.elsewhere if asker is None else None,
        )

    def once_charged(self, tell: Callable[..., None]) -> Callable[..., None]:
        """Return a function that tells nothing before the charge."""
        return lambda *said: tell(*said) if self.charged else None

    def elsewhere(self, handler: str, query: str, arguments: Mapping[str, Any]) -> Measured:
        """Have the service session of this backend charge and measure something."""
        if self.database is None:
            raise InternalError("there is no database to read")
        given = [("text", handler), ("text", query), ("text", json.dumps(arguments))]
        ((found,),) = self.database.execute("select dp.ask_service($1, $2, $3) as found", given)
        ((spend, taken_at, payload, charged),) = cast("list[list[str]]", found)
        when = None if taken_at is None else datetime.fromisoformat(taken_at)
        self.touched = self.charged = charged == "True"
        return Measured(int(spend), payload, when, self.charged)

    def in_snapshot(self, work: Callable[[], Any]) -> Any:
        """Run reads in one snapshot, that of a statement which calls a STABLE function for them.

        A volatile function, which may write, would take a new snapshot for each statement.
        """
        return self.wait("select dp.python_measure_release() as done", work)

    def wait(self, sql: str, work: Callable[[], Any]) -> Any:
        """Run a statement that calls, below it, a function which runs ``work``."""
        if self.database is None:
            raise InternalError("there is no database to read")
        found: list[Any] = []
        self.pending = lambda: found.append(work())
        try:
            self.database.execute(sql)
        finally:
            self.pending = None
        return found[0]

    def as_owner(self, relation: int, work: Callable[[], Any]) -> Any:
        """Run reads with the rights of a relation's owner, whose code they may run (section 2)."""
        if self.database is None:
            raise InternalError("there is no database to read")
        found: list[Any] = []
        failed: list[Exception] = []

        def pending() -> None:
            try:
                found.append(work())
            except Exception as error:  # noqa: BLE001 - the caller's, who maps it
                failed.append(error)

        touched, charged, database = self.touched, self.charged, self.database
        self.pending = pending
        try:
            database.execute("select dp.read_as_owner($1) is null as done", [("oid", relation)])
        finally:
            # the owner's code may have called functions of ours
            self.pending = None
            self.touched, self.charged, self.database = touched, charged, database
        if failed:
            raise failed[0]
        return found[0]

    def run_pending(self) -> None:
        """Run what `in_snapshot` or `as_owner` was given."""
        pending, self.pending = self.pending, None
        if pending is None:
            raise InternalError("nothing waits for a snapshot")
        pending()


class _NoLedger:
    """Stands for the ledger where no service session serves: only those keep it."""

    def __getattr__(self, name: str) -> Any:
        raise InternalError("the ledger is kept by service sessions")


class _Ledger:
    """The ledger of a service session: notes charges, and tells when an answer was taken."""

    def __init__(self, session: Session, database: SpiDatabase, facts: Facts, plpy: Any) -> None:
        self._session = session
        self._database = database
        self._facts = facts
        self._plpy = plpy

    def _store(self) -> LedgerStore:
        session = self._session
        if session.store is None:
            from dpsql.ledger.store import LedgerStore
            from dpsql.server.own_transactions import OwnTransactions

            session.store = LedgerStore(OwnTransactions(self._plpy, self._database))
        transactions: Any = session.store.transactions
        transactions.database = self._database
        transactions.tick = self._database.tick
        return session.store

    def peek(self, role: int, text_key: bytes) -> Hit | None:
        hit = self._store().peek(role, text_key)
        return None if hit is None else self._told(hit)

    def open(self, charge: Charge) -> Hit | Charged:
        if charge.shared is not None:
            opened = self._store().open(charge)
            self._session.charged = isinstance(opened, Hit) and opened.charged
            return opened  # whoever shares is shown nothing
        session = self._session
        covers, members = self._coverage(charge)
        # who changes foreign tables only may have no transaction ID here
        changed = session.wrote or self._database.shards.far
        if changed and self._database.written_by(session.asker, members):
            raise UnsupportedConstruct(
                "this transaction has changed a relation of the question",
                detail="Answers are of committed rows.",
                hint="COMMIT first, or ask before the change.",
            )
        opened = self._store().open(replace(charge, covers=covers))
        if isinstance(opened, Charged):
            session.touched = session.charged = True
            return opened
        session.touched = session.charged = opened.charged
        return self._told(opened)

    def _coverage(self, charge: Charge) -> tuple[str, tuple[int, ...]]:
        """Return the accounts that pay for rows of the charge's objects, and their relations.

        Losses that other accounts record are not kept: the ledger looks them up with each charge.
        """
        if charge.fingerprint is None:
            return self._database.coverage(charge.objects)
        key = ("coverage", charge.objects, charge.fingerprint)
        return self._facts.once(key, lambda: self._database.coverage(charge.objects))

    def outlook(self, charge: Charge) -> Outlook:
        covers, _ = self._coverage(charge)
        return self._store().outlook(replace(charge, covers=covers))

    def finish(self, charged: Charged, payload: str) -> datetime | None:
        return self._store().finish(charged, payload)

    def fail(self, charged: Charged, *, counts: bool = True) -> None:
        self._store().fail(charged, counts=counts)

    def purge(self) -> int:
        return self._store().purge()

    def _told(self, hit: Hit) -> Hit:
        """Tell when a stored answer was taken: it does not follow the data (section 7)."""
        when = hit.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC")
        self._database.note(f"stored answer, taken at {when}")
        return hit
