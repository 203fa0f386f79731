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

from collections.abc import Callable

import numpy as np

from dpsql.core import streamed
from dpsql.core.deletion_passes import Deleting
from dpsql.core.excess import DEAREST, Excess, Lower
from dpsql.core.packing import Floats, Ints, Memberships
from dpsql.core.programs import Bounds, Solver

__all__ = ["Excess", "Lower", "solve"]

#: Most rounds of cuts; degenerate programs that need more are solved by passes.
ROUNDS = 400
#: A unit that loses so nearly enough gets no further cut.
_ENOUGH = 1e-7
#: Most members of sets for which cuts are made; with more, HiGHS would notice a cancel too late.
IN_MEMORY = 1_000_000


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
    steps = Deleting(excess, best)
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
    """Find bounds with HiGHS and cuts; return ``None`` if it was hopeless."""
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
        upper = excess.nearby(deleted)
        best = Bounds(min(best.upper, upper), max(best.lower, lower.value))
        if hopeless(lower):
            return None
    return best


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
        prices = np.clip(np.nan_to_num(duals), 0, DEAREST) / self.excess.loads[units]
        loads = np.zeros(self.excess.units)
        for rows, columns, values in self.entries:
            loads += np.bincount(columns, prices[rows] * values, minlength=self.excess.units)
        paid = float((prices * self.excess.needs[units]).sum())
        given = float((prices * np.concatenate(self.constants)).sum())
        margin = self.excess.margin + self.rows * 2.0**-51
        excess = float(np.maximum(loads * (1 + margin) - 1, 0).sum())
        value = paid * (1 - margin) - (given + excess) * (1 + margin)
        return Lower.of(self.excess, value, float(prices.sum()) * (1 - margin))
