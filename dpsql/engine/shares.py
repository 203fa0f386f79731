"""Which aggregates share the budget of a question, and what all of them cost together.

The budget is split evenly over the blocks of a question; aggregates of one block read disjoint
rows, so that each has all of the block's share and the block costs what its dearest one does
(parallel composition, docs/proofs/composition.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core.composition import Zcdp
from dpsql.errors import InternalError
from dpsql.model import Guarantee, Question

if TYPE_CHECKING:
    from dpsql.engine.methods.base import Method
    from dpsql.engine.request import Settings

#: Methods whose bounds read the rows of their own aggregate only, in the answer's snapshot.
_OWN_ROWS = ("auto", "residual", "elastic", "truncation")


def shares(question: Question, settings: Settings) -> tuple[int, ...]:
    """Return for each aggregate the number of the share of the budget that it has.

    Bounds from stored statistics, walks or sketches look at rows of other blocks too: with these
    every aggregate has a share of its own.
    """
    own = settings.statistics == "live" and settings.method in _OWN_ROWS
    return question.blocks if own and question.blocks else tuple(range(len(question.aggregates)))


def require_own_rows(numbers: Sequence[int], aggregates: Sequence[Method]) -> None:
    """Make sure that aggregates which share nothing are bounded by their own rows."""
    for number, aggregate in zip(numbers, aggregates, strict=True):
        if numbers.count(number) > 1 and not aggregate.reads_own_rows:
            raise InternalError("an aggregate of several blocks has a bound of other rows")


def together(numbers: Sequence[int], guarantees: Sequence[Guarantee]) -> Guarantee:
    """Add up the blocks, each as dear as its dearest aggregate."""
    parts = _by_block(numbers, [(g.epsilon, g.delta) for g in guarantees])
    return Guarantee(*parts)


def zcdp_together(numbers: Sequence[int], prices: Sequence[Zcdp]) -> Zcdp:
    """Do the same under zCDP."""
    parts = _by_block(numbers, [(z.rho, z.delta) for z in prices])
    return Zcdp(*parts)


def _by_block(
    numbers: Sequence[int], pairs: Sequence[tuple[Fraction, Fraction]]
) -> tuple[Fraction, Fraction]:
    losses: dict[int, Fraction] = {}
    deltas: dict[int, Fraction] = {}
    for number, (loss, delta) in zip(numbers, pairs, strict=True):
        losses[number] = max(losses.get(number, Fraction(0)), loss)
        deltas[number] = max(deltas.get(number, Fraction(0)), delta)
    return sum(losses.values(), Fraction(0)), sum(deltas.values(), Fraction(0))
