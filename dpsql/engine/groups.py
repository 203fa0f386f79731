"""The groups that an answer reports: products of public domains (PRIVACY.md section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from dpsql.errors import NotAnswerable
from dpsql.model import GroupDomain, Key, Question

if TYPE_CHECKING:
    from dpsql.engine.prepare import Prepared
    from dpsql.engine.services import Services
    from dpsql.ports import Database

MAX_GROUPS = 1_000_000
#: Cells of histograms, and of the ranges that percentiles are sought in, of all groups together.
MAX_CELLS = 4_000_000
#: Rows of a domain between two moments at which a cancel is noticed.
_AT_ONCE = 10_000


def confirmed_groups(prepared: Prepared, services: Services) -> list[Key] | None:
    """Return `public_groups` of relations that are public now, as they are in the snapshot.

    Looked at before and after: what was read, or how many groups a refusal counted, could be of
    another relation that took over a public one's name.
    """
    services.catalog.confirm(prepared.relations, prepared.fingerprint)
    try:
        groups = public_groups(prepared.question, services.database)
    except NotAnswerable:
        services.catalog.confirm(prepared.relations, prepared.fingerprint)
        raise
    if prepared.question.group_domains:
        services.catalog.confirm(prepared.relations, prepared.fingerprint)
    return groups


def listed_groups(prepared: Prepared, services: Services) -> list[Key] | None:
    """Return `public_groups` where declared domains alone give them; no relation is read."""
    domains = prepared.question.group_domains
    if domains is None or any(domain.query is not None for domain in domains):
        return None
    return public_groups(prepared.question, services.database)


def public_groups(question: Question, database: Database) -> list[Key] | None:
    """List every group of the declared or public domains, sorted by domain order.

    Reads public relations and declared domains only, so it may run before the charge.

    Returns
    -------
    list of tuple or None
        One tuple of texts per group, ``[()]`` without GROUP BY; ``None`` when some key's
        domain is not public (groups then need private thresholding).

    Raises
    ------
    NotAnswerable
        When the product has more than ``MAX_GROUPS`` groups.
    """
    if not question.group_keys:
        return [()]
    if question.group_domains is None:
        return None
    parts = [domain_values(domain, database) for domain in question.group_domains]
    size = prod(len(part) for part in parts)
    if size > MAX_GROUPS:
        raise NotAnswerable(
            "the query has too many groups",
            detail=f"The domains of its group keys have {size} combinations; "
            f"at most {MAX_GROUPS} are reported.",
            hint="Group by fewer or coarser keys.",
        )
    groups: list[Key] = []
    for number, combination in enumerate(product(*parts)):
        if number % _AT_ONCE == 0:
            database.tick()
        key: list[str | None] = [None] * len(question.group_keys)
        for domain, row in zip(question.group_domains, combination, strict=True):
            for position, value in zip(domain.positions, row, strict=True):
                key[position] = None if value is None else str(value)
        groups.append(tuple(key))
    return groups


def require_few_cells(question: Question, groups: int) -> None:
    """Refuse what would have too many numbers to perturb; ``groups`` is public.

    Raises
    ------
    NotAnswerable
        When the groups have more than ``MAX_CELLS`` cells together.
    """
    cells = sum(query.cells for query in question.aggregates)
    if groups * cells > MAX_CELLS:
        have = "Its one group has" if groups == 1 else f"Each of its {groups} groups has"
        raise NotAnswerable(
            "the query has too many cells",
            detail=f"{have} {cells}; at most {MAX_CELLS} are perturbed.",
            hint="Group by fewer or coarser keys, or give dp_histogram fewer cells.",
        )


def most_groups(question: Question) -> int | None:
    """Return how many groups are shown at most where they are not public; ``None``: all.

    So many have ``MAX_CELLS`` cells together; it is never refused after the charge.
    """
    cells = sum(query.cells for query in question.aggregates)
    return MAX_CELLS // cells if cells else None


def domain_values(domain: GroupDomain, database: Database) -> Sequence[tuple[object, ...]]:
    """Read one domain; of a public query only which groups it has, in a fixed order."""
    if domain.query is None:
        return [row for rows in database.stream(domain.sql or "", _AT_ONCE) for row in rows]
    from dpsql.statistics.counts import count

    return sorted(count(domain.query, (), database).groups, key=order)


def order(key: Key) -> tuple[tuple[bool, str], ...]:
    """Sort keys by text, NULL last."""
    return tuple((part is None, part or "") for part in key)
