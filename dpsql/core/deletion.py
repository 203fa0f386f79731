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
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dpsql.core import streamed
from dpsql.core.merging import pieces
from dpsql.core.packing import Floats, Ints, Memberships, step_of
from dpsql.core.programs import Bounds, Solver
from dpsql.core.space import MEMORY, Space
from dpsql.core.streamed import gathered, spread
from dpsql.model import GRID

#: Rounds of cuts; degenerate programs that need more are solved in passes.
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
#: Units of sets of which cuts are made; of more none are: HiGHS would not notice a cancel in time.
IN_MEMORY = 1_000_000
#: Sums of a unit below this are exact.
_WHOLE = 2**62
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
        What was found: further apart than ``gap`` only if that is 0.  ``None`` when it was
        hopeless.  The least upper bound depends on the memberships and ``tau`` alone.
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
    if excess.members.size <= IN_MEMORY:
        done = _by_cuts(excess, best, gap, tick, hopeless)
        if done is None or not gap:
            return done
        best = done
    if best.upper - best.lower <= gap:
        return best
    steps = _Deleting(excess, best)
    for _ in streamed.looks(steps):
        if steps.best.upper - steps.best.lower <= gap:
            break
        if hopeless(steps.lower):
            return None
    return steps.best


def _by_cuts(
    excess: Excess,
    best: Bounds,
    gap: int,
    tick: Callable[[], None],
    hopeless: Callable[[Lower], bool],
) -> Bounds | None:
    """Find bounds with HiGHS; ``None`` when it was hopeless."""
    master: _Master | None = None
    deleted = np.zeros(excess.units)
    for _ in range(ROUNDS):
        if best.upper - best.lower <= gap:
            break
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
    space: Space = MEMORY

    @classmethod
    def of(cls, memberships: Memberships, tau: int) -> Excess:
        """Leave out everything else."""
        step, memberships = step_of(tau), memberships.in_steps(tau)
        tau //= step
        free = -(-memberships.most // _HUGE)
        # a cap depends on the set and ``tau`` alone, so a unit moves ``f`` by at most 1 as before;
        # nearly as many must go, and no weight hides ``tau`` below a solver's tolerance
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
        padded = np.append(y, 0.0)
        return self._sums(lambda some: np.minimum(gathered(some, padded), 1))[self.heavy]

    def _sums(self, value: Callable[[Ints], Floats]) -> Floats:
        """Add up of each unit the weights of its sets times a value that they have."""
        total = np.zeros(self.units)
        for part in self.blocks():
            members = self.members[part]
            total += spread(members, value(members) * self.weights[part], self.units)
        return total

    def blocks(self) -> Iterator[slice]:
        """Yield the sets in blocks."""
        return self.space.blocks(len(self.weights), self.units)

    def below(self, prices: Floats) -> Lower:
        """Return a lower bound of ``f`` from any prices of what must be lost.

        ``f >= sum_u p_u (c_u - tau) - sum_v max(0, sum_{k with v} w_k (sum of p in k) - 1)``.
        Prices that are too high for the units themselves are lowered a few times.
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
        """Return what the units of numbers ``heavy`` lose at most, linear in ``y``.

        That is ``constants[i] + sum of values * y[columns]`` over the entries of ``rows == i``: a
        result whose units sum to 1 or more in ``deleted`` is lost, of others each unit takes ``y``.
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
    """Sums by key, kept in a table if that is small, else in ascending runs."""

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
        """Put the last two runs together, piece by piece."""
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


class _Master(Solver):
    """The cuts so far, as a program whose value is at most ``f``."""

    def __init__(self, excess: Excess, tick: Callable[[], None]) -> None:
        super().__init__(tick)
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


class _Deleting:
    """``f`` in passes: what share of each unit goes, and of each set; prices of what ties them.

    A set goes by at most what its units do together.  What a unit must lose is in parts of what it
    has, and what ties a set to its units is weighed by ``grades``: what its prices can be.
    """

    def __init__(self, excess: Excess, best: Bounds) -> None:
        self.excess, self.best, self.lower = excess, best, Lower.of(excess, 0, 0)
        size, units, space = len(excess.weights), excess.units, excess.space
        self.gone, self.ties, self.gone_anchor, self.tie_anchor, self.grades = (
            space.empty(size, np.float64) for _ in range(5)
        )
        self.each = np.zeros(units + 1)
        self.each[excess.heavy] = 1 / excess.loads
        self.totals, self.tied = np.zeros(units), np.zeros(units)
        for part in excess.blocks():
            for kept in (self.gone, self.ties, self.gone_anchor, self.tie_anchor):
                kept[part] = 0.0
            members = excess.members[part]
            self.grades[part] = excess.weights[part] * gathered(members, self.each)
            self.totals += spread(members, self.grades[part], units)
        self.deleted, self.deleted_anchor = np.zeros(units), np.zeros(units)
        self.prices, self.price_anchor = np.zeros(units), np.zeros(units)
        self.wanted = np.zeros(units)
        self.wanted[excess.heavy] = excess.needs / excess.loads
        self.weight = 1.0

    def step(self, inertia: float) -> None:
        """Go a step: one pass."""
        excess, keep = self.excess, 1 - inertia
        move = (self.tied - 1) / (np.maximum(self.totals, 1e-300) * self.weight)
        deleted = np.where(self.totals > 0, np.clip(self.deleted + move, 0, 1), 0)
        ahead = 2 * deleted - self.deleted
        padded, priced = np.append(ahead, 0.0), np.append(self.prices, 0.0) * self.each
        lost, tied = np.zeros(excess.units), np.zeros(excess.units)
        for part in excess.blocks():
            members, weights, grades = excess.members[part], excess.weights[part], self.grades[part]
            width = (members < excess.units).sum(axis=1)
            pull = weights * gathered(members, priced) / grades - self.ties[part]
            gone = 2 * np.clip(self.gone[part] + pull / (2 * self.weight), 0, 1) - self.gone[part]
            lost += spread(members, weights * gone, excess.units)
            over = gone - gathered(members, padded)
            ties = np.maximum(self.ties[part] + self.weight * over / (1 + width), 0)
            ties = 2 * ties - self.ties[part]
            self.gone[part] = inertia * gone + keep * self.gone_anchor[part]
            self.ties[part] = ties = inertia * ties + keep * self.tie_anchor[part]
            tied += spread(members, grades * ties, excess.units)
        short = self.wanted - lost * self.each[:-1]
        prices = 2 * np.maximum(self.prices + self.weight * short, 0) - self.prices
        self.deleted = inertia * ahead + keep * self.deleted_anchor
        self.prices = inertia * prices + keep * self.price_anchor
        self.tied = tied

    def look(self) -> float:
        """Compute bounds of ``f``."""
        excess, margin = self.excess, self.excess.margin
        prices = np.clip(np.nan_to_num(self.prices), 0, _DEAREST)
        priced = np.append(prices, 0.0) * self.each
        given, loads = 0.0, np.zeros(excess.units)
        for part in excess.blocks():
            members = excess.members[part]
            worth = excess.weights[part] * gathered(members, priced)
            ties = np.clip(np.nan_to_num(self.ties[part]) * self.grades[part], 0, worth)
            given += float((worth * (1 + margin) - ties).sum())
            loads += spread(members, ties, excess.units)
        paid = float((priced[excess.heavy] * excess.needs).sum())
        given += float(np.maximum(loads * (1 + margin) - 1, 0).sum())
        value = paid * (1 - margin) - given * (1 + margin)
        self.lower = Lower.of(excess, value, float(priced.sum()) * (1 - margin))
        upper = min(excess.above(self.deleted * more) for more in _MORE)
        self.best = Bounds(min(self.best.upper, upper), max(self.best.lower, self.lower.value))
        return float(upper - self.lower.value)

    def restart(self) -> None:
        """Put the anchor here."""
        excess, primal, dual = self.excess, 0.0, 0.0
        for part in excess.blocks():
            grades = self.grades[part]
            width = (excess.members[part] < excess.units).sum(axis=1)
            primal += float((2 * grades * (self.gone[part] - self.gone_anchor[part]) ** 2).sum())
            far = self.ties[part] - self.tie_anchor[part]
            dual += float(((1 + width) * grades * far**2).sum())
            self.gone_anchor[part], self.tie_anchor[part] = self.gone[part], self.ties[part]
        primal += float((self.totals * (self.deleted - self.deleted_anchor) ** 2).sum())
        dual += float(((self.prices - self.price_anchor) ** 2).sum())
        self.weight = streamed.weighed(self.weight, primal, dual)
        self.deleted_anchor, self.price_anchor = self.deleted, self.prices
