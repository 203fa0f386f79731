"""Analyse: from the statement's text to a validated question, cached per backend.

A cached plan holds no answers and no identity.  A statement whose analysis folds something
that changes with time or with settings (CURRENT_DATE, functions that are not immutable) is
analysed each time.  It is used again only while its
fingerprint is unchanged: declarations, columns, keys, foreign keys and their triggers,
indexes and view definitions of everything it names (PRIVACY.md section 1: dropping a
constraint invalidates plans that relied on it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.errors import NotAnswerable
from dpsql.model import Question

if TYPE_CHECKING:
    from dpsql.engine.services import Services

MAX_PLANS = 256


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question with what its validity hangs on."""

    text: str
    question: Question
    relations: tuple[int, ...]
    fingerprint: str


def prepare(
    text: str,
    parameters: Sequence[str | None] | None,
    services: Services,
    *,
    use_keys: bool = True,
) -> Prepared:
    """Return the validated question of ``text``, from the cache when nothing changed.

    ``use_keys`` says whether validated foreign keys may remove joins.
    """
    zone = services.catalog.time_zone
    key = (text, None if parameters is None else tuple(parameters), use_keys, zone)
    known = services.plans.get(key)
    if known is not None:
        if services.catalog.fingerprint(known.relations) == known.fingerprint:
            return known
        del services.plans[key]
    from dpsql.query.pipeline import analyse

    analysis = services.catalog.analyze(text, parameters)
    try:
        question = analyse(analysis, services.catalog, use_keys=use_keys)
    except NotAnswerable as error:
        error.query = str(analysis["sql"])
        raise
    named = (relation["oid"] for relation in analysis["relations"])
    relations = tuple(sorted({*services.catalog.seen, *named}))
    fingerprint = services.catalog.fingerprint(relations)
    prepared = Prepared(str(analysis["sql"]), question, relations, fingerprint)
    if services.catalog.immutable(analysis["functions"]) and not analysis["sqlvalue"]:
        while len(services.plans) >= MAX_PLANS:
            services.plans.pop(next(iter(services.plans)))
        services.plans[key] = prepared
    return prepared
