"""Bounds of the smooth sensitivity of a join under row neighbours.

A bound is chosen from public facts.  Its ``boundaries`` are counted with the answer, in the same
snapshot.  `SensitivityBound.smooth` computes the smooth sensitivity from them and from the other
data that the bound reads (PRIVACY.md, section 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.methods.base import PROVED
from dpsql.model import Boundary, JoinQuery

if TYPE_CHECKING:
    from dpsql.core.smooth import SmoothBound
    from dpsql.counted import Counts
    from dpsql.engine.services import Services
    from dpsql.ports import Database


@dataclass(frozen=True, slots=True)
class SensitivityBound(ABC):
    """How the smooth sensitivity of an aggregate is bounded.

    Attributes
    ----------
    method : str
        Name in the setting ``dp.method``.
    use_keys : bool
        Whether trusted keys may sharpen the bound.
    """

    method: str
    use_keys: bool

    @abstractmethod
    def smooth(
        self, query: JoinQuery, counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Return the smooth sensitivity at ``beta``, which is exact and secret."""

    @property
    def identity(self) -> str:
        """What determines the distribution of the bound; part of the key of stored answers."""
        return self.method

    @property
    def label(self) -> str:
        """``proved`` or ``heuristic``."""
        return PROVED

    @property
    def constant(self) -> bool:
        """Whether the sensitivity is a public constant."""
        return False

    @property
    def eta(self) -> Fraction:
        """Probability that the bound is too small or not smooth."""
        return Fraction(0)

    @property
    def boundaries(self) -> frozenset[Boundary]:
        """The boundaries that are counted exactly together with the answer."""
        return frozenset()

    @property
    def reads_own_rows(self) -> bool:
        """Whether the bound reads rows of its own aggregate only, in the answer's snapshot."""
        return False

    @property
    def from_storage(self) -> bool:
        """Whether stored statistics give the bound."""
        return False

    def left_out(self, query: JoinQuery, database: Database) -> Iterable[int]:
        """Return the occurrences whose boundaries other servers could only send row by row."""
        return ()


@dataclass(frozen=True, slots=True)
class CountedBound(SensitivityBound):
    """Residual or elastic sensitivity from exact counts of the answer's snapshot."""

    is_constant: bool
    wanted: frozenset[Boundary]

    @property
    def constant(self) -> bool:
        """Whether the shape of the join makes it constant."""
        return self.is_constant

    @property
    def boundaries(self) -> frozenset[Boundary]:
        """The boundaries that the bound needs."""
        return self.wanted

    @property
    def reads_own_rows(self) -> bool:
        """True: the counts are of the aggregate's own rows."""
        return True

    def smooth(
        self, query: JoinQuery, counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Compute the bound from the counts."""
        from dpsql.core.sensitivity import bound

        tick = services.database.tick
        return bound(query.shape(), counts.boundaries, beta, self.method, self.use_keys, tick)

    def left_out(self, query: JoinQuery, database: Database) -> Iterable[int]:
        """Return what residual or elastic sensitivity does not count."""
        from dpsql.core.sensitivity import left_out

        method = "elastic" if self.method == "elastic" else "residual"
        return left_out(query.shape(), method, self.use_keys, database.tick)
