"""Relations of privacy units: what a unit contributes is cut off (PRIVACY.md, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from dpsql.core.mechanisms import truncation
from dpsql.core.mechanisms.base import Release
from dpsql.core.mechanisms.percentile import OfUnits, Sought, plan_units
from dpsql.counted import Contributions
from dpsql.engine.methods.base import Method, SensitivityMethod, Terms
from dpsql.engine.methods.plans import Exact, UnitContributions, narrowed
from dpsql.engine.ticking import Ticking
from dpsql.errors import InvalidParameter
from dpsql.model import JoinQuery, Key, Weight

if TYPE_CHECKING:
    from dpsql.engine.request import Settings
    from dpsql.engine.services import Services
    from dpsql.ports import Database

UnitMechanism = truncation.Quantile | truncation.RaceToTheTop | OfUnits
#: No bound of a sum is smaller than 1/128 of the largest value that is declared or given.  Each
#: smaller one would cost accuracy where there are few units (docs/proofs/truncation.md).
_FINEST = 128
#: The sum of a unit is usually at most so many steps of 1, where values have no declared bounds.
USUAL = 16


@dataclass(frozen=True, slots=True)
class UnitMethod(SensitivityMethod[UnitMechanism]):
    """A count or sum whose results belong to one privacy unit each.

    Attributes
    ----------
    limits : Limits
        How much a unit can contribute.
    groups_of_unit : int
        In how many groups the results of a unit count; 0: in all.
    whole : bool
        Whether no unit can have more than the bound, so that none is cut off.
    least : int
        The least noisy number of units of a group that is shown.
    """

    limits: truncation.Limits
    groups_of_unit: int = 0
    whole: bool = False
    least: int = 0
    units_per_result: ClassVar[int] = 1

    @classmethod
    def answers(cls, query: JoinQuery, groups: int | None) -> bool:
        """Whether each result belongs to one unit, which an attribute names."""
        return query.unit is not None and not query.units

    @classmethod
    def quote(cls, query: JoinQuery, terms: Terms, database: Database) -> UnitMethod:
        """Choose how units are cut off; only the aggregate that selects groups takes delta."""
        settings = terms.settings
        require_units(settings)
        limits = limits_of(query, settings, terms.groups)
        reach = reach_of(query, settings, terms.groups)
        least = int(settings.min_frequency) if terms.selects else 0
        mechanism: UnitMechanism
        if query.rank is not None:
            sought = Sought(query.rank, query.cells)
            mechanism = plan_units(settings.mechanism, terms.epsilon, limits, sought)
            return cls(query, mechanism, limits, reach, is_whole(query))
        mechanism = truncation.plan(
            settings.mechanism,
            terms.epsilon,
            settings.delta if terms.selects else None,
            limits,
            single=terms.groups == 1 and not query.groups,
            least=least,
        )
        return cls(query, mechanism, limits, reach, is_whole(query), least)

    @property
    def name(self) -> str:
        """``truncation``."""
        return "truncation"

    @property
    def identity(self) -> str:
        """The method, and the largest bound at which units are cut off."""
        return f"truncation {self.limits.identity} {self.least} {self.reach}"

    @property
    def reads_in_steps(self) -> bool:
        """Whether every relation has a column that names the unit.

        The answer is then a sum over units.  One statement reads all rows of a unit, which is cut
        off without regard to other units (docs/citus.md, theorem).
        """
        return not any(path.hops for o in self.query.occurrences for path in o.relation.units)

    @property
    def least_groups(self) -> int:
        """The least noisy number of units of a group that is shown."""
        return int(getattr(self.mechanism, "least", 0))

    @property
    def cuts_units(self) -> bool:
        """Whether no public fact bounds what a unit contributes."""
        return not self.whole

    @property
    def reach(self) -> int:
        """The attribute `groups_of_unit`."""
        return self.groups_of_unit

    @property
    def bound_is_set(self) -> bool:
        """Whether only one bound is possible."""
        return self.mechanism.name != "r2t" and len(self.mechanism.bounds) == 1

    @property
    def bound_is_settable(self) -> bool:
        """Whether a bound of the number of results is drawn."""
        return (
            self.mechanism.name == "quantile"
            and not self.query.weights
            and self.query.distinct != (self.query.unit,)
        )

    @property
    def epsilon_of_bound(self) -> Fraction:
        """The part of epsilon that the mechanism spends on the bound."""
        drawn = self.mechanism
        return drawn.epsilon_choice if isinstance(drawn, truncation.Quantile) else Fraction(0)

    def plan(self) -> UnitContributions:
        """Add up what each unit contributes."""
        return UnitContributions(self.query, self.mechanism.bounds, self.groups_of_unit)

    def present(self, exact: Exact) -> list[Key]:
        """Return the groups that have results."""
        return [key for key, found in narrowed(Contributions, exact).groups.items() if found]

    def release(self, exact: Exact, groups: list[Key], services: Services) -> Release:
        """Cut units off and add noise."""
        noise = Ticking(services.noise, services.database.tick)
        keys = self.query.counted_keys(groups)
        return self.mechanism.release(narrowed(Contributions, exact), keys, noise)

    def counting_sql(self, database: Database) -> str:
        """Write the statement of contributions."""
        from dpsql.engine.methods.statements import of_units

        return of_units(self.query, self.mechanism.bounds, database)

    @classmethod
    def why(cls, methods: Sequence[Method], settings: Settings) -> str:
        """Say whether units are cut off, and at which bound."""
        if all(isinstance(m, UnitMethod) and m.whole for m in methods):
            if any(m.reach for m in methods):
                return "of each unit some groups count, in which it has one result"
            return "a unit counts once, by keys, so that nothing is cut off"
        if all(m.bound_is_set for m in methods):
            return "every unit is cut off at a bound that is set"
        return "every unit is cut off at a bound that few exceed"

    @classmethod
    def why_mechanism(
        cls, methods: Sequence[Method], settings: Settings, *, groups_known: bool
    ) -> str:
        """Say what ``dp.mechanism``, the bound or the groups decided."""
        told = told_by_settings(methods, settings, groups_known=groups_known)
        if told is not None:
            return told
        if not groups_known:
            return (
                "a bound is drawn; the groups are unknown: delta is spent to hide those of one unit"
            )
        return "the bound is drawn with a quarter of epsilon, the rest perturbs what is left"


def told_by_settings(
    methods: Sequence[Method], settings: Settings, *, groups_known: bool
) -> str | None:
    """Say why settings or keys decide the mechanism; ``None`` if they do not."""
    if all(m.bound_is_set for m in methods):
        hidden = "; the groups are unknown: delta is spent to hide those of one unit"
        return (
            "the bound is given by keys or settings (dp.max_rows_contributed), so that nothing is"
            " drawn or raced and all of epsilon is noise"
            f"{'' if groups_known else hidden}"
        )
    return None if settings.mechanism == "auto" else "as dp.mechanism says"


def is_whole(query: JoinQuery) -> bool:
    """Whether public facts show that no unit contributes more than the bound.

    That is so if a unit has one result by keys and, for sums, values have declared or given bounds,
    or if the units themselves are counted without groups.
    """
    if query.unit is None:
        return False
    if query.distinct == (query.unit,):
        return not query.groups
    if any(weight.loose for weight in query.weights):
        return False
    return query.one_per_unit


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
        # units are counted: a unit contributes 1 to each of its groups
        if not query.groups:
            return truncation.Limits(1, fixed=True)
        most = int(settings.max_contribution)
        chosen = int(settings.max_groups_contributed)
        if groups is not None:
            most = min(most, groups)
        return truncation.Limits(min(chosen or most, most), fixed=bool(chosen))
    rows = chosen or int(settings.max_contribution)
    once = query.one_per_unit
    if once:  # keys give the bound, so no epsilon is spent on it
        rows = 1
    if query.weights:
        (weight,) = query.weights
        return replace(largest_sum(weight, rows), fixed=once and not weight.loose)
    return truncation.Limits(rows, fixed=once or bool(chosen))


def largest_sum(weight: Weight, rows: int) -> truncation.Limits:
    """Tell how much a unit of so many results can contribute to a sum."""
    if weight.loose:
        # values have no declared bounds: no bound below 1 is tried, since each further one costs
        # accuracy
        least = min(10**weight.digits, weight.bound)
        usual = min(USUAL * least, weight.bound)
    else:
        least = max(weight.bound // _FINEST, 1)
        usual = weight.bound
    largest = rows * weight.bound
    return truncation.Limits(largest, signed=weight.low < 0, least=least, usual=usual)
