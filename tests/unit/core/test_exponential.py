"""The exponential mechanism's law, and two laws that it must be told from."""

import math
from collections import Counter
from fractions import Fraction

import pytest

from dpsql.core.mechanisms.exponential import choose
from dpsql.core.rng import SystemNoise
from dpsql.errors import InternalError

NOISE = SystemNoise()
SCORES = [5, 2, 4, 2]
RATE = Fraction(1, 2)
DRAWS = 12_000
#: Hoeffding: a share is further off with probability below 1e-9 / 4 (no seed: the system's noise).
#: The laws that must be caught are 0.085 and 0.19 off, more than twice as far, so they are caught
#: with the same confidence.
TOLERANCE = math.sqrt(math.log(2 * 4 / 1e-9) / (2 * DRAWS))


def expected(rate):
    weights = [math.exp(rate * score) for score in SCORES]
    return [weight / sum(weights) for weight in weights]


def farthest(draw):
    counts = Counter(draw() for _ in range(DRAWS))
    shares = [counts[i] / DRAWS for i in range(len(SCORES))]
    return max(abs(a - b) for a, b in zip(shares, expected(RATE), strict=True))


def test_the_law():
    assert farthest(lambda: choose(SCORES, RATE, NOISE)) < TOLERANCE


def test_a_forgotten_factor_of_two_is_caught():
    assert farthest(lambda: choose(SCORES, 2 * RATE, NOISE)) > TOLERANCE


def test_permute_and_flip_is_caught():
    """Its noisy maximum, with geometric noise on a fine grid: another law at the same rate."""

    def draw():
        noisy = [score * 64 + NOISE.geometric(64 / RATE) for score in SCORES]
        return noisy.index(max(noisy))

    assert farthest(draw) > TOLERANCE


def test_huge_scores_and_single_ones():
    assert choose([7], Fraction(1, 3), NOISE) == 0
    assert choose([0, 10**30], Fraction(1), NOISE) == 1
    assert {choose([3, 3], Fraction(10**9), NOISE) for _ in range(60)} == {0, 1}  # 2^-59 else
    for scores, rate in (([], Fraction(1)), ([1], Fraction(0))):
        with pytest.raises(InternalError):
            choose(scores, rate, NOISE)
