"""Draw a bound that few units exceed: the cost of each, less exponential noise, decides.

The bound is the one of which ``E - F(tau) - w(tau)/eps`` is the greatest: F counts the units that
exceed it, and moves by at most 1 when a unit comes or goes, all one way; E is exponential noise; w
is the logarithm of tau up to a usual size of units, and grows POWER times as fast beyond.  That is
permute-and-flip (McKenna and Sheldon, NeurIPS 2020) as a noisy maximum (Ding and others, 2021), for
scores that need no factor of 2 (docs/proofs/truncation.md, claim 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.model import GRID
from dpsql.ports import NoiseSource

#: Beyond the usual size a bound that is e times as large is e to this power times as unlikely,
#: other things being equal; up to there e times as unlikely.
POWER = 2


def penalty(tau: int, epsilon: Fraction, usual: int = 1) -> int:
    """Return what a bound gives away to smaller ones, times ``GRID``: a public number."""
    return round(_weight(tau, usual) * GRID / epsilon)


def units_needed(times: int, epsilon: Fraction, usual: int = 1) -> int:
    """Return about how many units it takes to draw a bound so many times the smallest one.

    Of fewer the smallest bound wins by its smaller penalty, however much it cuts off: a public
    number.  ``usual`` counts smallest bounds, too.
    """
    return math.ceil((_weight(times, usual) + 1) / epsilon)


def _weight(tau: int, usual: int) -> float:
    return POWER * math.log(tau) - (POWER - 1) * math.log(min(tau, usual))


def handicaps(
    bounds: Sequence[int], spread: Fraction, epsilon: Fraction, usual: int, noise: NoiseSource
) -> list[int]:
    """Draw for each bound its noise, of scale ``spread``, less its penalty; times ``GRID``."""
    return [noise.geometric(spread * GRID) - penalty(tau, epsilon, usual) for tau in bounds]


def draw(
    exceeding: Sequence[int],
    bounds: Sequence[int],
    epsilon: Fraction,
    usual: int,
    noise: NoiseSource,
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
    usual : int
        A size that units may well have, public: larger bounds are drawn more reluctantly.
    noise : NoiseSource
        The source of randomness.
    """
    drawn = handicaps(bounds, 1 / epsilon, epsilon, usual, noise)
    scores = [e - n * GRID for e, n in zip(drawn, exceeding, strict=True)]
    return scores.index(max(scores))  # of equal ones the smallest bound
