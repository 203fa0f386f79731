"""How many of some runs may fail."""

from __future__ import annotations

import math


def above(runs: int, probability: float, number: int) -> float:
    """Return the probability that a binomial exceeds a number."""
    log, rest = math.log(probability), math.log1p(-probability)
    return math.fsum(
        math.exp(
            math.lgamma(runs + 1)
            - math.lgamma(k + 1)
            - math.lgamma(runs - k + 1)
            + k * log
            + (runs - k) * rest
        )
        for k in range(number + 1, runs + 1)
    )


def most_failures(runs: int, eta: float, level: float) -> int:
    """Return the least number that a binomial of ``runs`` and eta exceeds below ``level``."""
    return next(number for number in range(runs + 1) if above(runs, eta, number) < level)
