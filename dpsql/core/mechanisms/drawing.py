"""Draw a bound that few units exceed: the cost of each, less exponential noise, decides.

The bound is the one of which ``E - F(tau) - POWER ln(tau)/eps`` is the greatest: F counts the units
that exceed it, and moves by at most 1 when a unit comes or goes, all one way; E is exponential
noise.  That is permute-and-flip (McKenna and Sheldon, NeurIPS 2020) as a noisy maximum (Ding and
others, 2021), for scores that need no factor of 2 (docs/proofs/truncation.md, claim 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.model import GRID
from dpsql.ports import NoiseSource

#: A bound that is e times as large is e to this power times as unlikely, other things being equal.
POWER = 2


def penalty(tau: int, epsilon: Fraction) -> int:
    """Return what a bound gives away to smaller ones, times ``GRID``: a public number."""
    return round(POWER * math.log(tau) * GRID / epsilon)


def units_needed(times: int, epsilon: Fraction) -> int:
    """Return about how many units it takes to draw a bound so many times the smallest one.

    Of fewer the smallest bound wins by its smaller penalty, however much it cuts off: a public
    number.
    """
    return math.ceil((POWER * math.log(times) + 1) / epsilon)


def handicaps(
    bounds: Sequence[int], spread: Fraction, epsilon: Fraction, noise: NoiseSource
) -> list[int]:
    """Draw for each bound its noise, of scale ``spread``, less its penalty; times ``GRID``."""
    return [noise.geometric(spread * GRID) - penalty(tau, epsilon) for tau in bounds]


def draw(
    exceeding: Sequence[int], bounds: Sequence[int], epsilon: Fraction, noise: NoiseSource
) -> int:
    """Draw the number of a bound.

    Parameters
    ----------
    exceeding : sequence of int
        How many units exceed each of ``bounds``: exact and secret.
    bounds : sequence of int
        Public, ascending.
    epsilon : Fraction
        What it costs, whatever the number of bounds; pure.
    noise : NoiseSource
        The source of randomness.
    """
    drawn = handicaps(bounds, 1 / epsilon, epsilon, noise)
    scores = [e - n * GRID for e, n in zip(drawn, exceeding, strict=True)]
    return scores.index(max(scores))  # of equal ones the smallest bound
