"""The bound of the audit: never above what exact laws have, and near it where it should be.

Seeded by `SEED`, printed; with `ALARM` and 14 laws a law that holds is refuted with 1.4e-10 in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.audit.bounds import Draws, lower_bound

SEED = 20261123
ALARM = 1e-11
RUNS = 20_000

Sampler = Callable[[np.random.Generator, int, bool], Draws]


def laplace(scale: float, shift: float = 1.0) -> Sampler:
    def draw(rng: np.random.Generator, runs: int, with_row: bool) -> Draws:
        return rng.laplace(shift * with_row, scale, (runs, 1))

    return draw


def several(scale: float, number: int) -> Sampler:
    def draw(rng: np.random.Generator, runs: int, with_row: bool) -> Draws:
        return rng.laplace(float(with_row), scale, (runs, number))

    return draw


def response(epsilon: float) -> Sampler:
    def draw(rng: np.random.Generator, runs: int, with_row: bool) -> Draws:
        truth = rng.random((runs, 1)) < 1 / (1 + math.exp(-epsilon))
        return np.where(truth, float(with_row), 1.0 - with_row)

    return draw


def hidden(delta: float) -> Sampler:
    """Show something with probability `delta` where the row is there."""

    def draw(rng: np.random.Generator, runs: int, with_row: bool) -> Draws:
        return (rng.random((runs, 1)) < delta * with_row).astype(float)

    return draw


#: A law, its epsilon and delta, and how much of epsilon must be found.
LAWS: dict[str, tuple[Sampler, float, float, float]] = {
    "laplace": (laplace(2.0), 0.5, 0.0, 0.5),
    "narrow laplace": (laplace(0.5), 2.0, 0.0, 0.7),
    "wide laplace": (laplace(20.0), 0.05, 0.0, 0.0),
    "composition": (several(10.0, 10), 1.0, 0.0, 0.1),
    "response": (response(1.0), 1.0, 0.0, 0.8),
    "nothing": (laplace(1.0, 0.0), 0.0, 0.0, 0.0),
    "delta": (hidden(1e-3), 0.0, 1e-3, 0.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_no_law_is_refuted_and_most_of_its_epsilon_is_found(name: str) -> None:
    draw, epsilon, delta, share = LAWS[name]
    print(f"seed {SEED}")  # noqa: T201
    rng = np.random.default_rng([SEED, len(name)])
    found = lower_bound(draw(rng, RUNS, True), draw(rng, RUNS, False), delta, ALARM, rng)
    assert share * epsilon <= found.epsilon <= epsilon, found
    swapped = lower_bound(draw(rng, RUNS, False), draw(rng, RUNS, True), delta, ALARM, rng)
    assert share * epsilon <= swapped.epsilon <= epsilon, swapped


def test_what_shows_itself_without_noise_is_caught_by_its_value() -> None:
    """An atom in the middle of noise: 0 is drawn every tenth time, with the row only."""
    rng = np.random.default_rng([SEED, 1])
    noise = rng.laplace(0, 10, (RUNS, 1))
    shown = np.where(rng.random((RUNS, 1)) < 0.1, 0.0, rng.laplace(0, 10, (RUNS, 1)))
    assert lower_bound(shown, noise, 0.0, ALARM, rng).epsilon > 3


def test_what_no_coordinate_shows_the_classifier_does() -> None:
    """Two coordinates that are equal with the row, and have the same laws without."""
    rng = np.random.default_rng([SEED, 2])
    x = rng.laplace(0, 1, (RUNS, 1))
    same = np.hstack([x, x * (1 + 1e-3 * rng.random((RUNS, 1)))])
    apart = rng.laplace(0, 1, (RUNS, 2))
    assert lower_bound(same, apart, 0.0, ALARM, rng).epsilon > 0.5


def test_a_claim_that_is_twice_too_good_is_refuted() -> None:
    rng = np.random.default_rng([SEED, 3])
    draw = laplace(1.0)
    found = lower_bound(draw(rng, RUNS, True), draw(rng, RUNS, False), 0.0, ALARM, rng)
    assert 0.5 < found.epsilon <= 1.0
