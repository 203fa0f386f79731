"""Measure a synthetic database: plan it, pay once, measure in one snapshot, keep what is noisy.

`synthesize` reads: read the schema, plan the copy, admit every statement, debit, measure, store.
Writing the tables is `dpsql.engine.synthesis_write`, which reads nothing that is protected.  What
is measured is a function of public facts, the charge is durable before any protected row is read
(PRIVACY.md sections 7 and 8).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsql.engine.progress import Command, Phase, Progress
from dpsql.engine.request import Role, Settings
from dpsql.errors import LedgerUnavailable
from dpsql.ledger.amounts import amount_text
from dpsql.ledger.model import Hit

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_call import Call

_STORE = """
insert into dp.synthesis (target, role_name, role_oid, settings, plan, payload, seed, epsilon,
  delta, relations, protected, spend, notes, incarnation)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
  (select i.token from dp.ledger_incarnation as i))
returning id
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call of ``dp.synthesize`` says.

    Attributes
    ----------
    target : str
        The schema.
    relations : tuple of int
        OIDs of what is copied.
    epsilon, delta : str, optional
        The budget; by default the session's.
    method : str
        What measures tables.
    d_max : str, optional
        JSON: rows of each relation that a privacy unit may have.
    row_counts : str, optional
        JSON: rows that relations are to have, public.
    without : tuple of str
        Foreign keys that are not copied.
    bins : int
        Into how many bins declared ranges are cut.
    placeholders : bool
        Whether values are made up where nothing public is known of them.
    replace : bool
        Whether what an earlier synthesis made is dropped.
    """

    target: str
    relations: tuple[int, ...]
    epsilon: str | None = None
    delta: str | None = None
    method: str = "pairs"
    d_max: str | None = None
    row_counts: str | None = None
    without: tuple[str, ...] = ()
    bins: int = 32
    placeholders: bool = False
    replace: bool = False

    def settings(self, own: Settings) -> Settings:
        """Return the session's settings with the budget of the call, checked."""
        from dpsql.engine.release_terms import Terms

        return Terms(self.epsilon, self.delta).settings(own)


def synthesize(
    wish: Wish,
    role: Role,
    own: Settings,
    services: Services,
    in_snapshot: Callable[[Callable[[], Any]], Any],
) -> int:
    """Measure what the tables are made of, or find it measured; returns the job's number.

    Raises
    ------
    DpsqlError
        Nothing is spent unless it is `ReleaseFailed` or says so.
    """
    found = services.apart(lambda: measured(wish, role, own, services, in_snapshot))
    return _stored(found, role, services)


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured now or before, and by which charge."""

    call: Call
    payload: bytes
    spend: int

    def dump(self) -> str:
        """Write what was measured as the ledger keeps it."""
        return json.dumps({"payload": base64.b64encode(self.payload).decode()})


def measured(
    wish: Wish,
    role: Role,
    own: Settings,
    services: Services,
    in_snapshot: Callable[[Callable[[], Any]], Any],
    key: str | None = None,
) -> Found:
    """Measure, or find it measured; see `synthesize` and, for ``key``, `dpsql.engine.release`."""
    from dpsql.engine.release import require_same
    from dpsql.engine.synthesis_call import Call
    from dpsql.engine.synthesis_checks import left_out, require_checks
    from dpsql.engine.synthesis_schema import read_schema
    from dpsql.engine.synthesis_target import require_target
    from dpsql.engine.synthesis_units import units_of
    from dpsql.synthesis.notes import together
    from dpsql.synthesis.planning import planned

    settings = wish.settings(own)
    # whoever has another session measure has checked what only its own transaction shows
    if not services.moved:
        _require_own_session(role, services)
    tables = read_schema(wish.relations, services, bins=wish.bins)
    plan = planned(tables, leave_out=wish.without, placeholders=wish.placeholders)
    units = units_of([p.table for p in plan.tables], services)
    if not services.moved:
        require_target(wish.target, plan, wish.replace, services)
    call = Call(wish, plan, units, settings, services)
    levels = [table.levels for table in call.measured.tables]
    require_checks(plan, levels, call.public, services)
    call.notes.extend(left_out(plan, services))
    for told in together([*plan.notes, *call.notes]):
        services.note(told.message, told.detail, told.hint)
    call.warn()
    progress = Progress(services.database, Command.SYNTHESIS, *call.read())
    if services.elsewhere is not None:
        wanted = {"wish": asdict(wish), "settings": own.texts(), "key": call.key.hex()}
        there = services.elsewhere("measure_synthesis", wish.target, wanted)
        return _found(call, there.payload, there.spend)
    services.database.meet(sorted(call.read()[0]), call.confirm_met)
    charge = call.charge(role)
    require_same(key, charge)
    opened = services.ledger.open(charge)
    if isinstance(opened, Hit):
        return _found(call, opened.payload, opened.spend)
    read = False
    try:
        if services.moved:
            again = partial(call.confirm_met, charged=True)
            again()
            services.database.meet(sorted(call.read()[0]), again, charged=True)
        read = True
        progress.phase(Phase.MEASURING)
        payload = in_snapshot(lambda: call.measure(progress))
        call.confirm()
    except BaseException as error:
        services.give_up(opened, error, read=read)
        with suppress(Exception):  # of what is raised here the first counts
            services.warn(
                "the measurement did not end, and was charged",
                "Protected rows may have been read; nothing that was measured is kept.",
                "The same call measures again and is charged again.",
            )
        raise
    found = Found(call, payload, opened.spend)
    try:
        services.store(opened, found.dump)
    except LedgerUnavailable:
        services.warn(
            "what was measured could not be stored in the ledger",
            "It was charged, and is kept with the synthesis; the ledger went away meanwhile.",
            "Do not roll back: the same call would be charged again.",
        )
    progress.end()
    return found


def _require_own_session(role: Role, services: Services) -> None:
    """Refuse a role that was put on: it could not write the tables step by step."""
    from dpsql.engine.synthesis_write import disguised

    if services.database.execute("select session_user::text as name")[0][0] != role.name:
        raise disguised(role.name)


def _found(call: Call, written: str, spend: int) -> Found:
    """Read what `Found.dump` wrote."""
    payload = base64.b64decode(json.loads(written)["payload"])
    return Found(call, payload, spend)


def _stored(found: Found, role: Role, services: Services) -> int:
    """Keep what was measured; the entry belongs to the caller's transaction.

    Tells what noise left unlearnt, which follows from noisy numbers (PRIVACY.md section 2 (b)).
    """
    from dpsql.engine.synthesis_payload import notes_of
    from dpsql.engine.synthesis_public import quoted
    from dpsql.synthesis.stored import plan_text

    call = found.call
    private = [p.table for p in call.plan.tables if not p.table.public]
    notes = [str(note) for note in (*call.plan.notes, *call.notes)]
    drowned = [note for note in notes_of(found.payload) if note not in notes]
    for note in drowned:
        services.note(note)
    rows = services.database.execute(
        _STORE,
        [
            ("name", call.wish.target),
            ("name", role.name),
            ("oid", role.oid),
            ("jsonb", json.dumps({"replace": call.wish.replace, "method": call.wish.method})),
            ("jsonb", plan_text(call.plan)),
            ("bytea", found.payload),
            ("int8", call.seed),
            ("numeric", amount_text(call.settings.epsilon)),
            ("numeric", amount_text(call.settings.delta)),
            ("oid[]", [table.oid for table in private]),
            ("text[]", [quoted(table) for table in private]),
            ("int8", found.spend),
            ("text[]", [*notes, *drowned]),
        ],
    )
    return int(str(rows[0][0]))
