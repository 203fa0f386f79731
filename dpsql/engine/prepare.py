"""Analyse: from the statement's text to a validated question, cached per backend.

A cached plan holds no answers and no identity.  A statement whose analysis folds something
that changes with time or with settings (CURRENT_DATE, functions that are not immutable), or
lists rows of a public relation as a domain, is analysed each time.  It is used again only while its
fingerprint is unchanged: declarations, columns, keys, foreign keys and their triggers,
indexes and view definitions of everything it names (PRIVACY.md section 1: dropping a
constraint invalidates plans that relied on it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.engine.refused import FIRST_OWN, keep, raise_again
from dpsql.errors import (
    ChangedWhileRead,
    DeclarationsChanged,
    NotAnswerable,
    UnsupportedConstruct,
)
from dpsql.model import JoinQuery, Question

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.query.asked import Reads
    from dpsql.relation import UnitPath

#: Plans that a session keeps, and characters of their texts; a plan has some 15 bytes for each.
MAX_PLANS = 256
MAX_TEXTS = 4_000_000
DEFAULT_COLLATION = 100
#: How enums are written: stable as their labels may change, which the fingerprint shows.
ENUM_OUT = 3507


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question with what its validity hangs on.

    ``relations`` holds the OIDs of everything that it names: relations, types, collations.
    ``reads`` finds releases that answer it; ``collated``: texts are not all compared by the
    database's own collation.
    """

    text: str
    question: Question
    relations: tuple[int, ...]
    fingerprint: str
    named: tuple[int, ...] = ()
    reads: Reads | None = None
    collated: bool = False


def prepare(
    text: str,
    parameters: Sequence[str | None] | None,
    services: Services,
    *,
    use_keys: bool = True,
    ways: Sequence[UnitPath] = (),
) -> Prepared:
    """Return the validated question of ``text``, from the cache when nothing changed.

    ``use_keys`` says whether validated foreign keys may remove joins, ``ways`` by which units
    results are counted (`dpsql.query.units.attribute_units`).
    """
    here = services.facts.here = services.catalog.circumstances()
    key = _key(text, parameters, here.zone, use_keys=use_keys, ways=ways)
    raise_again(key, here, services)
    known = services.plans.get(key)
    if known is not None:
        services.catalog.lock(known.named)
        # The statement was analysed with the rights of whoever asked then.
        allowed = services.catalog.may_name(known.named)
        if allowed and services.catalog.fingerprint(known.relations) == known.fingerprint:
            return known
        del services.plans[key]
    from dpsql.query.pipeline import analyse_with_reads

    analysis = services.catalog.analyze(text, parameters)
    try:
        question, reads = analyse_with_reads(
            analysis, services.catalog, use_keys=use_keys, ways=ways
        )
    except NotAnswerable as error:
        error.query = str(analysis["sql"])
        keep(key, here, analysis, error, services)
        raise
    collated = bool(set(analysis["collations"]) - {0, DEFAULT_COLLATION})
    if collated:
        check_collations(question.aggregates, services)
    named, relations = names_of(analysis, services)
    fingerprint = services.catalog.fingerprint(relations)
    read = str(analysis["sql"])
    prepared = Prepared(read, question, relations, fingerprint, named, reads, collated)
    called = sorted({*analysis["functions"]} - {ENUM_OUT})
    lasting = not services.catalog.of_rows and not analysis["sqlvalue"]
    if lasting and services.catalog.immutable(called):
        together = len(read) + sum(len(plan.text) for plan in services.plans.values())
        while services.plans and (len(services.plans) >= MAX_PLANS or together > MAX_TEXTS):
            together -= len(services.plans.pop(next(iter(services.plans))).text)
        services.plans[key] = prepared
    return prepared


def prepared_before(
    text: str, parameters: Sequence[str | None] | None, services: Services
) -> Prepared | None:
    """Return the question of ``text`` as this session knows it, to show what was paid for.

    It locks nothing, so nothing protected may be read by it: `prepare` first.
    """
    here = services.facts.here = services.catalog.circumstances()
    known = services.plans.get(_key(text, parameters, here.zone))
    if known is None or not services.catalog.may_name(known.named):
        return None
    now = services.catalog.fingerprint(known.relations)
    return known if now == known.fingerprint else None


def _key(
    text: str,
    parameters: Sequence[str | None] | None,
    zone: str,
    *,
    use_keys: bool = True,
    ways: Sequence[UnitPath] = (),
) -> tuple[object, ...]:
    """Return what a kept plan is found by."""
    return (text, None if parameters is None else tuple(parameters), use_keys, zone, tuple(ways))


def names_of(
    analysis: Mapping[str, Any], services: Services
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the relations that a text names, and all that its validity hangs on, by OID."""
    named = tuple(int(relation["oid"]) for relation in analysis["relations"])
    own = (oid for kind in ("types", "collations") for oid in analysis[kind])
    seen = {*services.catalog.seen, *named, *(int(oid) for oid in own if int(oid) >= FIRST_OWN)}
    return named, tuple(sorted(seen))


def confirm_read(relations: Sequence[int], fingerprint: str, services: Services) -> None:
    """Refuse what was counted, and charged, if anything was swapped under a name meanwhile."""
    try:
        services.catalog.confirm(relations, fingerprint)
    except DeclarationsChanged:
        raise ChangedWhileRead(
            "a relation or a declaration changed while it was read",
            hint="Ask again when the change is done.",
        ) from None


def meet(
    read: Sequence[int],
    relations: Sequence[int],
    fingerprint: str,
    services: Services,
    *,
    by_steps: bool = False,
    charged: bool = False,
) -> None:
    """Meet the servers with parts of what will be ``read``, as declared by ``fingerprint``."""

    def check() -> None:
        (confirm_moved if charged else confirm_met)(relations, fingerprint, services)

    services.database.meet(read, check, named=relations, by_steps=by_steps, charged=charged)


def meet_again(
    read: Sequence[int],
    relations: Sequence[int],
    fingerprint: str,
    services: Services,
    *,
    by_steps: bool = False,
) -> None:
    """Meet once more where the charge ended the transaction in which the question was priced.

    What was declared otherwise meanwhile is refused.
    """
    if services.moved:
        confirm_moved(relations, fingerprint, services)
        meet(read, relations, fingerprint, services, by_steps=by_steps, charged=True)


def confirm_moved(relations: Sequence[int], fingerprint: str, services: Services) -> None:
    """Refuse where the snapshot that is read was taken after a change of what was charged."""
    if services.catalog.fingerprint(relations) != fingerprint:
        raise ChangedWhileRead(
            "a relation or a declaration changed while it was read",
            hint="Ask again when the change is done.",
        )


def confirm_met(relations: Sequence[int], fingerprint: str, services: Services) -> None:
    """Refuse, before the charge, what was declared otherwise at the moment that will be read.

    All questions of a transaction on parts on several servers read as of the first one's moment,
    whatever the snapshot of their own statement shows.
    """
    if services.catalog.fingerprint(relations) != fingerprint:
        raise DeclarationsChanged(
            "a relation or a declaration of the question has changed meanwhile",
            detail="Its parts on other servers are read as of the transaction's first question.",
        )


def require_rows(question: Question, what: str) -> None:
    """Refuse what is defined for single rows only where rows belong to privacy units.

    The sensitivity to a row says nothing about a unit, which may have any number of rows.
    """
    if any(query.over_units for query in question.aggregates):
        raise UnsupportedConstruct(
            f"{what} is for relations that are protected row by row",
            detail="Rows of this question belong to privacy units, which are cut off instead.",
        )


def require_built_in(types: Sequence[int], what: str) -> None:
    """Refuse a text that is kept to be read again and names a type that is not built in.

    Reading a literal runs code of its type, as whoever reads it later, and the name could mean
    another type by then.
    """
    if any(int(oid) >= FIRST_OWN for oid in types):
        raise UnsupportedConstruct(
            f"{what} that uses a type which is not built in",
            hint="Leave out conditions and columns of such types: filters do not matter here.",
        )


def check_collations(queries: Sequence[JoinQuery], services: Services) -> None:
    """Refuse what cannot be written as one counting statement because of its collations.

    Flattening makes the collations of derived columns explicit, and two explicit ones may meet;
    PostgreSQL would say so only after the question was charged.
    """
    from dpsql.query import refusals
    from dpsql.query.counting_sql import counting_sql
    from dpsql.query.elimination import make_plan
    from dpsql.query.screen import INDETERMINATE

    for query in queries:
        plan = make_plan(query, (), answer=True, tick=services.database.tick)
        if INDETERMINATE in services.catalog.analyze_counting(counting_sql(plan))["constructs"]:
            refusals.refuse("indeterminate_collation")
