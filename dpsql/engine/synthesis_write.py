"""Writes the tables of a synthesis, in parts that each are one transaction of the caller's.

What was measured and how far the tables are is in ``dp.synthesis`` and ``dp.synthesis_table``;
everything else follows from it (PRIVACY.md section 2: post-processing), so that whoever calls
`step` again after a crash goes on where the last commit was.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.engine import ddl
from dpsql.engine.synthesis_catalogue import require_types_of
from dpsql.engine.synthesis_public import referenced, require_rows
from dpsql.engine.synthesis_rows import checks_of, write
from dpsql.engine.synthesis_tables import TableDetails, details_of, read_details
from dpsql.engine.synthesis_target import make_schema, require_target
from dpsql.errors import InvalidParameter, NotAnswerable, PermissionDenied
from dpsql.relation import show_name
from dpsql.synthesis.assembled import Assembled
from dpsql.synthesis.assembling import assemble
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.keys import NoKey
from dpsql.synthesis.schema import Plan
from dpsql.synthesis.stored import plan_of

if TYPE_CHECKING:
    from dpsql.engine.services import Services

_JOB = """
select s.target::text as target, s.state, s.settings::text as settings, s.plan::text as plan,
  format('%s %s %s %s', s.id, s.seed, s.created_at, s.incarnation) as identity, s.seed,
  s.details::text as details, s.statements, s.epsilon::text as epsilon,
  s.delta::text as delta, s.id, s.role_name::text as role_name,
  (select r.oid from pg_roles as r where r.rolname = current_user) = dp.caller() as undisguised,
  s.role_name = current_user as same, session_user = current_user as own_login
  from dp.own_synthesis($1) as s
"""

#: SQLSTATEs of a name that is taken; of an entry of the catalogue where both were made at once.
_THERE = ("42P06", "42P07", "42710", "23505")


@dataclass(slots=True)
class Job:
    """A synthesis as the catalogue has it."""

    number: int
    target: str
    state: str
    settings: dict[str, Any]
    plan: Plan
    identity: str
    seed: int
    details: list[TableDetails]
    statements: int
    epsilon: str
    delta: str


@dataclass(slots=True)
class Kept:
    """What one session keeps of the synthesis that it writes, so that it is generated once."""

    identity: str
    tables: list[Assembled]


def step(job: int, services: Services, kept: MutableMapping[str, Kept], tell: bool = True) -> bool:
    """Do the next part of a synthesis: make its tables, write a batch, make a key or an index.

    Parameters
    ----------
    job : int
        Its number in ``dp.synthesis``.
    services : Services
        With a database that has the caller's rights.
    kept : mapping
        The session's; one synthesis is kept.
    tell : bool
        Show notes to the caller.

    Returns
    -------
    bool
        Whether anything is left.
    """
    found = _read(job, services)
    if found.state == "done":
        return False
    if found.state == "measured":
        begin(found, services)
        return True
    _require_own(found, services)
    if found.state == "writing":
        _write_next(found, services, kept, tell)
        return True
    return _finish_next(found, services, kept)


def disguised(role: str) -> PermissionDenied:
    """Refuse a session that only acts as a role: what it runs could end that, by RESET ROLE.

    Any member of a role may say how tables are made that its syntheses write.
    """
    return PermissionDenied(
        "a synthesis is written by the role that the session belongs to",
        detail=f"The session acts as {role} by SET ROLE, and the new tables' expressions would run"
        " in it.",
        hint=f"RESET ROLE, and call it as the session's own role; or connect as {role}.",
    )


def _read(job: int, services: Services) -> Job:
    row = services.database.execute(_JOB, [("int8", job)])[0]
    if not row[-3] or not row[-2]:
        raise PermissionDenied(
            f"must be the role {row[11]} to go on with its synthesis",
            detail="The tables belong to the role that began, and are written with its rights.",
            hint=f"Connect as {row[11]}.",
        )
    if not row[-1]:
        raise disguised(str(row[11]))
    details = json.loads(str(row[6])) if row[6] is not None else []
    return Job(
        number=int(str(row[10])),
        target=str(row[0]),
        state=str(row[1]),
        settings=json.loads(str(row[2])),
        plan=plan_of(str(row[3])),
        identity=str(row[4]),
        seed=int(str(row[5])),
        details=[details_of(raw) for raw in details],
        statements=int(str(row[7])),
        epsilon=str(row[8]),
        delta=str(row[9]),
    )


def _require_own(job: Job, services: Services) -> None:
    """Refuse to go on in tables that are not those that were made.

    The owner of the target schema may drop what is in it, and a table of his by the same name could
    have triggers, which would run with the caller's rights.

    Raises
    ------
    NotAnswerable
    """
    own = [d.name for d, p in zip(job.details, job.plan.tables, strict=True) if not p.table.public]
    database = services.database
    if not _others(job, services):
        database.execute(ddl.hold(own))
    if others := _others(job, services):
        raise NotAnswerable(
            "the synthetic tables were dropped, or replaced by others",
            detail=f"There are no tables of yours any more by the names {', '.join(others)}.",
            hint="Drop the rest with dp.drop_synthesis and call dp.synthesize again: what was"
            " measured is not paid twice.",
        )
    # a cast or a CHECK of a domain may have come since they were made
    for details, planned in zip(job.details, job.plan.tables, strict=True):
        if not planned.table.public:
            ((oid,),) = database.execute(
                "select to_regclass($1)::oid::int8 as oid", [("text", details.name)]
            )
            require_types_of(int(str(oid)), planned, services)


def _others(job: Job, services: Services) -> list[str]:
    rows = services.database.execute(
        "select t.place from dp.synthesis_tables($1) as t where not t.own",
        [("int8", job.number)],
    )
    return [job.details[int(str(place))].name for (place,) in rows]


def begin(job: Job, services: Services) -> None:
    """Make the schema and the empty tables; without keys and indexes."""
    database = services.database
    replace = bool(job.settings.get("replace"))
    old = require_target(job.target, job.plan, replace, services)
    made_before = database.execute(
        "select coalesce(bool_or(t.made_schema), false) as made from dp.synthetic_tables($1) as t",
        [("name", job.target)],
    )[0][0]
    if old:
        database.execute("select dp.hide_synthesis($1) is null as done", [("name", job.target)])
    # their entries before their tables: a step of theirs holds its entry first, too
    database.execute(
        "select dp.forget_syntheses($1, $2) as forgotten",
        [("name", job.target), ("int8", job.number)],
    )
    if old:
        database.execute(ddl.drop_tables(old))
    remark = f"synthetic, epsilon {job.epsilon}, delta {job.delta}"
    details, notes = read_details(job.plan, job.target, remark, services)
    try:
        made = make_schema(job.target, services) or bool(made_before)
        for table in details:
            for statement in table.first:
                database.execute(statement)
    except Exception as error:
        if getattr(error, "sqlstate", None) in _THERE:
            raise _meanwhile(job) from None
        raise
    places = [n for n, p in enumerate(job.plan.tables) if not p.table.public]
    database.execute(
        "select dp.synthesis_begun($1, $2, $3, $4, $5) is null as done",
        [
            ("int8", job.number),
            ("jsonb", json.dumps([table.as_json() for table in details])),
            ("bool", made),
            ("int4[]", places),
            ("name[]", [job.plan.tables[n].table.name for n in places]),
        ],
    )
    _move(job, "writing", 0, notes, services)
    for note in notes:
        services.note(note)


def _meanwhile(job: Job) -> InvalidParameter:
    """Refuse what somebody else, or another call of the same role, made in the same moment."""
    return InvalidParameter(
        f"the schema {show_name(job.target)} has relations already",
        detail="They were made while this synthesis was measured.",
        hint="SELECT * FROM dp.syntheses; shows what is there. Once it is gone, CALL"
        f" dp.write_synthesis({job.number}); pays nothing.",
    )


def _move(job: Job, state: str, statements: int, notes: list[str], services: Services) -> None:
    ((told,),) = services.database.execute(
        "select dp.synthesis_moved($1, $2, $3, $4) as told",
        [("int8", job.number), ("text", state), ("int4", statements), ("text[]", notes)],
    )
    for text in told:  # type: ignore[attr-defined]
        services.note(text)


def tables_of(
    job: Job, services: Services, kept: MutableMapping[str, Kept], tell: bool
) -> list[Assembled]:
    """Return what is written, which is generated once a session.

    Raises
    ------
    NotAnswerable
        When a key cannot be made up.
    """
    found = kept.get("synthesis")
    if found is not None and found.identity == job.identity:
        return found.tables
    kept.clear()
    row = services.database.execute(
        "select dp.synthesis_payload($1) as payload", [("int8", job.number)]
    )[0]
    payload = bytes(row[0])  # type: ignore[call-overload]
    from dpsql.engine.synthesis_generate import generate

    generated = generate(job.plan, payload, job.seed, services.database.tick)
    _require_keys(job, generated)
    require_rows(job.number, job.plan, generated, services)
    bases = {n: details.base_types() for n, details in enumerate(job.details)}
    checks = {
        n: own
        for n, (details, planned) in enumerate(zip(job.details, job.plan.tables, strict=True))
        if (own := checks_of(planned, details, services)) is not None
    }
    tick = services.database.tick
    try:
        tables = assemble(job.plan, generated, bases, job.seed, tick, checks)
    except NoKey as error:
        raise NotAnswerable(
            "a key of the synthetic tables cannot be made up", detail=f"{error}."
        ) from None
    if tell:
        for table in tables:
            for note in table.notes:
                services.note(note)
    kept["synthesis"] = Kept(job.identity, tables)
    return tables


def _require_keys(job: Job, generated: Sequence[Generated | None]) -> None:
    """Refuse what was measured before the keys of public rows were kept with it."""
    for place, rows in enumerate(generated):
        keys = {} if rows is None else rows.keys
        if job.plan.tables[place].table.public and set(referenced(job.plan, place)) - keys.keys():
            raise NotAnswerable(
                "the synthesis was measured by an earlier version of dpsql",
                detail="Which rows of public tables it refers to was not kept.",
                hint="Drop it with dp.drop_synthesis and measure again, which is paid again.",
            )


def _constraint_changed() -> NotAnswerable:
    return NotAnswerable(
        "a constraint of the synthetic tables has changed since rows were written",
        detail="Rows that are left would not be of the same tables.",
        hint="Drop them with dp.drop_synthesis and call dp.synthesize again: what was measured is"
        " not paid twice.",
    )


def _write_next(job: Job, services: Services, kept: MutableMapping[str, Kept], tell: bool) -> None:
    """Write the next batch, and say in the same transaction that it is there."""
    tables = tables_of(job, services, kept, tell)
    progress = services.database.execute(
        "select t.place, t.rows, t.written from dp.synthesis_tables($1) as t",
        [("int8", job.number)],
    )
    found = [(int(str(p)), r, int(str(w))) for p, r, w in progress]
    if any(rows is not None and rows != tables[place].rows for place, rows, _ in found):
        raise _constraint_changed()
    for place, rows, _ in found:
        if rows is None:
            _wrote(job, place, tables[place].rows, 0, 0, services)
    for place, _, written in found:
        if written < tables[place].rows:
            planned, details = job.plan.tables[place], job.details[place]
            many = write(
                place, planned, tables[place], details, written, job.seed, services, job.number
            )
            _wrote(job, place, tables[place].rows, written, written + many, services)
            return
    _move(job, "finishing", 0, [note for table in tables for note in table.notes], services)


def _wrote(job: Job, place: int, rows: int, before: int, now: int, services: Services) -> None:
    services.database.execute(
        "select dp.synthesis_wrote($1, $2, $3, $4, $5) is null as done",
        [
            ("int8", job.number),
            ("int4", place),
            *[("int8", number) for number in (rows, before, now)],
        ],
    )


def statements_of(job: Job) -> list[str]:
    """Return what is run once all rows are there: keys, indexes, foreign keys, ANALYZE."""
    own = [
        details
        for details, planned in zip(job.details, job.plan.tables, strict=True)
        if not planned.table.public
    ]
    return [
        *(statement for details in own for statement in details.last),
        *(statement for details in own for statement in details.foreign),
        *(ddl.analyze(details.name) for details in own),
    ]


def _finish_next(job: Job, services: Services, kept: MutableMapping[str, Kept]) -> bool:
    kept.clear()
    statements = statements_of(job)
    if job.statements == len(statements):
        _move(job, "done", len(statements), [], services)
        return False
    statement, notes = statements[job.statements], []
    unsure = {text: found for details in job.details for text, found in details.unsure.items()}
    query, note = unsure.get(statement, ("", ""))
    if query and services.database.execute(query):
        notes = [note] if statement.startswith(("ALTER", "CREATE")) else []
        for text in notes:
            services.note(text)
    else:
        services.database.execute(statement)
    _move(job, "finishing", job.statements + 1, notes, services)
    return True
