"""Counts and sums of results that can belong to several privacy units (PRIVACY.md, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from dpsql.core.mechanisms.base import Release
from dpsql.core.mechanisms.linear import LinearRace
from dpsql.core.mechanisms.linear_quantile import LinearQuantile
from dpsql.core.mechanisms.truncation import Limits
from dpsql.core.packing import HIGHEST, Memberships
from dpsql.engine.methods.base import Method, SensitivityMethod, Terms
from dpsql.engine.methods.plans import Exact, ResultMemberships, narrowed
from dpsql.engine.methods.units import largest_sum, require_units, told_by_settings

if TYPE_CHECKING:
    from dpsql.engine.request import Settings
    from dpsql.engine.services import Services
    from dpsql.model import JoinQuery, Key, Weight
    from dpsql.ports import Database

MultiUnitMechanism = LinearRace | LinearQuantile


@dataclass(frozen=True, slots=True)
class MultiUnitMethod(SensitivityMethod[MultiUnitMechanism]):
    """One count or sum, in which linear programs cut off what each unit contributes.

    Attributes
    ----------
    limits : Limits
        How much a unit can contribute.
    """

    limits: Limits
    units_per_result: ClassVar[int] = 2

    @classmethod
    def answers(cls, query: JoinQuery, groups: int | None) -> bool:
        """Whether results can belong to several units."""
        return bool(query.units)

    @classmethod
    def quote(cls, query: JoinQuery, terms: Terms, database: Database) -> MultiUnitMethod:
        """Choose how units are cut off."""
        from dpsql.core.mechanisms.linear import plan

        settings = terms.settings
        require_units(settings)
        chosen = int(settings.max_rows_contributed)
        limits = Limits(chosen or int(settings.max_contribution), fixed=bool(chosen))
        signs: tuple[int, ...] = (1,)
        if query.weights:
            limits = largest_sum(query.weights[0], limits.largest)
            limits = replace(limits, largest=min(limits.largest, HIGHEST))
            signs = _signs(query.weights[0])
        return cls(query, plan(settings.mechanism, terms.epsilon, limits, signs), limits)

    @property
    def name(self) -> str:
        """``truncation``."""
        return "truncation"

    @property
    def identity(self) -> str:
        """The method, and the largest bound at which units are cut off."""
        return f"truncation of several {self.limits.identity}"

    @property
    def reads_own_rows(self) -> bool:
        """False: a single aggregate has the whole budget, so nothing is composed in parallel."""
        return False

    @property
    def cuts_units(self) -> bool:
        """True: no public fact bounds what a unit contributes."""
        return True

    @property
    def bound_is_set(self) -> bool:
        """Whether only one bound is possible."""
        return isinstance(self.mechanism, LinearQuantile) and len(self.mechanism.bounds) == 1

    @property
    def bound_is_settable(self) -> bool:
        """Whether a bound of the number of results is drawn."""
        return self.mechanism.name == "quantile" and not self.query.weights

    def plan(self) -> ResultMemberships:
        """Count or sum results by the units that they belong to."""
        return ResultMemberships(self.query)

    def release(self, exact: Exact, groups: list[Key], services: Services) -> Release:
        """Add noise to the count or sum."""
        found = narrowed(Memberships, exact)
        return self.mechanism.release(found, services.noise, services.database.tick)

    def counting_sql(self, database: Database) -> str:
        """Write the statement of memberships."""
        from dpsql.engine.methods.statements import of_memberships

        return of_memberships(self.query, database)

    @classmethod
    def why(cls, methods: Sequence[Method], settings: Settings) -> str:
        """Name the linear program."""
        return "a linear program cuts every unit of a result off at a bound"

    @classmethod
    def why_mechanism(
        cls, methods: Sequence[Method], settings: Settings, *, groups_known: bool
    ) -> str:
        """Say what ``dp.mechanism`` or the bound decided."""
        told = told_by_settings(methods, settings, groups_known=groups_known)
        drawn = "the bound is drawn with two fifths of epsilon; results can belong to several units"
        return drawn if told is None else told


def _signs(weight: Weight) -> tuple[int, ...]:
    """Tell whether values can add (1) and take away (-1), from their public bounds."""
    if weight.low < 0 < weight.high:
        return 1, -1
    return (-1,) if weight.low < 0 else (1,)
