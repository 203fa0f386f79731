"""Plans: what a method reads, which is exact and secret (PRIVACY.md, section 2).

Plans of one class with equal keys are read together.  Aggregates have equal keys if they differ
only in what is summed; over privacy units their FILTERs may differ as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar, Union

from dpsql.counted import Contributions, Counts
from dpsql.errors import InternalError
from dpsql.model import Boundary, JoinQuery

if TYPE_CHECKING:
    from dpsql.core.packing import Memberships
    from dpsql.engine.services import Services

Exact = Union[Counts, Contributions, "Memberships"]
_Read = TypeVar("_Read")


class Plan(Protocol):
    """What is read for one aggregate."""

    @property
    def key(self) -> Hashable:
        """Plans of the same class with equal keys are read together."""
        ...

    def read_all(self, plans: Sequence[Plan], services: Services) -> list[Exact]:
        """Read several plans of this class and key, this one among them."""
        ...


@dataclass(frozen=True, slots=True)
class ResultCounts:
    """Counts or sums of a join's results, and the boundaries that bound its sensitivity."""

    query: JoinQuery
    boundaries: frozenset[Boundary] = frozenset()

    @property
    def key(self) -> JoinQuery:
        """The query without what is summed over its results."""
        return replace(self.query, weights=(), rank=None)

    def read_all(self, plans: Sequence[Plan], services: Services) -> list[Exact]:
        """Count the boundaries once for all aggregates over the same results."""
        from dpsql.statistics.counts import count
        from dpsql.statistics.sums import sums

        same = of_class(ResultCounts, plans)
        queries = [plan.query for plan in same]
        boundaries = frozenset().union(*(plan.boundaries for plan in same))
        counted = any(not _is_summed(query) for query in queries)
        counts = Counts({}, {})
        if counted or boundaries:
            counts = count(queries[0].plain, boundaries, services.database, answer=counted)
        others = [query for query in queries if _is_summed(query)]
        found = iter(sums(others, services.database) if others else ())
        return [
            replace(counts, groups=next(found)) if _is_summed(query) else counts
            for query in queries
        ]


@dataclass(frozen=True, slots=True)
class UnitContributions:
    """What each privacy unit adds to each group, cut off at each of several bounds."""

    query: JoinQuery
    bounds: tuple[int, ...]
    reach: int = 0

    @property
    def key(self) -> JoinQuery:
        """The query without its FILTER and what is summed over its results."""
        from dpsql.statistics.contributions import alike

        return alike(self.query)

    def read_all(self, plans: Sequence[Plan], services: Services) -> list[Exact]:
        """Add up per unit in one pass."""
        from dpsql.statistics.contributions import contributions

        same = of_class(UnitContributions, plans)
        # all plans have the same reach, since it follows from settings and public groups
        reach = max(plan.reach for plan in same)
        queries, bounds = [plan.query for plan in same], [plan.bounds for plan in same]
        return [*contributions(queries, bounds, services.database, reach=reach)]


@dataclass(frozen=True, slots=True)
class ResultMemberships:
    """The number of results, or the sum over them, for each set of units that results have."""

    query: JoinQuery

    @property
    def key(self) -> JoinQuery:
        """The query itself."""
        return self.query

    def read_all(self, plans: Sequence[Plan], services: Services) -> list[Exact]:
        """Read each plan; a question has no two aggregates with equal queries."""
        from dpsql.statistics.memberships import memberships

        same = of_class(ResultMemberships, plans)
        return [memberships(plan.query, services.database) for plan in same]


def of_class(kind: type[_Read], found: Sequence[object]) -> list[_Read]:
    """Narrow a list whose elements must all be of one class."""
    return [narrowed(kind, each) for each in found]


def narrowed(kind: type[_Read], found: object) -> _Read:
    """Return ``found``, which must be of a class.

    Raises
    ------
    InternalError
        When a method is given values that the plan of another method read.
    """
    if not isinstance(found, kind):
        raise InternalError(f"expected {kind.__name__}, got {type(found).__name__}")
    return found


def _is_summed(query: JoinQuery) -> bool:
    """Whether the aggregate is more than a count by attributes."""
    return bool(query.weights or query.distinct or query.computed)
