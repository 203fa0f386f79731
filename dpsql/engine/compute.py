"""Run and noise: read counts and boundaries in one snapshot, bound, perturb.

Everything before `release` is exact and secret; everything after may leave the database
(PRIVACY.md section 2).  The two never travel through SQL text, parameters or messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.core.mechanisms.base import Release
from dpsql.counted import Contributions, Counts
from dpsql.engine.groups import most_groups, order
from dpsql.engine.payload import Payload
from dpsql.engine.price import AggregateQuote, Quote
from dpsql.engine.read import Exact, read
from dpsql.engine.several import release_several
from dpsql.engine.ticking import Ticking
from dpsql.engine.truncated import Truncated
from dpsql.errors import InternalError

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.model import JoinQuery, Key


def compute(quote: Quote, services: Services) -> Payload:
    """Answer a charged question: exact counts in, perturbed values out.

    Where public facts exclude every group nothing is read, and nothing was charged.
    """
    if quote.groups == []:
        nothing: list[str | None] = [None for _ in quote.aggregates]
        return Payload([], [[] for _ in nothing], nothing, "exact", quote.method, quote.label)
    return services.database.at_one_moment(read_by(quote), lambda: _computed(quote, services))


def read_by(quote: Quote) -> list[int]:
    """Return the relations that answering reads."""
    queries = [aggregate.query for aggregate in quote.aggregates]
    return sorted({o.relation.oid for query in queries for o in query.occurrences})


def over_units(quote: Quote) -> bool:
    """Tell whether units bear rows of several moments: they name their unit, one in each result.

    Each vector is a sum, cut off unit by unit, of what rows of one unit tell in one statement
    (docs/citus.md, theorem).
    """
    occurrences = (o for a in quote.aggregates for o in a.query.occurrences)
    return all(isinstance(a.bounding, Truncated) for a in quote.aggregates) and not any(
        path.hops for o in occurrences for path in o.relation.units
    )


def _computed(quote: Quote, services: Services) -> Payload:
    queries = [aggregate.query for aggregate in quote.aggregates]
    exact = read(quote, services)
    groups = quote.groups
    released: dict[int, Release] = {}
    if groups is None:
        groups, released = _select(quote, exact, services)
    for j, aggregate in enumerate(quote.aggregates):
        if j not in released:
            released[j] = release(aggregate, exact[j], groups, services)
    numbers = range(len(quote.aggregates))
    return Payload(
        groups=groups,
        values=in_order(queries, [[*released[j].values] for j in numbers]),
        scales=[None if (s := released[j].scale) is None else str(s) for j in numbers],
        mechanism=quote.mechanism,
        method=quote.method,
        label=quote.label,
    )


def _select(
    quote: Quote, exact: list[Exact], services: Services
) -> tuple[list[Key], dict[int, Release]]:
    """Decide which groups are shown: one vector decides for all (PRIVACY.md section 6).

    The threshold is for groups that are present, no others.
    """
    j = quote.question.selection
    grouped = None if j is None else exact[j]
    if j is None or not isinstance(grouped, Counts | Contributions):
        raise InternalError("nothing selects the groups")
    present = sorted((key for key, value in grouped.groups.items() if value), key=order)
    found = release(quote.aggregates[j], grouped, present, services)
    shown = found.shown or [True] * len(present)
    kept = [
        (key, value) for key, value, seen in zip(present, found.values, shown, strict=True) if seen
    ]
    kept = largest(kept, most_groups(quote.question))
    return [key for key, _ in kept], {j: Release([value for _, value in kept], found.scale)}


def largest(shown: list[tuple[Key, int]], most: int | None) -> list[tuple[Key, int]]:
    """Keep so many groups with the largest numbers that select them, in their order.

    A function of released values (PRIVACY.md section 2 (b)).
    """
    if most is None or len(shown) <= most:
        return shown
    kept = sorted(shown, key=lambda found: (-found[1], order(found[0])))[:most]
    return sorted(kept, key=lambda found: order(found[0]))


def in_order(
    queries: Sequence[JoinQuery], values: list[list[int | None]]
) -> list[list[int | None]]:
    """Exchange cells of one argument among its ranks so that they never fall from rank to rank.

    A function of released values (docs/proofs/percentile.md).
    """
    alike: dict[JoinQuery, list[int]] = {}
    for j, query in enumerate(queries):
        if query.rank is not None:
            alike.setdefault(replace(query, rank=None), []).append(j)
    found = [*values]
    for numbers in alike.values():
        numbers.sort(key=lambda j: queries[j].rank or Fraction(0))
        columns = [values[j] for j in numbers]
        rows = [sorted(row, key=lambda cell: cell or 0) for row in zip(*columns, strict=True)]
        for place, j in enumerate(numbers):
            found[j] = [row[place] for row in rows]
    return found


def release(
    aggregate: AggregateQuote, exact: Exact, groups: list[Key], services: Services
) -> Release:
    """Perturb one vector, by what was read for it; of a group all cells follow each other."""
    query = aggregate.query
    if not isinstance(exact, Counts | Contributions):
        return release_several(aggregate.plan, exact, services)
    noise = Ticking(services.noise, services.database.tick)
    if query.cells and query.rank is None:
        groups = [key for group in groups for key in query.cells_of(group)]
    found: Release
    if isinstance(exact, Contributions):
        found = aggregate.plan.release(exact, groups, noise)
        return found
    true: Iterable[Any]
    if query.rank is None:
        true = [exact.groups.get(key, 0) for key in groups]
    else:  # group by group: together they may have very many cells
        counts = exact.groups
        true = ([counts.get(c, 0) for c in query.cells_of(key)] for key in groups)
    if aggregate.plan.name == "exact":
        return Release(_public(query, true), Fraction(0))
    smooth = aggregate.bounding.smooth(query.plain, exact, aggregate.beta, services)
    # as many values come or go with a row as results, each of them as large as the bound at most
    sensitivity = smooth.exact * (query.weights[0].bound if query.weights else 1)
    found = aggregate.plan.release(true, sensitivity, noise)
    return found


def _public(query: JoinQuery, counts: Iterable[Any]) -> list[int]:
    """Return the exact numbers of public relations."""
    if query.rank is None:
        return list(counts)
    from dpsql.core.mechanisms.percentile import Sought, exact

    return exact(counts, Sought(query.rank, query.cells))
