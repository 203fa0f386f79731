"""Price: choose method and mechanism from public facts only, and say what they cost.

The budget of a query is split evenly over its distinct aggregates (PRIVACY.md section 4,
Scope): each gets (epsilon/p, delta/p), and together they cost at most (epsilon, delta).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.core.composition import Zcdp, zcdp
from dpsql.engine.groups import Key
from dpsql.engine.request import Settings
from dpsql.engine.sensitivity import choose_method
from dpsql.errors import MissingDeclaration
from dpsql.model import Boundary, Guarantee, JoinQuery, Question


@dataclass(frozen=True, slots=True)
class AggregateQuote:
    """How one aggregate will be answered."""

    query: JoinQuery
    method: str
    constant: bool
    boundaries: frozenset[Boundary]
    plan: Any  # dpsql.core.mechanisms: name, guarantee, beta, release


@dataclass(frozen=True, slots=True)
class Quote:
    """The cost of a question and how it will be answered; public facts only."""

    question: Question
    groups: list[Key] | None
    aggregates: tuple[AggregateQuote, ...]
    guarantee: Guarantee
    label: str

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
        prices = (zcdp(a.plan, a.plan.guarantee) for a in self.aggregates)
        return sum(prices, Zcdp(Fraction(0), Fraction(0)))

    @property
    def method(self) -> str:
        """Names of the sensitivity methods, joined."""
        return "+".join(dict.fromkeys(a.method for a in self.aggregates)) or "none"


def price(
    question: Question,
    groups: list[Key] | None,
    settings: Settings,
    *,
    want_interval: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> Quote:
    """Quote a question; ``tick`` is called every few milliseconds and may raise to cancel.

    Raises
    ------
    InvalidParameter
        When the asked mechanism cannot give the asked guarantee.
    MissingDeclaration
        When groups are not public and delta is 0.
    """
    from dpsql.core.mechanisms.select import choose
    from dpsql.core.sensitivity import is_public, required

    if groups is None and settings.delta == 0:
        raise MissingDeclaration(
            "groups whose domain is not declared need delta > 0",
            hint="SET dp.delta = 1e-8, which the question may then cost, or let the owner of the "
            f"data declare the groups: {question.undeclared_domain_hint}.",
        )
    share = len(question.aggregates)
    quotes = []
    for query in question.aggregates:
        shape = query.shape()
        if shape.private_count == 0 or groups == []:
            quotes.append(AggregateQuote(query, "public", True, frozenset(), _Exact()))
            continue
        method = choose_method(settings.method, shape)
        fixed = is_public(shape, method, tick=tick)
        plan = choose(
            settings.mechanism,
            epsilon=settings.epsilon / share,
            delta=settings.delta / share,
            groups=0 if groups is None else len(groups),
            domain_known=groups is not None,
            constant=fixed,
            private_relations=shape.private_count,
            want_interval=want_interval,
        )
        needed = required(shape, method, tick=tick)
        quotes.append(AggregateQuote(query, method, fixed, needed, plan))
    total = Guarantee(
        sum((q.plan.guarantee.epsilon for q in quotes), Fraction(0)),
        sum((q.plan.guarantee.delta for q in quotes), Fraction(0)),
    )
    return Quote(question, groups, tuple(quotes), total, "proved")


class _Exact:
    """The plan of a count that reads public relations only or reports no group."""

    name = "exact"
    beta = 0.0
    guarantee = Guarantee(Fraction(0), Fraction(0))
