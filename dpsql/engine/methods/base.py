"""The interface of sensitivity methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from dpsql.core.composition import Zcdp, zcdp
from dpsql.core.mechanisms.base import Mechanism, Release
from dpsql.errors import InternalError
from dpsql.model import Guarantee, JoinQuery, Key

if TYPE_CHECKING:
    from dpsql.engine.methods.plans import Exact, Plan
    from dpsql.engine.request import Settings
    from dpsql.engine.services import Services
    from dpsql.ports import Database

PROVED, HEURISTIC = "proved", "heuristic"
_Noise = TypeVar("_Noise", bound=Mechanism, covariant=True)


@dataclass(frozen=True, slots=True)
class Terms:
    """The public facts by which one aggregate is quoted.

    Attributes
    ----------
    settings : Settings
        The settings of the question.
    share : int, >= 1
        Number of equal parts into which the question's budget is split.
    groups : int or None
        Number of groups if they are public; 1 without GROUP BY.
    selects : bool
        Whether this aggregate decides which groups are shown.
    want_interval : bool
        Whether a confidence interval is wanted, for which the scale of the noise must be public.
    """

    settings: Settings
    share: int
    groups: int | None
    selects: bool
    want_interval: bool = False

    @property
    def epsilon(self) -> Fraction:
        """The aggregate's part of epsilon."""
        return self.settings.epsilon / self.share

    @property
    def delta(self) -> Fraction:
        """The aggregate's part of delta."""
        return self.settings.delta / self.share


@dataclass(frozen=True, slots=True)
class SensitivityMethod(ABC, Generic[_Noise]):
    """One aggregate of a question with the method that bounds its sensitivity and its mechanism.

    Everything follows from public facts, except the arguments of `present` and `release`.

    Attributes
    ----------
    query : JoinQuery
        The aggregate.
    mechanism : Mechanism
        Adds noise to the exact values.
    units_per_result : int
        How many privacy units a result can belong to: 0 if rows are protected one by one, 1 for one
        unit, 2 for several units.
    """

    query: JoinQuery
    mechanism: _Noise
    units_per_result: ClassVar[int] = 0

    @classmethod
    @abstractmethod
    def answers(cls, query: JoinQuery, groups: int | None) -> bool:
        """Whether the method can answer the aggregate; ``groups``: their number if it is public."""

    @classmethod
    @abstractmethod
    def quote(cls, query: JoinQuery, terms: Terms, database: Database) -> Method:
        """Choose parameters and mechanism from public facts.

        Raises
        ------
        InvalidParameter
            When the method cannot answer under these settings.
        MissingDeclaration
            When the method needs statistics or declarations that do not exist.
        PermissionDenied
            When the method is not proved and an owner did not allow such methods.
        """

    @abstractmethod
    def plan(self) -> Plan:
        """Return what must be read; plans of one class with equal keys are read together."""

    def present(self, exact: Exact) -> list[Key]:
        """Return the groups that have results, if this aggregate decides which groups are shown."""
        raise InternalError(f"the method {self.name} selects no groups")

    @abstractmethod
    def release(self, exact: Exact, groups: list[Key], services: Services) -> Release:
        """Add noise to the exact values that the plan read, for the given groups."""

    # -- facts for pricing and explaining, known before anything is read -------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in the setting ``dp.method`` and in ``dp.explain``."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What determines the distribution of the bound; part of the key of stored answers."""

    @property
    def label(self) -> str:
        """``proved`` or ``heuristic``."""
        return PROVED

    @property
    def eta(self) -> Fraction:
        """Probability that the bound is too small or not smooth.

        The guarantee is that of the mechanism plus ``(ln(1/(1 - eta)), eta)`` (PRIVACY.md,
        section 4).
        """
        return Fraction(0)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the mechanism, plus the cost of a bound that may fail."""
        own = self.mechanism.guarantee
        return Guarantee(own.epsilon + paid_for_failure(self.eta), own.delta + self.eta)

    @property
    def zcdp(self) -> Zcdp:
        """The guarantee under zCDP; its delta covers the probability that the bound fails."""
        own = zcdp(self.mechanism, self.mechanism.guarantee)
        return own + Zcdp(Fraction(0), self.eta)

    @property
    def reads_own_rows(self) -> bool:
        """Whether only the aggregate's own rows are read, so that blocks compose in parallel."""
        return True

    @property
    def reads_in_steps(self) -> bool:
        """Whether partitions on several servers may be read in different snapshots."""
        return False

    @property
    def has_constant_sensitivity(self) -> bool:
        """Whether the sensitivity is a public constant."""
        return False

    @property
    def has_public_scale(self) -> bool:
        """Whether the sensitivity is a public constant and nothing is counted for it."""
        return False

    @property
    def least_groups(self) -> int:
        """Groups with a smaller noisy number are hidden, besides the threshold; 0: no limit."""
        return 0

    @property
    def cuts_units(self) -> bool:
        """Whether units that contribute more than a bound are cut off at it."""
        return False

    @property
    def reach(self) -> int:
        """In how many groups the results of a unit count; 0: in all."""
        return 0

    @property
    def bound_is_set(self) -> bool:
        """Whether the bound at which units are cut off is known without drawing it."""
        return False

    @property
    def bound_is_settable(self) -> bool:
        """Whether ``dp.max_rows_contributed`` would set the bound, which is drawn without it."""
        return False

    @property
    def epsilon_of_bound(self) -> Fraction:
        """Part of epsilon that is spent to draw the bound of a unit's contribution."""
        return Fraction(0)

    @abstractmethod
    def counting_sql(self, database: Database) -> str:
        """Write the counting statement as planned by current table sizes; for owners only."""

    def left_out(self, database: Database) -> frozenset[int]:
        """Return the occurrences that the bound does not count, since they are on other servers."""
        return frozenset()

    @classmethod
    @abstractmethod
    def why(cls, methods: Sequence[Method], settings: Settings) -> str:
        """Say why this method answers a question of these aggregates."""

    @classmethod
    @abstractmethod
    def why_mechanism(
        cls, methods: Sequence[Method], settings: Settings, *, groups_known: bool
    ) -> str:
        """Say why these mechanisms answer the question."""


def paid_for_failure(eta: Fraction) -> Fraction:
    """Return what a failure probability costs in epsilon: at least ``ln(1/(1 - eta))``."""
    return eta / (1 - eta)


Method = SensitivityMethod[Mechanism]
