"""Price: choose method and mechanism from public facts only, and say what they cost.

The budget of a query is split evenly over its distinct aggregates (PRIVACY.md section 4,
Scope): each gets (epsilon/p, delta/p), and together they cost at most (epsilon, delta).
Those that read disjoint rows have one share together (`dpsql.engine.shares`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.core.composition import Zcdp
from dpsql.engine.finish import require_few_columns
from dpsql.engine.groups import require_few_cells
from dpsql.engine.methods import select
from dpsql.engine.methods.base import HEURISTIC, PROVED, Method, Terms
from dpsql.engine.request import Settings
from dpsql.engine.shares import require_own_rows, shares, together, zcdp_together
from dpsql.errors import MissingDeclaration
from dpsql.model import Guarantee, Key, Question
from dpsql.ports import Database


@dataclass(frozen=True, slots=True)
class Quote:
    """The cost of a question and how it will be answered; public facts only."""

    question: Question
    groups: list[Key] | None
    aggregates: tuple[Method, ...]
    guarantee: Guarantee
    shares: tuple[int, ...]

    @property
    def label(self) -> str:
        """``proved`` if every aggregate's bound is, else ``heuristic``."""
        proved = all(a.label == PROVED for a in self.aggregates)
        return PROVED if proved else HEURISTIC

    @property
    def reads_private(self) -> bool:
        """Whether protected rows must be read, and so something must be charged."""
        return bool(self.question.roots) and self.groups != []

    @property
    def mechanism(self) -> str:
        """Names of the mechanisms, joined."""
        return "+".join(dict.fromkeys(a.mechanism.name for a in self.aggregates)) or "exact"

    @property
    def zcdp(self) -> Zcdp:
        """What all aggregates cost together under zCDP."""
        return zcdp_together(self.shares, [a.zcdp for a in self.aggregates])

    @property
    def method(self) -> str:
        """Names of the sensitivity methods, joined."""
        return "+".join(dict.fromkeys(a.name for a in self.aggregates)) or "none"


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
    number = None if groups is None else len(groups)
    quotes = tuple(
        select.quote(
            query,
            Terms(
                settings,
                share,
                number,
                selects=groups is None and j == question.selection,
                want_interval=want_interval,
            ),
            database,
        )
        for j, query in enumerate(question.aggregates)
    )
    require_own_rows(numbers, quotes)
    total = together(numbers, [q.guarantee for q in quotes])
    return Quote(question, groups, quotes, total, numbers)
