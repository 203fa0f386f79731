"""Counts of results that belong to several units: how they are quoted, read and released."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core.mechanisms.base import Release
from dpsql.core.mechanisms.truncation import Limits
from dpsql.engine.bounding import PROVED
from dpsql.engine.request import Settings
from dpsql.engine.truncated import require_units
from dpsql.errors import InternalError
from dpsql.model import Boundary, JoinQuery

if TYPE_CHECKING:
    from dpsql.core.mechanisms.linear import LinearRace
    from dpsql.core.mechanisms.linear_quantile import LinearQuantile
    from dpsql.core.packing import Memberships
    from dpsql.core.smooth import SmoothBound
    from dpsql.engine.services import Services


@dataclass(frozen=True, slots=True)
class Several:
    """The method of questions whose results can belong to several units."""

    limits: Limits
    method: str = "truncation"
    label: str = PROVED
    constant: bool = False
    eta: Fraction = Fraction(0)
    alpha: float = 0.0
    boundaries: frozenset[Boundary] = frozenset()

    @property
    def identity(self) -> str:
        """The method, and where every unit is cut off at the latest."""
        return f"truncation of several {self.limits}"

    def smooth(self, *_: object) -> SmoothBound:
        """Fail: there is no bound of the sensitivity."""
        raise InternalError("a truncated count has no smooth bound")


def several(settings: Settings, epsilon: Fraction) -> tuple[Several, LinearRace | LinearQuantile]:
    """Plan the answer from settings and public facts.

    Raises
    ------
    InvalidParameter
        When the settings ask for what this cannot give.
    """
    from dpsql.core.mechanisms.linear import plan

    require_units(settings)
    chosen = int(settings.max_rows_contributed)
    limits = Limits(chosen or int(settings.max_contribution), fixed=bool(chosen))
    return Several(limits), plan(settings.mechanism, epsilon, limits)


def read_several(query: JoinQuery, services: Services) -> Memberships:
    """Read how many results have which units: exact and secret."""
    from dpsql.statistics.memberships import memberships

    return memberships(query, services.database)


def release_several(
    plan: LinearRace | LinearQuantile, found: Memberships, services: Services
) -> Release:
    """Perturb the one count."""
    return plan.release(found, services.noise, services.database.tick)
