"""Relations protected row by row: noise is scaled to a smooth bound (PRIVACY.md, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.core.mechanisms.base import Release, RowMechanism
from dpsql.counted import Counts
from dpsql.engine.methods.base import PROVED, Method, SensitivityMethod, Terms, paid_for_failure
from dpsql.engine.methods.bounds import SensitivityBound
from dpsql.engine.methods.choose import SAMPLING, choose_bound
from dpsql.engine.methods.plans import Exact, ResultCounts, narrowed
from dpsql.engine.ticking import Ticking
from dpsql.errors import InvalidParameter, PermissionDenied
from dpsql.model import JoinQuery, Key

if TYPE_CHECKING:
    from dpsql.engine.request import Settings
    from dpsql.engine.services import Services
    from dpsql.ports import Database


@dataclass(frozen=True, slots=True)
class RowMethod(SensitivityMethod[RowMechanism]):
    """A count or sum under row neighbours.

    Attributes
    ----------
    bound : SensitivityBound
        How the smooth sensitivity is bounded.
    """

    bound: SensitivityBound

    @classmethod
    def answers(cls, query: JoinQuery, groups: int | None) -> bool:
        """Whether no privacy unit is declared."""
        return query.unit is None and not query.units

    @classmethod
    def quote(cls, query: JoinQuery, terms: Terms, database: Database) -> RowMethod:
        """Choose the bound, then a mechanism for the budget that is left after the bound's eta."""
        bound = choose_bound(query.plain, terms.settings, terms.delta, database)
        require_permission(query, bound)
        found = cls(query, _mechanism(query, bound, terms), bound)
        if query.rank is None and found.beta <= 0 and not bound.constant:
            raise InvalidParameter(
                f"dp.epsilon is too small for the method {bound.method}",
                hint="Raise dp.epsilon or use SET dp.method = auto.",
            )
        return found

    @property
    def beta(self) -> float:
        """The beta at which the smooth bound is computed."""
        return self.mechanism.beta

    @property
    def name(self) -> str:
        """The name of the bound."""
        return self.bound.method

    @property
    def label(self) -> str:
        """The label of the bound."""
        return self.bound.label

    @property
    def identity(self) -> str:
        """The identity of the bound."""
        return self.bound.identity

    @property
    def eta(self) -> Fraction:
        """The failure probability of the bound."""
        return self.bound.eta

    @property
    def reads_own_rows(self) -> bool:
        """Whether the bound does; stored statistics, walks and sketches also read other rows."""
        return self.bound.reads_own_rows

    @property
    def has_constant_sensitivity(self) -> bool:
        """Whether the bound is a public constant."""
        return self.bound.constant

    @property
    def has_public_scale(self) -> bool:
        """Whether the sensitivity is a public constant and nothing is counted for it."""
        return self.bound.constant and not self.bound.boundaries

    @property
    def least_groups(self) -> int:
        """The least noisy count of a group that is shown."""
        return int(getattr(self.mechanism, "least", 0))

    def plan(self) -> ResultCounts:
        """Count results and boundaries together."""
        return ResultCounts(self.query, self.bound.boundaries)

    def present(self, exact: Exact) -> list[Key]:
        """Return the groups that have results."""
        return [key for key, found in narrowed(Counts, exact).groups.items() if found]

    def release(self, exact: Exact, groups: list[Key], services: Services) -> Release:
        """Bound the sensitivity at `beta` and add noise."""
        query, counts = self.query, narrowed(Counts, exact)
        noise = Ticking(services.noise, services.database.tick)
        true = values_of(query, counts, query.counted_keys(groups))
        smooth = self.bound.smooth(query.plain, counts, self.beta, services)
        # a row changes one value for each result that it adds, and each value by its bound at most
        sensitivity = smooth.exact * (query.weights[0].bound if query.weights else 1)
        return self.mechanism.release(true, sensitivity, noise)

    def counting_sql(self, database: Database) -> str:
        """Write the statement of counts or sums."""
        from dpsql.engine.methods.statements import of_results

        return of_results(self.query, self.bound.boundaries, database)

    def left_out(self, database: Database) -> frozenset[int]:
        """Return the occurrences that the bound does not count."""
        return frozenset(self.bound.left_out(self.query, database))

    @classmethod
    def why(cls, methods: Sequence[Method], settings: Settings) -> str:
        """Say what ``dp.method`` or the width of the join decided."""
        bounds = [m.bound for m in methods if isinstance(m, RowMethod)]
        stored = ", from stored statistics" if any(b.from_storage for b in bounds) else ""
        if settings.method != "auto":
            slower = "; dp.method = auto is usually faster" if settings.method in SAMPLING else ""
            return f"as dp.method says{stored}{slower}"
        if {m.name for m in methods} == {"elastic"}:
            return f"the join is too wide for residual sensitivity{stored}"
        return f"the tightest bound that is proved{stored}"

    @classmethod
    def why_mechanism(
        cls, methods: Sequence[Method], settings: Settings, *, groups_known: bool
    ) -> str:
        """Say what ``dp.mechanism``, the groups or the sensitivity decided."""
        if settings.mechanism != "auto":
            return "as dp.mechanism says"
        if not groups_known:
            return "the groups are unknown, and one row can create one: delta is spent to hide it"
        if all(isinstance(m, RowMethod) and m.bound.constant for m in methods):
            return "the sensitivity is a public constant, so no delta is spent"
        return "chosen by the number of groups and by whether an interval is asked for"


def _mechanism(query: JoinQuery, bound: SensitivityBound, terms: Terms) -> RowMechanism:
    """Choose the mechanism from public facts."""
    settings = terms.settings
    private = query.shape().private_count
    epsilon, delta = terms.epsilon - paid_for_failure(bound.eta), terms.delta - bound.eta
    if query.rank is not None:
        from dpsql.core.mechanisms.percentile import Sought, plan_rows

        return plan_rows(
            settings.mechanism,
            epsilon,
            delta,
            max(private - 1, 0),
            Sought(query.rank, query.cells),
            constant=bound.constant,
        )
    from dpsql.core.mechanisms.select import choose

    return choose(
        settings.mechanism,
        epsilon=epsilon,
        delta=delta,
        groups=0 if terms.groups is None else terms.groups * max(query.cells, 1),
        domain_known=not terms.selects,
        constant=bound.constant,
        private_relations=private,
        want_interval=terms.want_interval,
        least=int(settings.min_frequency),
    )


def require_permission(query: JoinQuery, bound: SensitivityBound) -> None:
    """Refuse a method without proof unless every owner allowed it (PRIVACY.md section 4)."""
    if bound.label == PROVED:
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
            f"the method {bound.method} is not proved to be private on this question",
            detail=f"Methods without proof are not allowed on: {', '.join(closed)}.",
            hint="Use SET dp.method = auto, or let the owner of the data call "
            f"dp.allow_heuristic('{closed[0]}').",
        )


def values_of(query: JoinQuery, counts: Counts, groups: list[Key]) -> Iterable[Any]:
    """Return the exact number of each group; for ranks the counts of its cells."""
    if query.rank is None:
        return [counts.groups.get(key, 0) for key in groups]
    # lazily, because the cells of all groups together can be very many
    return ([counts.groups.get(c, 0) for c in query.cells_of(key)] for key in groups)
