"""Certified bounds of how many units must be deleted (docs/proofs/linear.md).

The program is that of `dpsql.core.deletion`.  Solvers propose solutions; the bounds computed here
hold for any proposal (PRIVACY.md section 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dpsql.core.merging import pieces
from dpsql.core.packing import Floats, Ints, Memberships, step_of
from dpsql.core.space import MEMORY, Space
from dpsql.core.streamed import gathered, spread
from dpsql.model import GRID

#: Largest table of sums for pairs of units; if there are more pairs, they are sorted.
_TABLE = 1 << 23
#: How often the prices of a simple lower bound are lowered.
_LOWERED = 4
#: Fractional binary digits of ``Lower.rise``.
_FINE = 40
#: Upper limit of the prices of cuts, which are about 1.
DEAREST = 1e9
#: Sums of a unit below this are exact.
_WHOLE = 2**62
#: Results of a set are capped at this multiple of ``tau``.
_HUGE = 32
#: Relative excess when a shortfall is made up, for rounding errors of sums.
_AGAIN = 1e-9
#: The solver's deletions are certified with each of these factors, and the best bound is used.
_MORE = (1.0, 1 + 1e-7, 1 + 1e-6, 1 + 1e-5, 1 + 1e-4)


@dataclass(frozen=True, slots=True)
class Lower:
    """A lower bound of ``f`` at ``tau``, times ``GRID``, and at all smaller bounds.

    At a smaller bound units must lose more, so with the same prices the lower bound rises by
    ``rise/2**_FINE`` for each result, down to the bound ``free``, the least one at which no set of
    units is capped; below ``free`` it stays.  All values are in steps of ``step``; for bounds with
    other steps it gives nothing.
    """

    tau: int
    free: int
    value: int
    rise: int
    step: int

    @classmethod
    def of(cls, excess: Excess, value: float, prices: float) -> Lower:
        """Round the value down; ``prices`` is the sum of the prices."""
        if value <= 0:
            return cls(excess.tau, excess.free, 0, 0, excess.step)
        rise = math.floor(prices * GRID * 2**_FINE)
        return cls(excess.tau, excess.free, math.floor(value * GRID), rise, excess.step)

    def at(self, tau: int) -> int:
        """Return the lower bound of ``f`` at a ``tau`` that is not larger than this one's."""
        if step_of(tau) != self.step:
            return 0
        least = min(self.tau, max(tau // self.step, self.free))
        return self.value + (self.rise * (self.tau - least) >> _FINE)


@dataclass(frozen=True, slots=True)
class Excess:
    """The units with more than ``tau`` results, and the sets that contain one of them.

    ``members`` and ``weights`` describe these sets.  ``heavy`` holds the numbers of these units,
    ``loads`` how many results each has, ``needs`` how many of them are above ``tau``.  From the
    bound ``free`` on no set is capped.  Results and bounds are in steps of ``step``.
    """

    members: Ints
    weights: Floats
    heavy: Ints
    loads: Floats
    needs: Floats
    units: int
    tau: int
    free: int
    step: int
    space: Space = MEMORY

    @classmethod
    def of(cls, memberships: Memberships, tau: int) -> Excess:
        """Select the heavy units and their sets."""
        step, memberships = step_of(tau), memberships.in_steps(tau)
        tau //= step
        free = -(-memberships.most // _HUGE)
        # a cap depends on the set and ``tau`` alone, so a unit still moves ``f`` by at most 1;
        # ``f`` changes little, and ``tau`` stays above a solver's tolerance relative to the weights
        memberships = memberships.capped(_HUGE * tau)
        whole = memberships.contributions
        loads = np.where(whole < _WHOLE, whole, memberships.nearly)
        above = np.zeros(memberships.units + 1, bool)
        above[:-1] = whole > tau
        heavy = np.flatnonzero(above)
        space = memberships.space
        members = space.empty(memberships.members.shape, np.int32)
        weights = space.empty(len(members), np.float64)
        used = 0
        for part in space.blocks(len(members)):
            some = memberships.members[part]
            touched = above[some].any(axis=1)
            place = slice(used, used + int(touched.sum()))
            members[place], weights[place] = some[touched], memberships.counts[part][touched]
            used = place.stop
        return cls(
            members[:used],
            weights[:used],
            heavy,
            loads[heavy],
            np.where(whole < _WHOLE, whole - tau, loads - tau)[heavy].astype(np.float64),
            memberships.units,
            tau,
            free,
            step,
            space,
        )

    @property
    def margin(self) -> float:
        """Four times the relative rounding error of sums of non-negative numbers.

        No sum here has more terms than there are members of sets and units together.
        """
        return (self.members.size + self.units + 64) * 2.0**-51

    @property
    def alone(self) -> Floats:
        """Each unit alone deletes its share above ``tau``: a feasible solution."""
        deleted = np.zeros(self.units)
        deleted[self.heavy] = self.needs / self.loads
        return deleted

    def nearby(self, deleted: Floats) -> int:
        """Return the least upper bound of ``f`` from a solver's deletions, slightly enlarged."""
        return min(self.above(deleted * more) for more in _MORE)

    def above(self, deleted: Floats) -> int:
        """Return an upper bound of ``f``, times ``GRID``, from any deleted shares of the units.

        A unit that loses too little deletes a further part of what is left of it.  That suffices,
        because its loss is concave in its share and deleting all of it loses more than is needed.
        """
        y = np.clip(np.nan_to_num(deleted), 0, 1)
        lost = self.lost(y)
        wanted = self.needs * (1 + 4 * self.margin)
        short = (wanted - lost) / np.maximum(self.loads - lost, self.margin)
        y[self.heavy] += (1 - y[self.heavy]) * np.clip(short * (1 + _AGAIN), 0, 1)
        if (self.lost(y) * (1 - self.margin) >= self.needs).all():
            return math.ceil(float(y.sum()) * (1 + self.margin) * GRID)
        return len(self.heavy) * GRID

    def lost(self, y: Floats) -> Floats:
        """Return how many results the heavy units lose."""
        padded = np.append(y, 0.0)
        return self._sums(lambda some: np.minimum(gathered(some, padded), 1))[self.heavy]

    def _sums(self, value: Callable[[Ints], Floats]) -> Floats:
        """Sum, for each unit, the weights of its sets times a value of the sets."""
        total = np.zeros(self.units)
        for part in self.blocks():
            members = self.members[part]
            total += spread(members, value(members) * self.weights[part], self.units)
        return total

    def blocks(self) -> Iterator[slice]:
        """Yield the sets in blocks."""
        return self.space.blocks(len(self.weights), self.units)

    def below(self, prices: Floats) -> Lower:
        """Return a lower bound of ``f`` from any prices of the heavy units' needs.

        ``f >= sum_u p_u (c_u - tau) - sum_v max(0, sum_{k with v} w_k (sum of p in k) - 1)``.
        Prices are lowered a few times where the sum over v is positive.
        """
        best = Lower.of(self, 0, 0)
        prices = np.clip(np.nan_to_num(prices), 0, 1)
        for _ in range(_LOWERED):
            padded = np.zeros(self.units + 1)
            padded[self.heavy] = prices
            loads = self._sums(lambda some, padded=padded: gathered(some, padded))  # type: ignore[misc]
            paid = float((prices * self.needs).sum())
            excess = float(np.maximum(loads * (1 + self.margin) - 1, 0).sum())
            value = paid * (1 - self.margin) - excess * (1 + self.margin)
            found = Lower.of(self, value, float(prices.sum()) * (1 - self.margin))
            best = max(best, found, key=lambda lower: lower.value)
            prices = prices / np.maximum(loads[self.heavy], 1)
        return best

    def cuts(self, heavy: Ints, deleted: Floats) -> tuple[Floats, Ints, Ints, Floats]:
        """Return linear upper bounds, in ``y``, of what some heavy units lose.

        ``heavy`` holds positions in ``self.heavy``.  The bound of the i-th is ``constants[i]`` plus
        the sum of ``values * y[columns]`` over the entries with ``rows == i``.  A set whose units
        sum to 1 or more in ``deleted`` counts as lost; in other sets each unit counts
        with its ``y``.
        """
        numbers = np.full(self.units + 1, len(heavy), np.int64)
        numbers[self.heavy[heavy]] = np.arange(len(heavy))
        padded = np.append(deleted, 0.0)
        constants = np.zeros(len(heavy))
        sums = _Sums(len(heavy) * self.units, self.space)
        for part in self.blocks():
            members, weights = self.members[part], self.weights[part]
            full = gathered(members, padded) >= 1
            for mine in members.T:
                row = numbers[mine]
                touched = row < len(heavy)
                gone = touched & full
                constants += np.bincount(row[gone], weights[gone], minlength=len(heavy))
                touched &= ~full
                for other in members.T:
                    pairs = np.flatnonzero(touched & (other < self.units))
                    sums.add(row[pairs] * self.units + other[pairs], weights[pairs])
        names, values = sums.all()
        return constants, names // self.units, names % self.units, values


class _Sums:
    """Sums by key, in a table if it is small, else in ascending runs."""

    def __init__(self, size: int, space: Space) -> None:
        self.table = np.zeros(size) if size <= _TABLE else None
        self.space = space
        self.runs: list[tuple[Ints, Floats]] = []

    def add(self, keys: Ints, weights: Floats) -> None:
        """Add weights by key."""
        if self.table is not None:
            np.add.at(self.table, keys, weights)
            return
        self.runs.append(_summed(keys, weights))
        while len(self.runs) > 1 and len(self.runs[-2][0]) <= 2 * len(self.runs[-1][0]):
            self._join()

    def all(self) -> tuple[Ints, Floats]:
        """Return the keys, ascending, and their sums."""
        if self.table is not None:
            names = np.flatnonzero(self.table)
            return names, self.table[names]
        while len(self.runs) > 1:
            self._join()
        return self.runs[0] if self.runs else (np.zeros(0, np.int64), np.zeros(0))

    def _join(self) -> None:
        """Merge the last two runs, piece by piece."""
        (left, some), (right, more) = self.runs[-2:]
        parts = []
        for a, b in pieces(left, right):
            self.space.tick()
            keys = np.concatenate((left[a], right[b]))
            parts.append(_summed(keys, np.concatenate((some[a], more[b]))))
        names, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        self.runs[-2:] = [(names, values)]


def _summed(keys: Ints, weights: Floats) -> tuple[Ints, Floats]:
    names, places = np.unique(keys, return_inverse=True)
    return names, np.bincount(places, weights, minlength=len(names)).astype(np.float64)
