"""Read: exact counts and sums of all vectors of a question, in one snapshot.

Everything here is exact and secret (PRIVACY.md section 2).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.engine.methods.plans import Exact, Plan
    from dpsql.engine.price import Quote
    from dpsql.engine.services import Services


def read(quote: Quote, services: Services) -> list[Exact]:
    """Run the plans of all aggregates, those of one class and key together."""
    together: dict[tuple[type, Hashable], list[tuple[int, Plan]]] = {}
    found: dict[int, Exact] = {}
    for j, aggregate in enumerate(quote.aggregates):
        plan = aggregate.plan()
        together.setdefault((type(plan), plan.key), []).append((j, plan))
    for numbered in together.values():
        plans = [plan for _, plan in numbered]
        exact = plans[0].read_all(plans, services)
        found.update(zip((j for j, _ in numbered), exact, strict=True))
    return [found[j] for j in range(len(quote.aggregates))]
