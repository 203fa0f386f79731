"""Run and noise: read counts and boundaries in one snapshot, bound, perturb.

Everything before `SensitivityMethod.release` is exact and secret; everything after may leave the
database (PRIVACY.md section 2).  The two never travel through SQL text, parameters or messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core.mechanisms.base import Release
from dpsql.engine.groups import most_groups, order
from dpsql.engine.payload import Payload
from dpsql.engine.price import Quote
from dpsql.engine.read import read
from dpsql.errors import InternalError

if TYPE_CHECKING:
    from dpsql.engine.methods.plans import Exact
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


def _computed(quote: Quote, services: Services) -> Payload:
    queries = [aggregate.query for aggregate in quote.aggregates]
    exact = read(quote, services)
    groups = quote.groups
    released: dict[int, Release] = {}
    if groups is None:
        groups, released = _select(quote, exact, services)
    for j, aggregate in enumerate(quote.aggregates):
        if j not in released:
            released[j] = aggregate.release(exact[j], groups, services)
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
    if j is None:
        raise InternalError("nothing selects the groups")
    aggregate = quote.aggregates[j]
    present = sorted(aggregate.present(exact[j]), key=order)
    found = aggregate.release(exact[j], present, services)
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
