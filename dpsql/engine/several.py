"""Counts and sums of results of several units: how they are quoted, read and released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core.mechanisms.base import Release
from dpsql.core.mechanisms.truncation import Limits
from dpsql.engine.bounding import PROVED
from dpsql.engine.request import Settings
from dpsql.engine.truncated import largest_sum, require_units
from dpsql.errors import InternalError
from dpsql.model import Boundary, JoinQuery, Weight

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
        raise InternalError("what is truncated has no smooth bound")


def several(
    query: JoinQuery, settings: Settings, epsilon: Fraction
) -> tuple[Several, LinearRace | LinearQuantile]:
    """Plan the answer from the question, settings and public facts.

    Raises
    ------
    InvalidParameter
        When the settings ask for what this cannot give.
    """
    from dpsql.core.mechanisms.linear import plan

    require_units(settings)
    chosen = int(settings.max_rows_contributed)
    limits = Limits(chosen or int(settings.max_contribution), fixed=bool(chosen))
    signs: tuple[int, ...] = (1,)
    if query.weights:
        from dpsql.core.packing import HIGHEST

        limits = largest_sum(query.weights[0], limits.largest)
        limits = replace(limits, largest=min(limits.largest, HIGHEST))
        signs = _signs(query.weights[0])
    return Several(limits), plan(settings.mechanism, epsilon, limits, signs)


def _signs(weight: Weight) -> tuple[int, ...]:
    """Tell whether values can add (1) and take away (-1), from their public bounds."""
    if weight.low < 0 < weight.high:
        return 1, -1
    return (-1,) if weight.low < 0 else (1,)


def read_several(query: JoinQuery, services: Services) -> Memberships:
    """Read how many results have which units, or what they add up to: exact and secret."""
    from dpsql.statistics.memberships import memberships

    return memberships(query, services.database)


def release_several(
    plan: LinearRace | LinearQuantile, found: Memberships, services: Services
) -> Release:
    """Perturb the one count or sum."""
    return plan.release(found, services.noise, services.database.tick)
