"""The budget of a synthesis: what it is asked to measure, shares of parts, and their noise.

Shares of what is given up go on, by public facts and noisy numbers (PRIVACY.md section 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.engine.synthesis_measured import Measured
    from dpsql.engine.synthesis_parts import Part
    from dpsql.synthesis.schema import Plan

#: Shares that are handed on are multiples of the reciprocal.
_GRAIN = 1 << 40


@dataclass(frozen=True, slots=True)
class Task:
    """All that is measured: parts of a budget, rho, and what is already known."""

    plan: Plan
    parts: Sequence[Part]
    rho: Fraction
    measured: Measured
    seed: int


class Shares:
    """Parts of a budget; those of what is given up go to what is not measured yet.

    What is given up is decided by public facts and by what was measured before, so that the whole
    is adaptive composition: costs add up to what was charged, or less (PRIVACY.md section 7).

    Parameters
    ----------
    shares : sequence of Fraction
        Of each part, 1 in all.
    """

    def __init__(self, shares: Sequence[Fraction]) -> None:
        self.shares = list(shares)
        self._open = set(range(len(self.shares)))

    def open(self, part: int) -> bool:
        """Whether a part is neither spent nor given up."""
        return part in self._open

    def spend(self, part: int) -> None:
        """Close a part: its share is fixed."""
        self._open.remove(part)

    def give_up(self, part: int) -> None:
        """Spread a part's share over the open ones as theirs are, rounded down to few bits."""
        self._open.remove(part)
        freed, self.shares[part] = self.shares[part], Fraction(0)
        whole = sum((self.shares[i] for i in self._open), Fraction(0))
        for i in self._open:
            more = freed * self.shares[i] / whole
            self.shares[i] += Fraction(math.floor(more * _GRAIN), _GRAIN)


def variance_for(changed: int, rho: Fraction) -> Fraction:
    """Return the variance of a discrete Gaussian that costs at most ``rho``, in few bits."""
    return variance_for_square(Fraction(changed * changed), rho)


def variance_for_square(square: Fraction, rho: Fraction) -> Fraction:
    """Return that for a squared change in L2."""
    exact = square / (2 * rho)
    return Fraction(math.ceil(exact * (1 << 20)), 1 << 20)
