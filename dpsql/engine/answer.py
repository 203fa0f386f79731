"""One request from text to answer.

`answer` reads: prepare, look the text up, list public groups, price, debit and run, finish.
The charge is durable before any private row is read and is kept whatever happens
afterwards (PRIVACY.md section 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.engine.compute import compute, read_by
from dpsql.engine.finish import finish, rehearse, shape
from dpsql.engine.groups import confirmed_groups, listed_groups
from dpsql.engine.methods.base import HEURISTIC
from dpsql.engine.payload import Payload
from dpsql.engine.prepare import (
    Prepared,
    confirm_read,
    meet,
    meet_again,
    prepare,
    prepared_before,
)
from dpsql.engine.price import Quote, price
from dpsql.engine.request import Role, Settings
from dpsql.engine.undeclared import (
    misspelt,
    unbounded,
    uncovered,
    unjoined,
    warning,
    without_effect,
)
from dpsql.errors import LedgerUnavailable, UnsupportedConstruct
from dpsql.ledger.model import Charge, Hit
from dpsql.model import Key, OutputColumn

if TYPE_CHECKING:
    from dpsql.engine.services import Services


def answer(
    text: str,
    parameters: Sequence[str | None] | None,
    role: Role,
    settings: Settings,
    services: Services,
    *,
    intervals: bool = False,
) -> tuple[Prepared, list[tuple[object, ...]]]:
    """Answer one statement privately.

    Parameters
    ----------
    text : str
        One SELECT statement with ``dp_count`` aggregates, as the hook deparsed it.
    parameters : sequence of str or None
        Literals for ``$1 ...``.
    role : Role
        Who pays: the role in effect at execution.
    settings : Settings
        Privacy parameters of this query.
    services : Services
        The ports.
    intervals : bool
        Whether to give intervals around all columns that can have one, at ``dp.confidence``; this
        may need another mechanism, and then is another question.

    Returns
    -------
    prepared : Prepared
        The question that was answered (for its output columns, those of intervals included).
    rows : list of tuple
        The result rows, in order.

    Raises
    ------
    DpsqlError
        Of a class that says what is wrong; nothing is spent unless it is `ReleaseFailed` or
        says so.
    """
    # What was paid for reads no protected row, so what it relies on may be looked up the cheap
    # way.  Whatever comes after it is prepared as the statement's snapshot shows it.
    known = prepared_before(text, parameters, services)
    if known is not None:
        asked, text_key = _asked(known, role, settings, intervals=intervals)
        rows = _paid(asked, text_key, role, settings, services)
        if rows is None:
            rows = _released(asked, listed_groups(asked, services), role, settings, services)
        if rows is not None:
            return asked, rows
    found = prepare(text, parameters, services)
    prepared, text_key = _asked(found, role, settings, intervals=intervals)
    if found is not known:
        rows = _paid(prepared, text_key, role, settings, services)
        if rows is not None:
            return prepared, rows
    _meet_before_public_groups(prepared, services)
    groups = confirmed_groups(prepared, services)
    rows = _released(prepared, groups, role, settings, services)
    if rows is not None:
        return prepared, rows
    quote = price(
        prepared.question,
        groups,
        settings,
        services.database,
        want_interval=prepared.question.wants_interval,
    )
    if prepared.question.wants_interval and not intervals and (told := uncovered(quote)):
        services.note(told)
    payload = _debit_and_run(quote, prepared, text_key, role, settings, services)
    return prepared, finish(
        prepared.question, payload, services.database, settings.confidence, services.note
    )


def _asked(
    prepared: Prepared, role: Role, settings: Settings, *, intervals: bool
) -> tuple[Prepared, bytes]:
    """Return the question with the intervals that are wanted, and the identity of its text."""
    _require_plain(prepared.question.columns)
    if intervals:
        from dpsql.engine.intervals import with_intervals

        prepared = with_intervals(prepared, reach=settings.max_groups_contributed > 0)
    return prepared, _text_key(prepared, role, settings)


def _paid(
    prepared: Prepared, text_key: bytes, role: Role, settings: Settings, services: Services
) -> list[tuple[object, ...]] | None:
    """Return the stored answer that the role has paid for; ``None`` if there is none."""
    if not prepared.question.roots or settings.fresh:
        return None
    hit = services.ledger.peek(role.oid, text_key)
    if hit is None:
        return None
    payload = _stored(hit, services)
    return finish(prepared.question, payload, services.database, settings.confidence, services.note)


def _released(
    prepared: Prepared,
    groups: list[Key] | None,
    role: Role,
    settings: Settings,
    services: Services,
) -> list[tuple[object, ...]] | None:
    """Return what a release that the role may read tells; ``None`` where none does."""
    if not prepared.question.roots or groups is None:
        return None
    from dpsql.engine.from_release import serve

    served = serve(prepared, groups, role, settings, services)
    if served is None:
        return None
    payload, said = served
    services.note(said)
    return finish(prepared.question, payload, services.database, settings.confidence, services.note)


def _meet_before_public_groups(prepared: Prepared, services: Services) -> None:
    """Meet the other servers before public relations on them are read, which would fix a moment."""
    occurrences = {o.relation for q in prepared.question.aggregates for o in q.occurrences}
    public = sorted(r.oid for r in occurrences if not r.private)
    if prepared.question.roots and public and services.database.reads_shards(public):
        every = sorted(r.oid for r in occurrences)
        meet(every, prepared.relations, prepared.fingerprint, services)


def _require_plain(columns: Sequence[OutputColumn]) -> None:
    """Refuse columns of domains: a constraint of one could refuse public values, or be any code."""
    for column in columns:
        if column.domain:
            raise UnsupportedConstruct(
                f'the result\'s column "{column.name}" is of the domain {column.domain}',
                detail="Its constraints would run on the answer.",
                hint=f"Write it as {column.type_name}: CAST({column.source or '...'} AS"
                f" {column.type_name}), and group by that.",
            )


def _debit_and_run(
    quote: Quote,
    prepared: Prepared,
    text_key: bytes,
    role: Role,
    settings: Settings,
    services: Services,
) -> Payload:
    if not quote.reads_private:
        payload = compute(quote, services)
        services.catalog.confirm(prepared.relations, prepared.fingerprint)
        return payload
    services.facts.once(
        ("rehearsed", prepared.fingerprint, _digest(shape(quote.question))),
        lambda: rehearse(quote.question, services.database, settings.confidence),
    )
    # before the charge: whoever hears it can still be refused, or cancel
    if quote.groups is None:
        services.warn(*warning(quote))
    if quote.question.loose:
        services.warn(*unbounded(quote))
    if quote.question.unlisted:
        services.warn(*misspelt(quote.question))
    if told := unjoined(quote):
        services.warn(*told)
    if idle := without_effect(quote, settings):
        services.note(idle)
    # a client that does not read what it is told must not keep those waiting who ask the same
    _say_heuristic(quote.label, quote.method, services)
    if quote.groups != []:
        meet(*_met(quote, prepared), services, by_steps=_by_steps(quote))
    opened = services.ledger.open(charge(quote, prepared, text_key, role, settings))
    if isinstance(opened, Hit):
        return Payload.load(opened.payload)
    met = False
    try:
        _meet_again(quote, prepared, services)
        met = True
        payload = compute(quote, services)
        confirm_read(prepared.relations, prepared.fingerprint, services)
    except BaseException as error:
        services.give_up(opened, error, read=met)
        raise
    try:
        services.store(opened, payload.dump)
    except LedgerUnavailable:
        services.warn(
            "the answer could not be stored",
            "The question was charged and this is its answer; the ledger went away meanwhile.",
            "Keep it: asking the same question again is charged again.",
        )
    return payload


def _meet_again(quote: Quote, prepared: Prepared, services: Services) -> None:
    """Refuse what was charged if it is declared otherwise than when it was priced.

    Groups of public relations stay those that were priced, whatever these list by now: else whoever
    writes to them would have others charged for no answer (PRIVACY.md section 10).
    """
    if quote.groups != []:
        meet_again(*_met(quote, prepared), services, by_steps=_by_steps(quote))


def _met(quote: Quote, prepared: Prepared) -> tuple[list[int], tuple[int, ...], str]:
    """Return what answering reads, and how it was declared."""
    return read_by(quote), prepared.relations, prepared.fingerprint


def _by_steps(quote: Quote) -> bool:
    """Tell whether nothing of a question needs rows of one moment."""
    return all(a.reads_in_steps for a in quote.aggregates)


def charge(
    quote: Quote, prepared: Prepared, text_key: bytes | None, role: Role, settings: Settings
) -> Charge:
    """Return what the ledger is asked to charge for a quoted question."""
    zcdp = quote.zcdp
    return Charge(
        role=role.oid,
        role_name=role.name,
        roots=quote.question.roots,
        epsilon=quote.guarantee.epsilon,
        delta=quote.guarantee.delta,
        rho=zcdp.rho,
        rho_delta=zcdp.delta,
        mechanism=quote.mechanism,
        method=quote.method,
        label=quote.label,
        question=prepared.text,
        key=cache_key(quote, prepared.fingerprint),
        fresh=settings.fresh,
        text_key=text_key,
        objects=prepared.relations,
        token=hashlib.sha256(prepared.fingerprint.rpartition("#")[0].encode()).digest(),
        fingerprint=prepared.fingerprint,
    )


def _stored(hit: Hit, services: Services) -> Payload:
    payload = Payload.load(hit.payload)
    _say_heuristic(payload.label, payload.method, services)
    return payload


def _say_heuristic(label: str, method: str, services: Services) -> None:
    """Tell with every answer that its method is not proved to be private."""
    if label == HEURISTIC:
        services.warn(
            f"heuristic: the method {method} is not proved to be private",
            "The owners of all protected relations of the question allowed such methods.",
            "SET dp.method = auto answers with a proof.",
        )


def cache_key(quote: Quote, fingerprint: str) -> bytes:
    """Return the identity of a question: everything that determines the law of its answer.

    The canonical text holds relation OIDs and folded constants, the fingerprint the versions of
    declarations, columns and constraints; the groups stand for the domains' version; then
    method, mechanism and the privacy parameters.
    """
    parts = (
        fingerprint.rpartition("#")[0],  # behind it: where rows are read, which answers outlive
        quote.question.canonical,
        repr(quote.groups),
        *(a.identity for a in quote.aggregates),
        repr(quote.shares),
        quote.mechanism,
        str(quote.guarantee.epsilon),
        str(quote.guarantee.delta),
        repr(quote.question.roots),
        # Only if it hides groups, so that other keys stay those of earlier versions.
        *(f"least {n}" for a in quote.aggregates if (n := a.least_groups)),
    )
    return hashlib.sha256("\x1f".join(parts).encode()).digest()


def _digest(shape: object) -> bytes:
    """Shorten a key that holds the text of a statement."""
    return hashlib.sha256(repr(shape).encode()).digest()


def _text_key(prepared: Prepared, role: Role, settings: Settings) -> bytes:
    """Return the identity of an exact text that a role asks under these declarations and settings.

    The role is part of it: a role's text leads to the answer that this role paid for.  The same
    words can be another question for a role that asks later, after groups of public relations
    changed.
    """
    parts = (
        str(role.oid),
        prepared.text,
        prepared.fingerprint,
        prepared.question.canonical,
        settings.method,
        str(settings.sampling_rate),
        str(settings.max_contribution),
        str(settings.max_groups_contributed),
        str(settings.max_rows_contributed),
        str(settings.min_frequency),
        str(settings.sampling_filter),
        settings.statistics,
        settings.mechanism,
        str(settings.epsilon),
        str(settings.delta),
        # an interval may need another mechanism: the same text is another question then
        "intervals" if prepared.question.wants_interval else "",
    )
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
