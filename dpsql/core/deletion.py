"""How many units must go until none has more than ``tau`` results: certified, in fractions.

``f(I, tau) = min sum_u y_u`` where ``y, z >= 0``, ``z_k <= min(1, sum of y in k)`` and each unit
with ``c_u > tau`` results loses ``sum over k with u of w_k z_k >= c_u - tau``: ``w_k`` results have
the set ``k`` of units.  A unit that comes or goes moves it by at most 1, all one way
(docs/proofs/linear.md).  What is returned are bounds that hold whatever a solver did
(PRIVACY.md section 5).  For sums ``w_k`` is what the set adds or takes away, signs ignored.

For given ``y`` the best ``z`` is known, and what a unit loses is concave in ``y``: Kelley's cutting
planes (1960).  The programs that HiGHS solves have a column for a unit and, round by round, a row
for a unit above ``tau``; results occur in sums only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpsql.core.packing import Floats, Ints, Memberships, step_of
from dpsql.core.programs import Bounds, Solver
from dpsql.errors import ReleaseFailed
from dpsql.model import GRID

#: Rounds of cuts; the last ones are never needed but in degenerate programs.
ROUNDS = 400
#: Cells of a table of sums for pairs of units; more pairs are sorted.
_TABLE = 1 << 23
#: Prices of a simple lower bound are lowered so many times.
_LOWERED = 4
#: Binary digits of what a lower bound rises by from one bound to the next.
_FINE = 40
#: Prices of cuts, which are about 1, above this are read as this.
_DEAREST = 1e9
#: A unit that loses so nearly enough gets no further cut.
_ENOUGH = 1e-7
#: What cuts may take, in bytes, and what they take for each unit of each set.
MEMORY_LIMIT = 4 << 30
_BYTES = 170
#: A set of units has at most so many times ``tau`` results that count.
_HUGE = 32
#: What makes up for what is short is more by this part, for sums that are off.
_AGAIN = 1e-9
#: What the solver deletes is certified as it is and so many times as much, and the best counts.
_MORE = (1.0, 1 + 1e-7, 1 + 1e-6, 1 + 1e-5, 1 + 1e-4)


def solve(
    memberships: Memberships,
    tau: int,
    gap: int,
    tick: Callable[[], None],
    hopeless: Callable[[Lower], bool],
) -> Bounds | None:
    """Find bounds of ``f`` that are at most ``gap`` apart.

    Parameters
    ----------
    memberships : Memberships
        Which results have which units.
    tau : int
        The bound.
    gap : int
        How far the bounds may be apart, times ``GRID``.
    tick : callable
        Called between two steps; raises to stop.
    hopeless : callable
        Told the lower bounds, one after the other; whether the value is not wanted any more.

    Returns
    -------
    Bounds or None
        What was found: further apart than ``gap`` only if the solver cannot do better.  ``None``
        when it was hopeless.  The least upper bound depends on the memberships and ``tau`` alone.
    """
    if memberships.heaviest * (1 + 1e-6) < tau:
        return Bounds(0, 0)
    excess = Excess.of(memberships, tau)
    tick()
    if not len(excess.heavy):
        return Bounds(0, 0)
    lower = excess.below(1 / excess.loads)
    tick()
    if hopeless(lower):
        return None
    best = Bounds(excess.above(excess.alone), lower.value)
    master: _Master | None = None
    deleted = np.zeros(memberships.units)
    for _ in range(ROUNDS):
        if best.upper - best.lower <= gap:
            break
        if excess.members.size * _BYTES > MEMORY_LIMIT:
            raise ReleaseFailed("the answer could not be computed")
        master = master or _Master(excess, tick)
        if not master.cut(deleted):
            break
        deleted, lower = master.solve()
        # the solver keeps to the cuts up to its tolerance, which may be much of a small bound
        upper = min(excess.above(deleted * more) for more in _MORE)
        best = Bounds(min(best.upper, upper), max(best.lower, lower.value))
        if hopeless(lower):
            return None
    return best


def capped(memberships: Memberships, tau: int) -> Memberships:
    """Count of each set of units at most ``_HUGE tau`` results.

    It depends on the set and ``tau`` alone, so a unit moves ``f`` of what is left by at most 1 as
    before; units exceed ``tau`` as before, and nearly as many must go.  No weight is then so much
    larger than ``tau`` that a solver's tolerance hides it.
    """
    most = _HUGE * tau
    if memberships.most <= most:
        return memberships
    return replace(memberships, counts=np.minimum(memberships.counts, most))


@dataclass(frozen=True, slots=True)
class Lower:
    """A lower bound of ``f`` at ``tau``, times ``GRID``, and at all smaller bounds.

    There what must be lost is more, at the same prices: by ``rise/2**_FINE`` for each result, down
    to ``free``, the least bound at which no set of units is capped; below that no less.  All of
    these are in steps of ``step``; of bounds with other steps nothing is known.
    """

    tau: int
    free: int
    value: int
    rise: int
    step: int

    @classmethod
    def of(cls, excess: Excess, value: float, prices: float) -> Lower:
        """Round down; ``prices`` is the sum of the prices."""
        if value <= 0:
            return cls(excess.tau, excess.free, 0, 0, excess.step)
        rise = math.floor(prices * GRID * 2**_FINE)
        return cls(excess.tau, excess.free, math.floor(value * GRID), rise, excess.step)

    def at(self, tau: int) -> int:
        """Return the lower bound at a bound that is not larger."""
        if step_of(tau) != self.step:
            return 0
        least = min(self.tau, max(tau // self.step, self.free))
        return self.value + (self.rise * (self.tau - least) >> _FINE)


@dataclass(frozen=True, slots=True)
class Excess:
    """The units with more than ``tau`` results and the results that have any of them.

    ``members`` and ``weights`` are of these results; ``heavy`` holds numbers of units, ``loads``
    and ``needs`` how many results they have, and how many above ``tau``.  No set of units is capped
    from the bound ``free`` on.  Results and bounds are in steps of ``step``.
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

    @classmethod
    def of(cls, memberships: Memberships, tau: int) -> Excess:
        """Leave out everything else."""
        step, memberships = step_of(tau), memberships.in_steps(tau)
        tau //= step
        free = -(-memberships.most // _HUGE)
        memberships = capped(memberships, tau)
        loads = memberships.contributions
        above = np.zeros(memberships.units + 1, bool)
        above[:-1] = loads > tau
        heavy = np.flatnonzero(above)
        members = memberships.members
        touched = np.zeros(len(members), bool)
        for column in members.T:
            touched |= above[column]
        kept = members[touched]
        weights = memberships.counts[touched].astype(np.float64)
        mine = loads[heavy]
        return cls(
            kept,
            weights,
            heavy,
            mine.astype(np.float64),
            (mine - tau).astype(np.float64),
            memberships.units,
            tau,
            free,
            step,
        )

    @property
    def margin(self) -> float:
        """Four times the part of them by which sums of non-negative numbers can be off.

        No sum here has more terms than there are members of results, and units.
        """
        return (self.members.size + self.units + 64) * 2.0**-51

    @property
    def alone(self) -> Floats:
        """Every unit gives up what it has above ``tau`` without the others: feasible."""
        deleted = np.zeros(self.units)
        deleted[self.heavy] = self.needs / self.loads
        return deleted

    def above(self, deleted: Floats) -> int:
        """Return an upper bound of ``f``, times ``GRID``, from any numbers of the units.

        What is short of a unit is made up by a part of what is left of it: what is lost is concave,
        and all of the unit would leave ``tau`` to spare.
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
        """Return what the units above ``tau`` lose."""
        lost = np.minimum(gather(self.members, y), 1) * self.weights
        return scatter(self.members, lost, self.units)[self.heavy]

    def below(self, prices: Floats) -> Lower:
        """Return a lower bound of ``f`` from any prices of what must be lost.

        ``f >= sum_u p_u (c_u - tau) - sum_v max(0, sum_{k with v} w_k (sum of p in k) - 1)``.
        Prices that are too high for the units themselves are lowered a few times.
        """
        best = Lower.of(self, 0, 0)
        prices = np.clip(np.nan_to_num(prices), 0, 1)
        for _ in range(_LOWERED):
            spread = np.zeros(self.units)
            spread[self.heavy] = prices
            loads = scatter(self.members, gather(self.members, spread) * self.weights, self.units)
            paid = float((prices * self.needs).sum())
            excess = float(np.maximum(loads * (1 + self.margin) - 1, 0).sum())
            value = paid * (1 - self.margin) - excess * (1 + self.margin)
            found = Lower.of(self, value, float(prices.sum()) * (1 - self.margin))
            best = max(best, found, key=lambda lower: lower.value)
            prices = prices / np.maximum(loads[self.heavy], 1)
        return best

    def cuts(self, heavy: Ints, deleted: Floats) -> tuple[Floats, Ints, Ints, Floats]:
        """Return what the units of numbers ``heavy`` lose at most, linear in ``y``.

        That is ``constants[i] + sum of values * y[columns]`` over the entries of ``rows == i``: a
        result whose units sum to 1 or more in ``deleted`` is lost, of others each unit takes ``y``.
        """
        numbers = np.full(self.units + 1, len(heavy), np.int64)
        numbers[self.heavy[heavy]] = np.arange(len(heavy))
        full = gather(self.members, deleted) >= 1
        constants = np.zeros(len(heavy))
        sums = _Sums(len(heavy) * self.units)
        for mine in self.members.T:
            row = numbers[mine]
            touched = row < len(heavy)
            gone = touched & full
            constants += np.bincount(row[gone], self.weights[gone], minlength=len(heavy))
            touched &= ~full
            for other in self.members.T:
                pairs = np.flatnonzero(touched & (other < self.units))
                sums.add(row[pairs] * self.units + other[pairs], self.weights[pairs])
        names, values = sums.all()
        return constants, names // self.units, names % self.units, values


class _Sums:
    """Sums by key, kept in a table if that is small, else sorted."""

    def __init__(self, size: int) -> None:
        self.table = np.zeros(size) if size <= _TABLE else None
        self.names = np.zeros(0, np.int64)
        self.values = np.zeros(0)

    def add(self, keys: Ints, weights: Floats) -> None:
        """Add weights by key."""
        if self.table is not None:
            self.table += np.bincount(keys, weights, minlength=len(self.table))
            return
        names, places = np.unique(np.concatenate((self.names, keys)), return_inverse=True)
        weights = np.concatenate((self.values, weights))
        self.names, self.values = names, np.bincount(places, weights).astype(np.float64)

    def all(self) -> tuple[Ints, Floats]:
        """Return the keys, ascending, and their sums."""
        if self.table is None:
            return self.names, self.values
        names = np.flatnonzero(self.table)
        return names, self.table[names]


class _Master(Solver):
    """The cuts so far, as a program whose value is at most ``f``."""

    def __init__(self, excess: Excess, tick: Callable[[], None]) -> None:
        super().__init__("simplex", tick)
        self.excess = excess
        size = excess.units
        self.highs.addVars(size, np.zeros(size), np.ones(size))
        self.highs.changeColsCost(size, np.arange(size, dtype=np.int32), np.ones(size))
        self.units: list[Ints] = []
        self.constants: list[Floats] = []
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        self.rows = 0

    def cut(self, deleted: Floats) -> bool:
        """Add cuts at ``deleted`` where it is not enough; tell whether there are any."""
        lost = self.excess.lost(deleted)
        short = np.flatnonzero(lost < self.excess.needs * (1 - _ENOUGH))
        if len(short):
            self._add(short, deleted)
        return len(short) > 0

    def solve(self) -> tuple[Floats, Lower]:
        """Return what had to be deleted by the cuts alone, and a lower bound of ``f``."""
        self.go()
        found = self.highs.getSolution()
        return np.array(found.col_value), self._below(np.array(found.row_dual))

    def _add(self, short: Ints, deleted: Floats) -> None:
        constants, rows, columns, values = self.excess.cuts(short, deleted)
        scale = self.excess.loads[short]
        starts = np.searchsorted(rows, np.arange(len(short)))
        self.highs.addRows(
            len(short),
            (self.excess.needs[short] - constants) / scale,
            np.full(len(short), self.infinity),
            len(values),
            starts.astype(np.int32),
            columns.astype(np.int32),
            values / scale[rows],
        )
        self.units.append(short)
        self.constants.append(constants)
        self.entries.append((rows + self.rows, columns, values))
        self.rows += len(short)

    def _below(self, duals: Floats) -> Lower:
        """Return a lower bound of ``f`` from any prices of the cuts."""
        units = np.concatenate(self.units)
        prices = np.clip(np.nan_to_num(duals), 0, _DEAREST) / self.excess.loads[units]
        loads = np.zeros(self.excess.units)
        for rows, columns, values in self.entries:
            loads += np.bincount(columns, prices[rows] * values, minlength=self.excess.units)
        paid = float((prices * self.excess.needs[units]).sum())
        given = float((prices * np.concatenate(self.constants)).sum())
        margin = self.excess.margin + self.rows * 2.0**-51
        excess = float(np.maximum(loads * (1 + margin) - 1, 0).sum())
        value = paid * (1 - margin) - (given + excess) * (1 + margin)
        return Lower.of(self.excess, value, float(prices.sum()) * (1 - margin))


def gather(members: Ints, values: Floats) -> Floats:
    """Add up the values of the units of each result."""
    padded = np.append(values, 0.0)
    total = np.zeros(len(members))
    for column in members.T:
        total += padded[column]
    return total


def scatter(members: Ints, weights: Floats, units: int) -> Floats:
    """Add up the weights of the results of each unit."""
    total = np.zeros(units + 1)
    for column in members.T:
        total += np.bincount(column, weights, minlength=units + 1)
    return total[:units]
