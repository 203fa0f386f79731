"""Solve linear programs over sets of units that are too large for a solver in memory.

The solver is the primal-dual method (Chambolle and Pock 2011, with diagonal preconditioning) with
reflection, Halpern anchoring and restarts.  Its iterates converge for every linear program (Lu and
Yang 2024).  A step is one pass over the sets, which may be on disk; in memory it keeps one number
or a few for each unit.  So no number of sets makes a question fail, and a cancel takes effect
between two blocks.

The bounds that are returned are certified (docs/proofs/linear.md): they hold even if the method is
wrong.  The method is deterministic in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from dpsql.core.packing import Floats, Ints, Program

#: Steps before the bounds are computed first; later intervals are an eighth of all steps so far.
_FIRST_LOOK = 16
#: Restart when the gap has fallen to this fraction of the gap at the last restart ...
_FALLEN = 0.2
#: ... or when this fraction of all steps came after the last restart.
_LONG = 0.36


class Steps(Protocol):
    """An iterative solver of one program."""

    def step(self, inertia: float) -> None:
        """Take a reflected step of which ``inertia`` is kept; the rest comes from the anchor."""

    def look(self) -> float:
        """Compute bounds at the current point; return their gap."""

    def restart(self) -> None:
        """Move the anchor to the current point and rebalance primal and dual step sizes."""


def looks(steps: Steps) -> Iterator[None]:
    """Iterate without end; yield each time the bounds were computed."""
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
    """Solve ``Q``: primal variables are shares of the caps of sets, dual ones are prices of units.

    Both are between 0 and 1.  The constraint of a unit has the caps of its sets as coefficients;
    ``loads`` are their sums.
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
        """Take one step, in one pass over the sets."""
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
        """Compute bounds of ``Q``; return their gap."""
        for part in self._blocks():
            self.values[part] = self.shares[part] * self.program.caps[part]
        return self.improve(self.values, self.prices)

    def restart(self) -> None:
        """Move the anchor to the current point."""
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
    """Move the weight half way (in logarithms) to equal primal and dual movement."""
    if not (primal > 0 and dual > 0):
        return weight
    return float(np.clip(np.sqrt(weight * np.sqrt(dual / primal)), 1e-6, 1e6))


def gathered(members: Ints, padded: Floats) -> Floats:
    """Sum the values of the units of each set; ``padded`` ends with 0 for missing units."""
    total = padded[members[:, 0]]
    for column in members[:, 1:].T:
        total += padded[column]
    return total


def spread(members: Ints, weights: Floats | Ints, units: int) -> Floats:
    """Sum the weights of the sets of each unit."""
    total = np.zeros(units + 1)
    for column in members.T:
        total += np.bincount(column, weights, minlength=units + 1)
    return total[:units]
