"""The exponential mechanism, exactly: for rounds that pay ``epsilon^2 / 8`` (docs/proofs/aim.md).

A privacy loss of range epsilon, which that price needs, is a property of this law (Cesar and Rogers
2021); noisy maxima with geometric or Laplace noise (`drawing`, `percentile`) have other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.errors import InternalError
from dpsql.ports import NoiseSource

_BYTES = 16


def choose(scores: Sequence[int], rate: Fraction, noise: NoiseSource) -> int:
    """Draw an index with ``P(i) proportional to exp(rate * scores[i])``.

    Parameters
    ----------
    scores : sequence of int
        At least one; exact and secret.
    rate : Fraction
        ``epsilon / (2 * sensitivity)``, positive.
    noise : NoiseSource
        The source of randomness.

    Notes
    -----
    By rejection: a uniform index is kept with probability ``exp(-rate (best - score))``.  It
    takes as many tries as there are indices, at worst, on average.
    """
    if not scores or rate <= 0:
        raise InternalError("the exponential mechanism needs a score and a positive rate")
    best = max(scores)
    while True:
        i = _uniform(len(scores), noise)
        loss = rate * (best - scores[i])
        # a geometric of scale 1 / x is at least 1 with probability exp(-x)
        if loss == 0 or noise.geometric(1 / loss) >= 1:
            return i


def _uniform(number: int, noise: NoiseSource) -> int:
    """Draw from 0, ..., number - 1."""
    whole = 1 << 8 * _BYTES
    limit = whole - whole % number
    while True:
        drawn = int.from_bytes(noise.key(), "big")
        if drawn < limit:
            return drawn % number
