"""Solve the programs of sets of units that are too many for a solver that holds them in memory.

The primal-dual method (Chambolle and Pock 2011, with their diagonal preconditioning), reflected and
drawn to an anchor (Halpern), restarted: Lu and Yang (2024) prove that its iterates converge for
every linear program.  A step is one pass over sets of units that may be on disk; besides them it
keeps numbers of units alone.  So there is no number of sets for which a question fails, and it may
be cancelled between two blocks.

What is returned are certified bounds as everywhere (docs/proofs/linear.md): nothing rests on the
method, and what it does depends on the program alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from dpsql.core.packing import Floats, Ints, Program

#: Steps to the first look at the bounds; from one look to the next there are an eighth more.
_FIRST_LOOK = 16
#: A restart follows when the gap has fallen to this part of what it was at the last one ...
_FALLEN = 0.2
#: ... or after this part of all steps.
_LONG = 0.36


class Steps(Protocol):
    """A program that is solved step by step."""

    def step(self, inertia: float) -> None:
        """Go a reflected step, then back to the anchor but for this part."""

    def look(self) -> float:
        """Compute bounds where it is; return how far they are apart."""

    def restart(self) -> None:
        """Put the anchor here; weigh primal and dual steps by what both have moved."""


def looks(steps: Steps) -> Iterator[None]:
    """Go on for ever, and stop after each look at the bounds."""
    done, since, following = 0, 0, _FIRST_LOOK
    before = steps.look()
    while True:
        while done < following:
            steps.step((since + 1) / (since + 2))
            done, since = done + 1, since + 1
        following += max(_FIRST_LOOK, done // 8)
        gap = steps.look()
        yield
        if gap <= _FALLEN * before or since >= _LONG * done:
            steps.restart()
            before, since = gap, 0


class Packing:
    """``Q``: what share of its cap each set keeps, and a price of each unit, both from 0 to 1.

    The row of a unit has the caps of its sets, which add up to ``loads``.
    """

    def __init__(self, program: Program, improve: Callable[[Floats, Floats], float]) -> None:
        self.program = program
        self.improve = improve
        space, size = program.space, len(program.caps)
        self.shares, self.anchor = (space.empty(size, np.float64) for _ in range(2))
        self.values = space.empty(size, np.float64)
        self.prices = np.zeros(program.units)
        self.price_anchor = np.zeros(program.units)
        self.weight = 1.0
        self.loads = np.zeros(program.units)
        for part in self._blocks():
            self.shares[part] = self.anchor[part] = 0.0
            self.loads += spread(program.members[part], program.caps[part], program.units)

    def step(self, inertia: float) -> None:
        """Go a step: one pass."""
        program, taken = self.program, np.zeros(self.program.units)
        padded = np.append(self.prices, 0.0)
        for part in self._blocks():
            members, shares = program.members[part], self.shares[part]
            width = (members < program.units).sum(axis=1)
            paid = gathered(members, padded)
            ahead = 2 * np.clip(shares + (1 - paid) / (width * self.weight), 0, 1) - shares
            taken += spread(members, program.caps[part] * ahead, program.units)
            self.shares[part] = inertia * ahead + (1 - inertia) * self.anchor[part]
        prices = self.prices + self.weight * (taken - program.tau) / self.loads
        ahead = 2 * np.clip(prices, 0, 1) - self.prices
        self.prices = inertia * ahead + (1 - inertia) * self.price_anchor

    def look(self) -> float:
        """Compute bounds of ``Q``."""
        for part in self._blocks():
            self.values[part] = self.shares[part] * self.program.caps[part]
        return self.improve(self.values, self.prices)

    def restart(self) -> None:
        """Put the anchor here."""
        moved = 0.0
        for part in self._blocks():
            width = (self.program.members[part] < self.program.units).sum(axis=1)
            far = self.shares[part] - self.anchor[part]
            moved += float((width * self.program.caps[part] * far**2).sum())
            self.anchor[part] = self.shares[part]
        far = self.prices - self.price_anchor
        self.weight = weighed(self.weight, moved, float((self.loads * far**2).sum()))
        self.price_anchor = self.prices

    def _blocks(self) -> Iterator[slice]:
        return self.program.space.blocks(len(self.program.caps), self.program.units)


def weighed(weight: float, primal: float, dual: float) -> float:
    """Return a weight half way to that at which primal and dual have moved alike."""
    if not (primal > 0 and dual > 0):
        return weight
    return float(np.clip(np.sqrt(weight * np.sqrt(dual / primal)), 1e-6, 1e6))


def gathered(members: Ints, padded: Floats) -> Floats:
    """Add up the values of the units of each set; ``padded`` ends with 0 for no unit."""
    total = padded[members[:, 0]]
    for column in members[:, 1:].T:
        total += padded[column]
    return total


def spread(members: Ints, weights: Floats | Ints, units: int) -> Floats:
    """Add up the weights of the sets of each unit."""
    total = np.zeros(units + 1)
    for column in members.T:
        total += np.bincount(column, weights, minlength=units + 1)
    return total[:units]
