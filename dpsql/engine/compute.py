"""Run and noise: read counts and boundaries in one snapshot, bound, perturb.

Everything before `release` is exact and secret; everything after may leave the database
(PRIVACY.md section 2).  The two never travel through SQL text, parameters or messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dpsql.engine.groups import order
from dpsql.engine.payload import Payload
from dpsql.engine.price import AggregateQuote, Quote
from dpsql.engine.several import Several, read_several, release_several
from dpsql.engine.truncated import Truncated
from dpsql.model import Contributions

if TYPE_CHECKING:
    from dpsql.core.packing import Memberships
    from dpsql.engine.services import Services
    from dpsql.model import Counts, Key


def compute(quote: Quote, services: Services) -> Payload:
    """Answer a charged question: exact counts in, perturbed values out.

    Where public facts exclude every group nothing is read, and nothing was charged.
    """
    if quote.groups == []:
        nothing = [None for _ in quote.aggregates]
        return Payload([], [[] for _ in nothing], [*nothing], "exact", quote.method, quote.label)
    queries = [aggregate.query for aggregate in quote.aggregates]
    services.database.before_reading(
        sorted({o.relation.oid for query in queries for o in query.occurrences})
    )
    exact = [_read(aggregate, services) for aggregate in quote.aggregates]
    groups = quote.groups
    if groups is None:
        present = set().union(*(counts.groups for counts in exact if hasattr(counts, "groups")))
        groups = sorted(present, key=order)
    columns: list[list[int | None]] = []
    scales: list[str | None] = []
    for aggregate, counts in zip(quote.aggregates, exact, strict=True):
        values, scale = _release(aggregate, counts, groups, services, unknown=quote.groups is None)
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


def _read(aggregate: AggregateQuote, services: Services) -> Counts | Contributions | Memberships:
    """Count exactly, per unit where units are protected."""
    if isinstance(aggregate.bounding, Several):
        return read_several(aggregate.query, services)
    if isinstance(aggregate.bounding, Truncated):
        from dpsql.statistics.contributions import contributions

        return contributions(aggregate.query, services.database)
    from dpsql.statistics.counts import count

    return count(aggregate.query, aggregate.bounding.boundaries, services.database)


def _release(
    aggregate: AggregateQuote,
    counts: Counts | Contributions | Memberships,
    groups: list[Key],
    services: Services,
    *,
    unknown: bool,
) -> tuple[list[int | None], str | None]:
    if isinstance(aggregate.bounding, Several):
        return release_several(aggregate.plan, cast("Memberships", counts), services)
    counts = cast("Counts | Contributions", counts)
    if isinstance(counts, Contributions):
        release = aggregate.plan.release(counts, groups, services.noise)
        shown = release.shown or [True] * len(groups)
        cut = [v if seen else None for v, seen in zip(release.values, shown, strict=True)]
        return cut, None if release.scale is None else str(release.scale)
    true = [counts.groups.get(key, 0) for key in groups]
    # PRIVACY.md section 6: the threshold is for groups that are present, no others
    present = [i for i, n in enumerate(true) if n > 0 or not unknown]
    if aggregate.plan.name == "exact":
        return list(true), "0"
    smooth = aggregate.bounding.smooth(aggregate.query, counts, aggregate.beta, services)
    release = aggregate.plan.release([true[i] for i in present], smooth.exact, services.noise)
    values: list[int | None] = [None] * len(true)
    for n, i in enumerate(present):
        if release.shown is None or release.shown[n]:
            values[i] = release.values[n]
    return values, None if release.scale is None else str(release.scale)
