"""Counts under unit neighbours: nothing is bounded before, each unit is cut off (section 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core.mechanisms import truncation
from dpsql.core.mechanisms.percentile import OfUnits, Sought, plan_units
from dpsql.engine.bounding import PROVED
from dpsql.engine.request import Settings
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Boundary, JoinQuery, Weight

if TYPE_CHECKING:
    from dpsql.core.smooth import SmoothBound


#: No bound of sums is smaller than this part of the largest value that was declared or written.
_FINEST = 1024


@dataclass(frozen=True, slots=True)
class Truncated:
    """The method of questions over privacy units: no sensitivity is estimated.

    Of each unit the results in ``reach`` of its groups count; 0: in all.  ``whole``: no unit can
    have more in them than the bound, so that none is cut off.
    """

    limits: truncation.Limits
    reach: int = 0
    method: str = "truncation"
    label: str = PROVED
    least: int = 0
    whole: bool = False
    constant: bool = False
    eta: Fraction = Fraction(0)
    alpha: float = 0.0
    boundaries: frozenset[Boundary] = frozenset()

    @property
    def identity(self) -> str:
        """The method, and where every unit is cut off at the latest."""
        return f"truncation {self.limits} {self.least} {self.reach}"

    def smooth(self, *_: object) -> SmoothBound:
        """Fail: there is no bound of the sensitivity."""
        raise InternalError("a truncated count has no smooth bound")


def truncated(
    query: JoinQuery,
    settings: Settings,
    epsilon: Fraction,
    delta: Fraction | None,
    groups: int | None,
) -> tuple[Truncated, truncation.Quantile | truncation.RaceToTheTop | OfUnits]:
    """Choose how units are cut off, from settings and public facts.

    ``groups`` is ``None`` where they are not public, and ``delta`` where nothing is hidden.

    Raises
    ------
    InvalidParameter
        When the settings ask for what is for rows only.
    """
    require_units(settings)
    limits = limits_of(query, settings, groups)
    reach = reach_of(query, settings, groups)
    least = int(settings.min_frequency) if delta is not None else 0
    if query.rank is not None:
        ranked = plan_units(settings.mechanism, epsilon, limits, Sought(query.rank, query.cells))
        return Truncated(limits, reach, whole=is_whole(query)), ranked
    single = groups == 1 and not query.groups
    plan = truncation.plan(settings.mechanism, epsilon, delta, limits, single=single, least=least)
    return Truncated(limits, reach, least=least, whole=is_whole(query)), plan


def is_whole(query: JoinQuery) -> bool:
    """Tell whether public facts bound what a unit has by what its noise is for.

    Keys, so that it has one result, and for sums the declared or written bounds of values; or it is
    the units themselves that are counted, without groups.
    """
    if query.unit is None:
        return False
    if query.distinct == (query.unit,):
        return not query.groups
    if any(weight.loose for weight in query.weights):
        return False
    return query.determined_by(frozenset({query.unit}))


def require_units(settings: Settings) -> None:
    """Refuse a method that is for single rows."""
    if settings.method not in ("auto", "truncation"):
        raise InvalidParameter(
            f"the method {settings.method} is for relations that are protected row by row",
            detail="Rows of this question belong to privacy units.",
            hint="Use SET dp.method = auto.",
        )


def reach_of(query: JoinQuery, settings: Settings, groups: int | None) -> int:
    """Tell in how many groups a unit may have results; 0 where nothing bounds that."""
    most = int(settings.max_groups_contributed)
    if not query.groups or (groups is not None and groups <= most):
        return 0
    return most


def limits_of(query: JoinQuery, settings: Settings, groups: int | None) -> truncation.Limits:
    """Tell how much a unit can contribute, from the question and the settings."""
    chosen = int(settings.max_rows_contributed)
    if query.distinct == (query.unit,):
        # a unit is one value in each of its groups
        if not query.groups:
            return truncation.Limits(1, fixed=True)
        most = int(settings.max_contribution)
        chosen = int(settings.max_groups_contributed)
        if groups is not None:
            most = min(most, groups)
        return truncation.Limits(min(chosen or most, most), fixed=bool(chosen))
    rows = chosen or int(settings.max_contribution)
    once = query.unit is not None and query.determined_by(frozenset({query.unit}))
    if once:  # by keys, so that the bound need not be paid for
        rows = 1
    if query.weights:
        (weight,) = query.weights
        return replace(largest_sum(weight, rows), fixed=once and not weight.loose)
    return truncation.Limits(rows, fixed=once or bool(chosen))


def largest_sum(weight: Weight, rows: int) -> truncation.Limits:
    """Tell how much a unit of so many results can contribute to a sum."""
    if weight.loose:
        # nobody says how large values are: not below one, since each power of ten costs units
        least = min(10**weight.digits, weight.bound)
        return truncation.Limits(rows * weight.bound, signed=weight.low < 0, least=least)
    # noise a thousandth of the largest value is little: smaller bounds only compete with better
    least = max(weight.bound // _FINEST, 1)
    return truncation.Limits(rows * weight.bound, signed=weight.low < 0, least=least)
