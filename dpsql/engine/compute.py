"""Run and noise: read counts and boundaries in one snapshot, bound, perturb.

Everything before `release` is exact and secret; everything after may leave the database
(PRIVACY.md section 2).  The two never travel through SQL text, parameters or messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine.payload import Payload
from dpsql.engine.price import AggregateQuote, Quote

if TYPE_CHECKING:
    from dpsql.engine.groups import Key
    from dpsql.engine.services import Services
    from dpsql.model import Counts


def compute(quote: Quote, services: Services) -> Payload:
    """Answer a charged question: exact counts in, perturbed values out."""
    from dpsql.statistics.counts import count

    exact = [
        count(aggregate.query, aggregate.boundaries, services.database)
        for aggregate in quote.aggregates
    ]
    groups = quote.groups
    if groups is None:
        present = set().union(*(counts.groups for counts in exact))
        groups = sorted(present, key=_order)
    columns: list[list[int | None]] = []
    scales: list[str | None] = []
    for aggregate, counts in zip(quote.aggregates, exact, strict=True):
        values, scale = _release(aggregate, counts, groups, services)
        columns.append(values)
        scales.append(scale)
    if quote.groups is None:
        kept = [i for i in range(len(groups)) if any(c[i] is not None for c in columns)]
        groups = [groups[i] for i in kept]
        columns = [[c[i] for i in kept] for c in columns]
    return Payload(
        groups=groups,
        values=columns,
        scales=scales,
        mechanism=quote.mechanism,
        method=quote.method,
        label=quote.label,
    )


def _release(
    aggregate: AggregateQuote,
    counts: Counts,
    groups: list[Key],
    services: Services,
) -> tuple[list[int | None], str | None]:
    true = [counts.groups.get(key, 0) for key in groups]
    if aggregate.plan.name == "exact":
        return list(true), "0"
    from dpsql.core.sensitivity import bound

    smooth = bound(
        aggregate.query.shape(), counts.boundaries, aggregate.plan.beta, aggregate.method
    )
    release = aggregate.plan.release(true, smooth.exact, services.noise)
    values: list[int | None] = list(release.values)
    if release.shown is not None:
        values = [v if shown else None for v, shown in zip(values, release.shown, strict=True)]
    return values, None if release.scale is None else str(release.scale)


def _order(key: Key) -> tuple[tuple[bool, str], ...]:
    return tuple((part is None, part or "") for part in key)
