"""Aggregates that read only public relations, or report no group: exact and free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.core.mechanisms.base import Exactly, Release
from dpsql.counted import Counts
from dpsql.engine.methods.base import Method, SensitivityMethod, Terms
from dpsql.engine.methods.plans import Exact, ResultCounts, narrowed
from dpsql.engine.methods.rows import values_of

if TYPE_CHECKING:
    from dpsql.engine.request import Settings
    from dpsql.engine.services import Services
    from dpsql.model import JoinQuery, Key
    from dpsql.ports import Database

_NOTHING = "nothing to protect"


@dataclass(frozen=True, slots=True)
class PublicMethod(SensitivityMethod[Exactly]):
    """An aggregate to which no noise is added."""

    @classmethod
    def answers(cls, query: JoinQuery, groups: int | None) -> bool:
        """Whether there are no protected relations, or no groups."""
        return query.shape().private_count == 0 or groups == 0

    @classmethod
    def quote(cls, query: JoinQuery, terms: Terms, database: Database) -> PublicMethod:
        """Return the method, which costs nothing."""
        return cls(query, Exactly())

    @property
    def name(self) -> str:
        """``public``."""
        return "public"

    @property
    def identity(self) -> str:
        """The name; there are no parameters."""
        return self.name

    @property
    def has_constant_sensitivity(self) -> bool:
        """True: the sensitivity is 0."""
        return True

    @property
    def has_public_scale(self) -> bool:
        """True: nothing is counted to bound the sensitivity."""
        return True

    def plan(self) -> ResultCounts:
        """Count results."""
        return ResultCounts(self.query)

    def release(self, exact: Exact, groups: list[Key], services: Services) -> Release:
        """Return the exact numbers."""
        counts = narrowed(Counts, exact)
        found = values_of(self.query, counts, self.query.counted_keys(groups))
        return Release(_exactly(self.query, found), Fraction(0))

    def counting_sql(self, database: Database) -> str:
        """Write the counting statement."""
        from dpsql.engine.methods.statements import of_results

        return of_results(self.query, frozenset(), database)

    @classmethod
    def why(cls, methods: Sequence[Method], settings: Settings) -> str:
        """There is nothing to protect."""
        return _NOTHING

    @classmethod
    def why_mechanism(
        cls, methods: Sequence[Method], settings: Settings, *, groups_known: bool
    ) -> str:
        """There is nothing to protect."""
        return _NOTHING


def _exactly(query: JoinQuery, counts: Iterable[Any]) -> list[int]:
    """Return exact numbers, or the cells of exact ranks."""
    if query.rank is None:
        return list(counts)
    from dpsql.core.mechanisms.percentile import Sought, exact

    return exact(counts, Sought(query.rank, query.cells))
