"""From a measured release to its table and its entry in the catalogue, and what follows later."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from dpsql.engine import ddl
from dpsql.engine.methods.base import PROVED
from dpsql.engine.release import Outcome, cuts_off, release
from dpsql.engine.release_comments import comment
from dpsql.engine.release_meaning import meaning
from dpsql.engine.release_table import check_name, columns, create, fill, grouping, table_name
from dpsql.engine.release_terms import Terms
from dpsql.engine.request import Role, Settings
from dpsql.engine.standby import refuse_standby
from dpsql.errors import (
    ChangedWhileRead,
    InternalError,
    InvalidParameter,
    PermissionDenied,
    UnsupportedConstruct,
)
from dpsql.ledger.amounts import amount_text
from dpsql.ledger.model import Charge, Hit
from dpsql.query.ir import Expr, map_columns, render
from dpsql.relation import show_name
from dpsql.sqltree import literal

if TYPE_CHECKING:
    from dpsql.engine.release_domain import Released
    from dpsql.engine.services import Services
    from dpsql.query.asked import WorkloadQuestion

#: Levels of an attribute that the catalogue names one by one.
_NAMED_LEVELS = 100
_STORE = """
insert into dp.stored_release (name, question, mechanism, noise, epsilon, delta, rho, rho_delta,
  rows_of_a_unit, relations, spend, role_name, role_oid, released_at, cells, rmse, domain,
  terms, sets, span, protected, measured_at, incarnation)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, clock_timestamp(), $14, $15, $16,
  $17, $18, $19, $20, coalesce($21::timestamptz, clock_timestamp()),
  (select i.token from dp.ledger_incarnation as i))
"""
_OWN = """
select r.name::text as name, r.question, r.terms::text as terms, r.epsilon::text as epsilon,
  r.delta::text as delta, r.rho::text as rho, r.rho_delta::text as rho_delta, r.mechanism, r.noise,
  r.spend::text as spend, dp.release_readers(r) as readers,
  dp.caller_made(r.role_oid, r.role_name, r.incarnation) as made,
  dp.caller_owns(r.relations, r.protected, r.incarnation) as owns
from dp.own_release($1) as r
"""

InSnapshot = Callable[[Callable[[], Any]], Any]


def publish(
    name: str,
    text: str,
    terms: Terms,
    role: Role,
    settings: Settings,
    services: Services,
    in_snapshot: InSnapshot,
) -> str:
    """Release a workload as a new table; everything that can be refused is before the charge.

    Returns
    -------
    str
        The table's qualified name.
    """
    name = _own(name, services)
    check_name(name)
    _require_writable(services)
    _hold(name, services)
    _require_free(name, services)

    def ready(released: Released) -> None:
        columns(released.question)

    outcome = services.apart(
        lambda: release(text, terms, role, settings, services, in_snapshot, ready)
    )
    if not outcome.admitted.question.reads.whole:
        services.note("rows outside of the declared domains are not counted")
    for column, other in outcome.admitted.question.others:
        services.note(f"values of {column} outside of its declared domain are counted as {other}")
    written = _written(name, outcome, role, services)
    outcome.progress.end()
    return written


def refresh(
    name: str, role: Role, settings: Settings, services: Services, in_snapshot: InSnapshot
) -> str:
    """Measure a release again and put the new table in place of the old one.

    For the role that released it: its statement is read again, with the caller's rights.
    """
    kept = services.database.execute(_OWN, [("text", name)])[0]
    name = str(kept[0])
    if not kept[-2]:
        raise PermissionDenied(
            f"must have released {show_name('dpv', name)} to measure it again",
            hint="Release the same statement under another name.",
        )
    _require_writable(services)
    _hold(name, services)
    _require_droppable(name, services)
    # before the charge: readers keep the table from being replaced
    _lock(name, services, exclusive=True)
    raw = json.loads(str(kept[2]))
    weights = raw["weights"]
    terms = Terms(
        raw["epsilon"],
        raw["delta"],
        raw["mechanism"],
        raw["postprocess"],
        None if weights is None else tuple(weights),
    )
    rows = replace(settings, fresh=True)
    if raw["rows"]:
        rows = replace(rows, max_rows_contributed=Fraction(raw["rows"]))
    outcome = services.apart(
        lambda: release(str(kept[1]), terms, role, rows, services, in_snapshot)
    )
    readers = [str(reader) for reader in cast("list[object]", kept[-3])]
    services.database.execute(
        "select dp.remove_release(dp.own_release($1)) is null as done", [("text", name)]
    )
    written = _written(name, outcome, role, services)
    if readers:
        calls = " ".join(
            f"SELECT dp.share_release({literal(name)}, {literal(reader)});" for reader in readers
        )
        services.warn(
            f"{', '.join(readers)} cannot read {show_name('dpv', name)} any more",
            "The new numbers are paid for by nobody but the role that measured them.",
            f"The owner of the relations shares them, which charges each reader: {calls}",
        )
    outcome.progress.end()
    return written


def _require_droppable(name: str, services: Services) -> None:
    """Refuse to replace a table that views or columns of others depend on, before it is charged."""
    users = services.database.execute(
        "select string_agg(distinct pg_describe_object(d.classid, d.objid, 0), ', ') as names"
        " from pg_class as c join pg_type as t on t.oid = c.reltype"
        " join pg_depend as d on d.deptype = 'n' and (d.refclassid, d.refobjid) in"
        " (('pg_class'::regclass, c.oid), ('pg_type'::regclass, t.oid),"
        " ('pg_type'::regclass, t.typarray))"
        " where c.oid = to_regclass($1)",
        [("text", table_name(name))],
    )[0][0]
    if users:
        raise InvalidParameter(
            f"the table of the release {name} cannot be replaced",
            detail=f"What depends on it: {users}.",
            hint="Drop what depends on it and make it again afterwards, or release under another"
            " name.",
        )


def _require_writable(services: Services) -> None:
    """Refuse a transaction in which no table can be made, before anything is charged."""
    if services.database.execute(
        "select current_setting('transaction_read_only')::boolean as read_only"
    )[0][0]:
        refuse_standby(services)
        raise InvalidParameter(
            "a release needs a transaction that can write",
            detail="It makes a table of the schema dpv, and this transaction is read-only.",
            hint="Call it outside of the transaction, or begin that with BEGIN READ WRITE.",
        )


def _hold(name: str, services: Services) -> None:
    """Refuse a name that another open transaction has reserved, before anything is charged."""
    ((others,),) = services.database.execute("select dp.hold_name($1) as others", [("text", name)])
    if others is not None:
        raise InvalidParameter(
            f"the name {show_name('dpv', name)} is in use by a transaction that has not ended",
            detail="It makes or replaces a release, or a view of a protected relation. Who does:"
            f" {others}.",
            hint="Nothing was charged. Call the function again when that transaction has ended; a"
            " new release can have another name at once.",
        )


def _lock(name: str, services: Services, *, exclusive: bool) -> None:
    """Lock the table of a release; refuse after two seconds if another transaction uses it."""
    services.database.execute(
        "select dp.lock_release($1, $2) is null as locked", [("text", name), ("bool", exclusive)]
    )


def _own(name: str, services: Services) -> str:
    """Return the name without the schema of the table, which it may be written with."""
    named = services.database.execute("select dp.release_name($1) as name", [("text", name)])
    return str(named[0][0])


def _require_free(name: str, services: Services) -> None:
    """Refuse a name that is taken, before anything is charged."""
    taken = services.database.execute(
        "select to_regclass($1) is not null"
        " or exists (select from dp.stored_release as r where r.name = $2) as taken,"
        " exists (select from pg_class as c where c.oid = to_regclass($1) and c.relkind = 'v')"
        " as is_view",
        [("text", table_name(name)), ("text", name)],
    )
    if taken[0][1]:
        raise InvalidParameter(
            f"there is a view {show_name('dpv', name)} already",
            detail="It stands for a protected relation, or shows a synthetic copy.",
            hint="Choose another name.",
        )
    if taken[0][0]:
        raise InvalidParameter(
            f"there is a relation {show_name('dpv', name)} already",
            hint="Choose another name, or SELECT dp.drop_release('<name>') first;"
            " dp.refresh_release measures the same workload again.",
        )


def _written(name: str, outcome: Outcome, role: Role, services: Services) -> str:
    """Write the table and the entry; both belong to the caller's transaction.

    Where that is rolled back the charge stays and what was measured is kept: releasing the same
    again is free.
    """
    admitted, priced = outcome.admitted, outcome.priced
    create(name, admitted.released, services)
    cells, error = fill(name, outcome, services)
    comment(name, outcome, services)
    database = services.database
    _grant(name, role, services)
    database.execute(ddl.analyze(table_name(name)))
    asked = {
        "epsilon": outcome.terms.epsilon,
        "delta": outcome.terms.delta,
        "mechanism": outcome.terms.mechanism,
        "postprocess": outcome.terms.postprocess,
        "weights": outcome.terms.weights,
        "rows": admitted.rows if cuts_off(admitted.question.counted) else None,
    }
    database.execute(
        _STORE,
        [
            ("text", name),
            ("text", admitted.text),
            ("text", priced.mechanism.name),
            ("text", priced.noise),
            ("numeric", amount_text(priced.epsilon)),
            ("numeric", amount_text(priced.delta)),
            ("numeric", amount_text(priced.rho)),
            ("numeric", amount_text(priced.rho_delta)),
            ("int4", admitted.rows),
            ("oid[]", list(admitted.relations)),
            ("int8", outcome.spend),
            ("text", role.name),
            ("oid", role.oid),
            ("int8", cells),
            ("float8", None if math.isnan(error) else error),
            ("jsonb", json.dumps(_domain(admitted.released))),
            ("jsonb", json.dumps(asked)),
            ("jsonb", json.dumps(_sets(admitted.released))),
            ("jsonb", _span(outcome, services)),
            ("text[]", _protected(admitted.question)),
            ("text", None if outcome.measured_at is None else outcome.measured_at.isoformat()),
        ],
    )
    return table_name(name)


def _domain(released: Released) -> list[dict[str, Any]]:
    """Describe the domain: keys, the number of their levels, and the levels if they are few.

    ``told_apart`` is the number of classes of levels, where no query asks for each of them.
    """
    found = []
    for part in (part for level in released.attributes for part in level.lookups):
        keys = [released.question.keys[k].name for k in part.keys]
        entry: dict[str, Any] = {"keys": keys, "levels": len(part.values)}
        if part.classes < len(part.values):
            entry["told_apart"] = part.classes
        if len(part.values) <= _NAMED_LEVELS:
            entry["values"] = [v[0] if len(keys) == 1 else list(v) for v in part.values]
        found.append(entry)
    return found


def _sets(released: Released) -> list[dict[str, Any]]:
    """Describe what was asked: grouping sets with the forms of their keys."""
    question = released.question
    names = [key.name for key in question.keys]
    return [
        {
            "query": asked.query + 1,
            "grouping": grouping(question, asked),
            "keys": [
                [question.keys[p.key].name, p.form.kind, *([p.form.width] if p.form.width else [])]
                for p in asked.parts
            ],
            "where": [" OR ".join(_shown(c.tree, names) for c in p.either) for p in asked.where],
        }
        for asked in question.sets
    ]


def _shown(condition: Expr, names: Sequence[str]) -> str:
    """Write a condition on levels with the names of the keys."""
    keys = {f"k{n}": show_name(name) for n, name in enumerate(names)}

    def named(level: Expr) -> Expr:
        return Expr("named", level.type, data=keys[str(level.data[1])])  # type: ignore[index]

    return render(map_columns(condition, named))


def _protected(question: WorkloadQuestion) -> list[str]:
    """Name the protected relations that a release reads, whose owners it concerns."""
    return sorted({o.relation.sql for o in question.counted.occurrences if o.relation.private})


def _span(outcome: Outcome, services: Services) -> str:
    from dpsql.query.span import dump

    released, mechanism = outcome.admitted.released, outcome.priced.mechanism
    question = released.question
    texts: dict[int, list[str | None]] = {}
    attributes = []
    for level in released.attributes:
        for part in level.lookups:
            for n, key in enumerate(part.keys):
                ordered = level.sorted.get(key) or dict.fromkeys(value[n] for value in part.values)
                texts[key] = list(ordered)
        # classes are not what questions name
        attributes.append(
            ((), len(level.values)) if level.parts else (level.keys, len(level.values))
        )
    spread = None if math.isnan(mechanism.error) else mechanism.spread()
    kept = None if spread is None else spread.dump()
    groupings = [grouping(question, s) for s in question.sets]
    columns = meaning(question.reads, services.database)
    return dump(question, groupings, texts, attributes, columns, kept)


def share(name: str, role: int, services: Services) -> None:
    """Let a role read a release and charge its ledger with what the release cost.

    Once for a measurement: not for a second table of the same numbers, nor where the role has
    released them itself (PRIVACY.md section 7).

    Raises
    ------
    PermissionDenied
        Unless the caller owns all protected relations of the release.
    BudgetExceeded, NoBudget
        When the role cannot pay.
    """
    database = services.database
    _require_writable(services)
    _require_latest(services)
    _lock(_to_share(name, services)[0], services, exclusive=False)
    # whoever released it may have replaced it until it was locked
    kept = _to_share(name, services)
    name, question, _, epsilon, delta, rho, rho_delta, mechanism, noise, spend = kept
    named = database.execute(
        "select rolname::text as name, has_table_privilege(oid, to_regclass($2), 'select') as reads"
        " from pg_roles where oid = $1",
        [("oid", role), ("text", table_name(name))],
    )
    if not named:
        raise InvalidParameter('parameter "role" of dp.share_release names no role')
    if named[0][1]:
        services.note(f"role {named[0][0]} can read it already: nothing is charged")
        return
    reader = Role(role, str(named[0][0]))
    if services.elsewhere is None:
        raise InternalError("a service session shares no release")
    paid = {
        "role": reader.oid,
        "role_name": reader.name,
        "amounts": [epsilon, delta, rho, rho_delta],
        "mechanism": noise,
        "method": mechanism,
        "question": question,
        "spend": spend,
    }
    if not services.elsewhere("share_release", name, paid).charged:
        services.note(f"role {reader.name} has paid for these numbers already: nothing is charged")
    _grant(name, reader, services)


def _grant(name: str, role: Role, services: Services) -> None:
    """Let a role that was charged read a release, whatever its name is by now.

    Raises
    ------
    ChangedWhileRead
        When the role is renamed at the same time, so that another one could be meant.
    """
    database = services.database
    parameters = [("oid", role.oid)]
    ((current,),) = database.execute(
        "select r.rolname::text as name from (select $1) as given(oid)"
        " left join pg_catalog.pg_roles as r on r.oid = given.oid",
        parameters,
    )
    if current is not None:
        database.execute(ddl.grant_select(table_name(name), str(current)))
    ((granted,),) = database.execute(
        "select exists (select from pg_class as c, aclexplode(c.relacl) as a"
        " where c.oid = to_regclass($2) and a.grantee = $1) as granted",
        [*parameters, ("text", table_name(name))],
    )
    if not granted:
        raise ChangedWhileRead(
            f"role {role.name} has another name by now",
            hint="Call the function again: what was paid for costs nothing.",
        )


def _require_latest(services: Services) -> None:
    """Refuse a transaction that goes on seeing releases as they were when it began."""
    level = services.database.execute("select current_setting('transaction_isolation') as level")
    if level[0][0] not in ("read committed", "read uncommitted"):
        raise UnsupportedConstruct(
            f"a release cannot be shared in a transaction of isolation level {level[0][0]}",
            detail="It could have been replaced by another one since the transaction began.",
            hint="BEGIN ISOLATION LEVEL READ COMMITTED, or share it outside of a transaction.",
        )


def _to_share(name: str, services: Services) -> list[str]:
    """Return a release that the caller may share, as it is now."""
    kept = services.database.execute(_OWN, [("text", name)])[0]
    if not kept[-1]:
        raise PermissionDenied(
            "must be owner of all relations of the release",
            detail="Who reads a release pays for it, and owners decide who may.",
            hint="Ask the owner of the relations for"
            f" SELECT dp.share_release({literal(str(kept[0]))}, <role>);",
        )
    return [str(value) for value in kept[:-3]]


def charge_share(paid: Mapping[str, Any], services: Services) -> int:
    """Charge the role that `share` names, in a service session; return the spend."""
    epsilon, delta, rho, rho_delta = map(Fraction, paid["amounts"])
    role, spend = int(paid["role"]), int(paid["spend"])
    opened = services.ledger.open(
        Charge(
            role=role,
            role_name=paid["role_name"],
            roots=(),
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            rho_delta=rho_delta,
            mechanism=paid["mechanism"],
            method=paid["method"],
            label=PROVED,
            question=paid["question"],
            key=f"release {spend} {role}".encode(),
            what="share",
            shared=spend,
        )
    )
    if not isinstance(opened, Hit):
        raise InternalError("a measurement that exists was to be computed")
    return opened.spend
