"""Read: exact counts and sums of all vectors of a question, in one snapshot.

Vectors that differ only in what is summed are read together, and over units also those that differ
in their FILTERs.  Everything here is exact and secret (PRIVACY.md section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Union, cast

from dpsql.counted import Contributions, Counts
from dpsql.engine.several import Several, read_several
from dpsql.engine.truncated import Truncated
from dpsql.model import JoinQuery

if TYPE_CHECKING:
    from dpsql.core.packing import Memberships
    from dpsql.engine.price import AggregateQuote, Quote
    from dpsql.engine.services import Services

Exact = Union[Counts, Contributions, "Memberships"]


def read(quote: Quote, services: Services) -> list[Exact]:
    """Count and sum exactly, per unit where units are protected."""
    from dpsql.statistics.contributions import alike

    together: dict[tuple[bool, JoinQuery], list[int]] = {}
    found: dict[int, Exact] = {}
    for j, aggregate in enumerate(quote.aggregates):
        if isinstance(aggregate.bounding, Several):
            found[j] = read_several(aggregate.query, services)
            continue
        over_units = isinstance(aggregate.bounding, Truncated)
        query = aggregate.query
        shared = alike(query) if over_units else replace(query, weights=(), rank=None)
        together.setdefault((over_units, shared), []).append(j)
    for (over_units, _), numbers in together.items():
        aggregates = [quote.aggregates[j] for j in numbers]
        parts: Sequence[Exact]
        parts = _contributions(aggregates, services) if over_units else _rows(aggregates, services)
        found.update(zip(numbers, parts, strict=True))
    return [found[j] for j in range(len(quote.aggregates))]


def _contributions(aggregates: list[AggregateQuote], services: Services) -> list[Contributions]:
    from dpsql.statistics.contributions import contributions

    queries = [aggregate.query for aggregate in aggregates]
    bounds = [aggregate.plan.bounds for aggregate in aggregates]
    # a function of the settings and of which groups are public, hence the same for all
    reach = max(cast("Truncated", aggregate.bounding).reach for aggregate in aggregates)
    return contributions(queries, bounds, services.database, reach=reach)


def _rows(aggregates: list[AggregateQuote], services: Services) -> list[Counts]:
    """Count under row neighbours: boundaries once for all that read the same results."""
    from dpsql.statistics.counts import count
    from dpsql.statistics.sums import sums

    queries = [aggregate.query for aggregate in aggregates]
    boundaries = frozenset().union(*(a.bounding.boundaries for a in aggregates))
    counted = any(not _summed(query) for query in queries)
    counts = Counts({}, {})
    if counted or boundaries:
        counts = count(queries[0].plain, boundaries, services.database, answer=counted)
    others = [query for query in queries if _summed(query)]
    found = iter(sums(others, services.database) if others else ())
    return [replace(counts, groups=next(found)) if _summed(query) else counts for query in queries]


def _summed(query: JoinQuery) -> bool:
    """Tell what is no plain count by attributes."""
    return bool(query.weights or query.distinct or query.computed)
