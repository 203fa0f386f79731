"""The zCDP filter against the best adaptive adversary, computed exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import pytest

from dpsql.core.composition import rho_of
from tests.contract.conversion import rho_for

MENU = (Fraction(1, 10), Fraction(3, 10), Fraction(7, 10))


def best_advantage(epsilon: float, limit: Fraction, discount: int = 1) -> float:
    """Return the largest hockey-stick divergence that an adaptive adversary can reach.

    It asks randomised response questions of any epsilon on the menu in any order, choosing each
    after seeing the answers before, or stops; the filter refuses what would take the sum of rho
    beyond the limit.  Dynamic programming over all strategies.
    """
    prices = [rho_of(e) / discount for e in MENU]

    @cache
    def value(loss: int, spent: tuple[int, ...]) -> float:
        found = max(0.0, math.exp(loss / 10) - math.exp(epsilon))
        for i, question in enumerate(MENU):
            more = tuple(n + (j == i) for j, n in enumerate(spent))
            if sum((n * p for n, p in zip(more, prices, strict=True)), Fraction(0)) > limit:
                continue
            step = int(question * 10)
            up = 1 / (1 + math.exp(step / 10))  # chance of the loss +epsilon under Q
            found = max(found, up * value(loss + step, more) + (1 - up) * value(loss - step, more))
        return found

    return value(0, (0,) * len(MENU))


@pytest.mark.parametrize(("epsilon", "delta"), [(1, Fraction(1, 50)), (2, Fraction(1, 100))])
def test_no_adaptive_adversary_beats_the_filter(epsilon: int, delta: Fraction) -> None:
    limit = rho_for(Fraction(epsilon), delta)
    assert limit > rho_of(MENU[0]) * 5
    reached = best_advantage(epsilon, limit)
    assert float(delta) / 100 < reached <= float(delta)


def test_a_price_that_is_too_low_is_beaten() -> None:
    """The mutant: a quarter of the price lets the adversary exceed delta."""
    delta = Fraction(1, 100)
    assert best_advantage(1, rho_for(Fraction(1), delta), discount=4) > float(delta)
