"""Price: choose method and mechanism from public facts only, and say what they cost.

The budget of a query is split evenly over its distinct aggregates (PRIVACY.md section 4,
Scope): each gets (epsilon/p, delta/p), and together they cost at most (epsilon, delta).
Those that read disjoint rows have one share together (`dpsql.engine.shares`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.core.composition import Zcdp, zcdp
from dpsql.engine.bounding import (
    HEURISTIC,
    NOTHING,
    PROVED,
    Bounding,
    paid_for_failure,
    require_permission,
)
from dpsql.engine.choose import choose_bounding
from dpsql.engine.finish import require_few_columns
from dpsql.engine.groups import require_few_cells
from dpsql.engine.request import Settings
from dpsql.engine.shares import require_own_rows, shares, together, zcdp_together
from dpsql.errors import InvalidParameter, MissingDeclaration
from dpsql.model import Guarantee, JoinQuery, Key, Question
from dpsql.ports import Database


@dataclass(frozen=True, slots=True)
class AggregateQuote:
    """How one aggregate will be answered."""

    query: JoinQuery
    bounding: Bounding
    plan: Any  # dpsql.core.mechanisms: name, guarantee, beta, release

    @property
    def beta(self) -> float:
        """Where the smooth bound must be computed."""
        return float(self.plan.beta - self.bounding.alpha)

    @property
    def guarantee(self) -> Guarantee:
        """The mechanism's promise, and the price of a bound that may fail."""
        plan, eta = self.plan.guarantee, self.bounding.eta
        return Guarantee(plan.epsilon + paid_for_failure(eta), plan.delta + eta)

    @property
    def zcdp(self) -> Zcdp:
        """The same under zCDP: conditioning on success is what its delta is for."""
        return zcdp(self.plan, self.plan.guarantee) + Zcdp(Fraction(0), self.bounding.eta)


@dataclass(frozen=True, slots=True)
class Quote:
    """The cost of a question and how it will be answered; public facts only."""

    question: Question
    groups: list[Key] | None
    aggregates: tuple[AggregateQuote, ...]
    guarantee: Guarantee
    shares: tuple[int, ...]

    @property
    def label(self) -> str:
        """``proved`` if every aggregate's bound is, else ``heuristic``."""
        proved = all(a.bounding.label == PROVED for a in self.aggregates)
        return PROVED if proved else HEURISTIC

    @property
    def reads_private(self) -> bool:
        """Whether protected rows must be read, and so something must be charged."""
        return bool(self.question.roots) and self.groups != []

    @property
    def mechanism(self) -> str:
        """Names of the mechanisms, joined."""
        return "+".join(dict.fromkeys(a.plan.name for a in self.aggregates)) or "exact"

    @property
    def zcdp(self) -> Zcdp:
        """What all aggregates cost together under zCDP."""
        return zcdp_together(self.shares, [a.zcdp for a in self.aggregates])

    @property
    def method(self) -> str:
        """Names of the sensitivity methods, joined."""
        return "+".join(dict.fromkeys(a.bounding.method for a in self.aggregates)) or "none"


def price(
    question: Question,
    groups: list[Key] | None,
    settings: Settings,
    database: Database,
    *,
    want_interval: bool = False,
) -> Quote:
    """Quote a question; ``database`` tells public facts, and may cancel.

    Raises
    ------
    InvalidParameter
        When the asked mechanism cannot give the asked guarantee.
    NotAnswerable
        When there would be too many numbers.
    MissingDeclaration
        When groups are not public and delta is 0.
    """
    if groups is None and settings.delta == 0:
        raise MissingDeclaration(
            "groups whose domain is not declared need delta > 0",
            hint="SET dp.delta = 1e-8, which the question may then cost, or let the owner of the "
            f"data declare the groups: {question.undeclared_domain_hint}.",
        )
    require_few_columns(question)
    require_few_cells(question, 1 if groups is None else len(groups))
    numbers = shares(question, settings)
    share = len(set(numbers))
    quotes = tuple(
        _quote(question, j, share, groups, settings, database, want_interval=want_interval)
        for j in range(len(question.aggregates))
    )
    require_own_rows(numbers, [q.bounding for q in quotes])
    total = together(numbers, [q.guarantee for q in quotes])
    return Quote(question, groups, quotes, total, numbers)


def _quote(
    question: Question,
    j: int,
    share: int,
    groups: list[Key] | None,
    settings: Settings,
    database: Database,
    *,
    want_interval: bool,
) -> AggregateQuote:
    """Quote the j-th vector, which has one of ``share`` equal parts of the budget."""
    from dpsql.core.mechanisms.select import choose

    query = question.aggregates[j]
    shape = query.shape()
    if shape.private_count == 0 or groups == []:
        return AggregateQuote(query, NOTHING, _Exact())
    selects = groups is None and j == question.selection
    if query.units:
        from dpsql.engine.several import several

        return AggregateQuote(query, *several(query, settings, settings.epsilon / share))
    if query.unit is not None:
        number = None if groups is None else len(groups)
        epsilon = settings.epsilon / share
        return AggregateQuote(query, *_truncated(query, settings, epsilon, number, selects))
    bounding = choose_bounding(query.plain, settings, settings.delta / share, database)
    require_permission(query, bounding)
    if query.rank is not None:
        from dpsql.core.mechanisms.percentile import Sought, plan_rows

        ranked = plan_rows(
            settings.mechanism,
            settings.epsilon / share - paid_for_failure(bounding.eta),
            settings.delta / share - bounding.eta,
            max(shape.private_count - 1, 0),
            Sought(query.rank, query.cells),
            constant=bounding.constant,
        )
        return AggregateQuote(query, bounding, ranked)
    plan = choose(
        settings.mechanism,
        epsilon=settings.epsilon / share - paid_for_failure(bounding.eta),
        delta=settings.delta / share - bounding.eta,
        groups=0 if groups is None else len(groups) * max(query.cells, 1),
        domain_known=not selects,
        constant=bounding.constant,
        private_relations=shape.private_count,
        want_interval=want_interval,
        least=int(settings.min_frequency),
    )
    quote = AggregateQuote(query, bounding, plan)
    if quote.beta <= 0 and not bounding.constant:
        raise InvalidParameter(
            f"dp.epsilon is too small for the method {bounding.method}",
            hint="Raise dp.epsilon or use SET dp.method = auto.",
        )
    return quote


def _truncated(
    query: JoinQuery, settings: Settings, epsilon: Fraction, groups: int | None, selects: bool
) -> tuple[Bounding, Any]:
    """Quote a vector under unit neighbours; only what selects groups takes delta."""
    from dpsql.engine.truncated import truncated

    delta = settings.delta if selects else None
    return truncated(query, settings, epsilon, delta, groups)


class _Exact:
    """The plan of a count that reads public relations only or reports no group."""

    name = "exact"
    beta = 0.0
    guarantee = Guarantee(Fraction(0), Fraction(0))
