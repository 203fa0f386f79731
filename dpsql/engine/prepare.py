"""Analyse: from the statement's text to a validated question, cached per backend.

A cached plan holds no answers and no identity.  It is used again only while its
fingerprint is unchanged: declarations, columns, keys, foreign keys and their triggers,
indexes and view definitions of everything it names (PRIVACY.md section 1: dropping a
constraint invalidates plans that relied on it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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


def prepare(text: str, services: Services) -> Prepared:
    """Return the validated question of ``text``, from the cache when nothing changed."""
    known: Prepared | None = services.plans.get(text)
    if known is not None:
        if services.catalog.fingerprint(known.relations) == known.fingerprint:
            return known
        del services.plans[text]
    from dpsql.query.pipeline import analyse

    analysis = services.catalog.analyze(text)
    question = analyse(analysis, services.catalog)
    relations = tuple(sorted({*services.catalog.seen, *(r["oid"] for r in analysis["relations"])}))
    prepared = Prepared(text, question, relations, services.catalog.fingerprint(relations))
    while len(services.plans) >= MAX_PLANS:
        services.plans.pop(next(iter(services.plans)))
    services.plans[text] = prepared
    return prepared
