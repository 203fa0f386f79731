"""How the sensitivity of one aggregate is bounded: what a quote knows, and the bound itself.

A *bounding* is part of the quote.  ``boundaries`` are counted with the answer, in the same
snapshot; ``smooth`` turns them, and what else it reads, into the smooth bound.  One that may
fail says with which probability (``eta``): the guarantee of a mechanism that uses it is that
of the mechanism plus ``(ln(1/(1 - eta)), eta)`` (PRIVACY.md section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from dpsql.counted import Counts
from dpsql.errors import PermissionDenied
from dpsql.model import Boundary, JoinQuery

if TYPE_CHECKING:
    from dpsql.core.smooth import SmoothBound
    from dpsql.engine.services import Services

PROVED, HEURISTIC = "proved", "heuristic"


class Bounding(Protocol):
    """What a quote knows of the bound, and how the bound is found once it is paid for."""

    @property
    def method(self) -> str:
        """Name of the sensitivity method."""
        ...

    @property
    def label(self) -> str:
        """``proved`` or ``heuristic``."""
        ...

    @property
    def identity(self) -> str:
        """All that determines the law of the bound, for the key of stored answers."""
        ...

    @property
    def constant(self) -> bool:
        """Whether the sensitivity is a public constant."""
        ...

    @property
    def eta(self) -> Fraction:
        """Probability with which the bound may be too small or not smooth."""
        ...

    @property
    def alpha(self) -> float:
        """What a mechanism's beta loses to the two-sided error of ``ln S``."""
        ...

    @property
    def boundaries(self) -> frozenset[Boundary]:
        """What must be counted exactly together with the answer."""
        ...

    def smooth(
        self, query: JoinQuery, counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Return the smooth bound at ``beta``: exact and secret."""
        ...


@dataclass(frozen=True, slots=True)
class Counted:
    """Residual or elastic sensitivity from exact counts of this snapshot."""

    method: str
    constant: bool
    boundaries: frozenset[Boundary]
    use_keys: bool = True
    label: str = PROVED
    eta: Fraction = Fraction(0)
    alpha: float = 0.0

    @property
    def identity(self) -> str:
        """The method says it all."""
        return self.method

    def smooth(
        self, query: JoinQuery, counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Bound from the counts."""
        from dpsql.core.sensitivity import bound

        tick = services.database.tick
        return bound(query.shape(), counts.boundaries, beta, self.method, self.use_keys, tick)


NOTHING = Counted("public", constant=True, boundaries=frozenset())
"""Of a count that reads public relations only or reports no group: it is not perturbed."""


def require_permission(query: JoinQuery, bounding: Bounding) -> None:
    """Refuse a method without proof unless every owner allowed it (PRIVACY.md section 4)."""
    if bounding.label == PROVED:
        return
    closed = sorted(
        {
            o.relation.shown
            for o in query.occurrences
            if o.relation.private and not o.relation.heuristic
        }
    )
    if closed:
        raise PermissionDenied(
            f"the method {bounding.method} is not proved to be private on this question",
            detail=f"Methods without proof are not allowed on: {', '.join(closed)}.",
            hint="Use SET dp.method = auto, or let the owner of the data call "
            f"dp.allow_heuristic('{closed[0]}').",
        )


def paid_for_failure(eta: Fraction) -> Fraction:
    """Return what a failure probability costs in epsilon: at least ``ln(1/(1 - eta))``."""
    return eta / (1 - eta)
