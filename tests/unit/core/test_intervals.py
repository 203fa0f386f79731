"""Intervals around sums of discrete Gaussian noise hold at least as often as they say: exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest

from dpsql.core.mechanisms.interval import gaussian
from dpsql.errors import InvalidParameter

LEVELS = (0.01, 0.5, 0.8, 0.95, 0.99, 0.9999)


def law(variance: float) -> dict[int, float]:
    """Return the discrete Gaussian, which has no mass beyond so many deviations in floats."""
    reach = math.ceil(9 * math.sqrt(variance)) + 2
    masses = {x: math.exp(-x * x / (2 * variance)) for x in range(-reach, reach + 1)}
    total = math.fsum(masses.values())
    return {x: mass / total for x, mass in masses.items()}


def worst(half: Callable[[float, float], int]) -> float:
    """Return the least that intervals around sums hold more often than they say."""
    sums = [[(a, v)] for a, v in product((1.0, 0.5, 0.3, 2.75), (0.05, 0.3, 1.0, 4.0, 60.0))]
    sums += [[(1.0, 1.0), (0.5, 9.0)], [(1.0, 0.2), (-1.0, 0.2)], [(0.4, 2.0), (3.0, 0.1)]]
    found = math.inf
    for terms in sums:
        noise = {0.0: 1.0}
        for a, v in terms:
            more: dict[float, float] = {}
            for (x, p), (y, q) in product(noise.items(), law(v).items()):
                more[x + a * y] = more.get(x + a * y, 0.0) + p * q
            noise = more
        deviation = math.sqrt(math.fsum(a * a * v for a, v in terms))
        for level in LEVELS:
            reach = half(deviation, level)
            held = math.fsum(p for x, p in noise.items() if abs(round(x)) <= reach)
            found = min(found, held - level)
    return found


def test_they_hold_at_least_as_often_as_they_say() -> None:
    assert worst(gaussian) >= -1e-9


def test_shorter_ones_do_not() -> None:
    # the check sees what a forgotten factor does
    assert worst(lambda deviation, level: gaussian(deviation / math.sqrt(2), level)) < 0
    assert worst(lambda deviation, level: max(gaussian(deviation, level) - 1, 0)) < 0


def test_levels_are_probabilities() -> None:
    for level in (0.0, 1.0, -0.1, 2.0):
        with pytest.raises(InvalidParameter):
            gaussian(1.0, level)
    assert gaussian(0.0, 0.95) == 0
