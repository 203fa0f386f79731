"""Refusals of a statement's analysis, kept per backend while nothing changes that they hang on.

A refusal follows from the text, from who asks and from public facts: the system catalogue and
what owners declared (PRIVACY.md section 2 (c)).  While statements see the same version of those
(``sql/hook/version.c``), the same text is refused with the same words.  It is counted each time
(``dp.refusals``), since that is done where errors leave.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.errors import NotAnswerable
    from dpsql.query.catalog import Circumstances

MAX_REFUSALS = 256
#: Longer statements are analysed again; together the others take some 25 MB.
MAX_LENGTH = 15_000
#: OIDs below are PostgreSQL's own.
FIRST_OWN = 16384


def raise_again(key: object, here: Circumstances, services: Services) -> None:
    """Raise the refusal that is known of ``key``, if it still holds."""
    known = services.refusals.get((key, here.asker))
    if known is None:
        return
    version, error = known
    if here.version == version:
        raise copy.copy(error)
    del services.refusals[key, here.asker]


def keep(
    key: object,
    here: Circumstances,
    analysis: Mapping[str, Any],
    error: NotAnswerable,
    services: Services,
) -> None:
    """Keep a refusal of a statement that was analysed, for who asked.

    Not where anything but its text and the catalogue had a part in it: the time or a setting,
    code or types that somebody made, rows of a public relation.
    """
    if here.version is None or not services.catalog.lasting:
        return
    if len(analysis["sql"]) > MAX_LENGTH:
        return
    if analysis["sqlvalue"] or any(int(oid) >= FIRST_OWN for oid in analysis["types"]):
        return
    if services.catalog.folds(analysis["functions"]):
        return
    while len(services.refusals) >= MAX_REFUSALS:
        services.refusals.pop(next(iter(services.refusals)))
    services.refusals[key, here.asker] = (here.version, copy.copy(error))
