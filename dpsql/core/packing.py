"""Results that belong to several units, and the linear program that cuts units off.

``Q(I, tau) = max sum_k x_k`` where ``0 <= x_k <= n_k`` and no unit is in more than ``tau``:
``n_k`` results have the set ``k`` of units, or add up to ``n_k``.  A unit that comes or goes moves
it by at most ``tau`` (docs/proofs/linear.md).  Sets that take away have a program of their own.
Everything here is exact: numbers between which ``Q`` certainly lies, whatever a solver did to find
them (PRIVACY.md section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.core.merging import HALF, HIGHEST, MASK, distinct, exact_sum, merged
from dpsql.core.space import MEMORY, Space
from dpsql.model import GRID

__all__ = ["HIGHEST", "Memberships", "Program", "exact_dot", "exact_loads", "step_of"]

Ints = NDArray[Any]
Floats = NDArray[np.float64]

#: Bounds from this on are in steps that are a power of two, so that programs stay below it.
_COARSE = 2**31
#: What a set of units counts at most in the steps of a bound.
_MOST = 2**38
#: Sums of a unit are clamped to this; sums of a block stay below a quarter of it.
_FULL = 2**62


def exact_loads(codes: Ints, weights: Ints, size: int) -> Ints:
    """Sum weights below ``2**52`` by code, exactly: each half of a weight in double precision.

    Exact for up to ``2**26`` rows with sums below ``2**62``.
    """
    low = np.bincount(codes, weights=weights & MASK, minlength=size)
    high = np.bincount(codes, weights=weights >> HALF, minlength=size)
    return low.astype(np.int64) + (high.astype(np.int64) << HALF)


def exact_dot(left: Ints, right: Ints) -> int:
    """Multiply and add numbers ``0 <= left < 2**32`` and ``0 <= right <= 2**20``, exactly."""
    low = int(((left & 0xFFFF) * right).sum())
    return low + (int(((left >> 16) * right).sum()) << 16)


@dataclass(frozen=True)
class Memberships:
    """How many results have which units, or what these add up to: exact and secret.

    ``members`` holds in each row the numbers of the units, each once, filled up with ``units``;
    all rows differ.  ``counts`` are at most ``HIGHEST`` in magnitude; only what `part` and `sizes`
    return, without negative ones, is bounded.
    """

    members: Ints
    counts: Ints
    units: int
    space: Space = MEMORY

    @classmethod
    def of(
        cls, columns: list[Ints], roots: list[int], counts: Ints, space: Space = MEMORY
    ) -> Memberships:
        """Give the units numbers and merge results with the same ones.

        Parameters
        ----------
        columns : list of array
            Names of units: integers.
        roots : list of int
            For each column the relation whose units it names.
        counts : array of int64
            Number of results of each row, or what they add up to.
        space : Space
            Where arrays with one row per set of units are allocated.
        """
        members = space.empty((len(counts), len(columns)), np.int32)
        units = 0
        for root in dict.fromkeys(roots):
            mine = [i for i, other in enumerate(roots) if other == root]
            names = distinct((columns[i] for i in mine), space)
            for i in mine:
                for part in space.blocks(len(counts)):
                    members[part, i] = np.searchsorted(names, columns[i][part]) + units
            units += len(names)
        for part in space.blocks(len(counts)):
            some = members[part]
            some.sort(axis=1)
            for column in range(len(columns) - 1, 0, -1):  # a set has a unit once
                again = some[:, column] == some[:, column - 1]
                some[again, column] = units
        return cls(*merged(members, counts, units, space), units, space)

    def part(self, sign: int) -> Memberships:
        """Return the sets that add, for the sign 1, or those that take away, for -1."""
        used = sum(int((self.counts[part] * sign > 0).sum()) for part in self._blocks())
        if used == len(self.counts):
            return self._counting(lambda counts: counts * sign)
        members = self.space.empty((used, self.members.shape[1]), np.int32)
        counts = self.space.empty(used, np.int64)
        end = 0
        for part in self._blocks():
            some = self.counts[part] * sign
            kept = some > 0
            place = slice(end, end + int(kept.sum()))
            members[place], counts[place], end = self.members[part][kept], some[kept], place.stop
        return replace(self, members=members, counts=counts)

    @property
    def sizes(self) -> Memberships:
        """What every set adds or takes away, signs ignored."""
        return self._counting(np.abs)

    def in_steps(self, tau: int) -> Memberships:
        """Count in the steps of a bound, rounded down (docs/proofs/linear.md, claim 11).

        It depends on each set and ``tau`` alone.
        """
        step = step_of(tau)
        if step == 1 and self.most < _MOST:
            return self
        return self._counting(lambda counts: np.minimum(counts // step, _MOST - 1))

    def capped(self, most: int) -> Memberships:
        """Cap the count of each set."""
        if self.most <= most:
            return self
        return self._counting(lambda counts: np.minimum(counts, most))

    def _counting(self, change: Callable[[Ints], Ints]) -> Memberships:
        counts = self.space.empty(len(self.counts), np.int64)
        for part in self._blocks():
            counts[part] = change(self.counts[part])
        return replace(self, counts=counts)

    def _blocks(self, sums: int = 0) -> Iterator[slice]:
        return self.space.blocks(len(self.counts), sums)

    @cached_property
    def heaviest(self) -> float:
        """At most a millionth less than the largest sum of a unit."""
        return float(self.nearly.max(initial=0.0))

    @property
    def nearly(self) -> Floats:
        """The number of results of each unit, rounded to double precision."""
        loads = np.zeros(self.units)
        for part in self._blocks(self.units):
            loads += _float_loads(
                self.members[part], self.counts[part].astype(np.float64), self.units
            )
        return loads

    @cached_property
    def total(self) -> int:
        """The number of results."""
        return sum(exact_sum(self.counts[part]) for part in self._blocks())

    @cached_property
    def most(self) -> int:
        """The greatest number of results with the same units."""
        return max((int(self.counts[part].max()) for part in self._blocks()), default=0)

    @cached_property
    def least(self) -> int:
        """The least number of units that a result has."""
        width = self.members.shape[1]
        return min(
            (int((self.members[part] < self.units).sum(axis=1).min()) for part in self._blocks()),
            default=width,
        )

    @cached_property
    def contributions(self) -> Ints:
        """The number of results of each unit, clamped to ``2**62``."""
        return self._loads(_MOST)

    def _loads(self, most: int) -> Ints:
        """Sum the results of each unit, with the count of each set capped."""
        loads = np.zeros(self.units, np.int64)
        for part in self._blocks(self.units):
            counts = np.minimum(self.counts[part], most)
            loads += _loads(self.members[part], counts, self.units)
            np.minimum(loads, _FULL, out=loads)
        return loads

    def ceiling(self, tau: int) -> int:
        """Return a simple upper bound of ``Q``: every result counts once for each of its units."""
        found, step = self.in_steps(tau), step_of(tau)
        cut = int(np.minimum(found.contributions, tau // step).sum())
        return min(found.total, -(-cut // max(found.least, 1))) * step

    def program(self, tau: int) -> Program:
        """Return the linear program, without constraints that cannot bind.

        A row whose units all stay within ``tau`` is counted in full; rows that differ in such
        units only are one variable.
        """
        found, step = self.in_steps(tau), step_of(tau)
        tau //= step
        # no row is above the bound of its first unit
        names = np.flatnonzero(found._loads(tau) > tau)
        numbers = np.full(self.units + 1, len(names), np.int32)
        numbers[names] = np.arange(len(names), dtype=np.int32)
        members = self.space.empty(self.members.shape, np.int32)
        caps = self.space.empty(len(self.counts), np.int64)
        free, used = 0, 0
        for part in found._blocks():
            counts, some = np.minimum(found.counts[part], tau), numbers[found.members[part]]
            touched = (some < len(names)).any(axis=1)
            free += exact_sum(counts[~touched])
            some, counts = merged(some[touched], counts[touched], len(names))
            place = slice(used, used + len(counts))
            members[place], caps[place], used = some, counts, place.stop
        members, caps = merged(members[:used], caps[:used], len(names), self.space)
        for part in self.space.blocks(len(caps)):
            np.minimum(caps[part], tau, out=caps[part])
        return Program(members, caps, len(names), tau, free, step, self.space)


def step_of(tau: int) -> int:
    """Return the steps in which a bound is below ``2**31``: a power of two, 1 for all below it."""
    return 1 << max(0, tau.bit_length() - _COARSE.bit_length() + 1)


@dataclass(frozen=True, slots=True)
class Program:
    """``step (free + max sum x)`` with ``0 <= x <= caps``, every unit in at most ``tau``."""

    members: Ints
    caps: Ints
    units: int
    tau: int
    free: int
    step: int = 1
    space: Space = MEMORY

    def above(self, prices: Floats) -> int:
        """Return an upper bound of the value, times ``GRID``, from any prices of the units.

        By weak duality ``tau sum y + sum_k n_k max(0, 1 - sum of y in k)`` is one for every
        ``y >= 0``; it is computed from whole numbers ``GRID y``.
        """
        whole = np.zeros(self.units + 1, np.int64)
        whole[:-1] = np.rint(np.clip(np.nan_to_num(prices), 0, 1) * GRID)
        value = self.free * GRID + self.tau * int(whole.sum())
        for part in self._blocks():
            left = GRID - whole[self.members[part]].sum(axis=1)
            np.maximum(left, 0, out=left)
            value += exact_dot(self.caps[part], left)
        return value * self.step

    def below(self, values: Floats) -> int:
        """Return a lower bound of the value, times ``GRID``, from any values of the variables.

        They are scaled down to what is feasible, and that they are is checked in whole numbers.
        """
        loads = np.zeros(self.units)
        for part in self._blocks(self.units):
            x = np.clip(np.nan_to_num(values[part]), 0, self.caps[part])
            loads += _float_loads(self.members[part], x, self.units)
        ratio = np.ones(self.units + 1)
        ratio[:-1] = self.tau / np.maximum(loads, self.tau)
        for shrink in (1.0, 1 - 1e-12, 1 - 1e-9, 1 - 1e-6):
            total, most = self._whole(values, ratio, shrink)
            if most <= self.tau * GRID:
                return (self.free * GRID + total) * self.step
        return self.free * GRID * self.step

    def _whole(self, values: Floats, ratio: Floats, shrink: float) -> tuple[int, int]:
        """Return the sum of the scaled values, as integers, and the largest sum of a unit."""
        total, loads = 0, np.zeros(self.units, np.int64)
        for part in self._blocks(self.units):
            members, caps = self.members[part], self.caps[part]
            x = np.clip(np.nan_to_num(values[part]), 0, caps)
            x = x * ratio[members].min(axis=1, initial=1.0)
            whole = np.minimum(np.floor(x * shrink * GRID).astype(np.int64), caps * GRID)
            total += exact_sum(whole)
            loads += _loads(members, whole, self.units)
            np.minimum(loads, _FULL, out=loads)
        return total, int(loads.max(initial=0))

    def _blocks(self, sums: int = 0) -> Iterator[slice]:
        return self.space.blocks(len(self.caps), sums)


def _loads(members: Ints, weights: Ints, units: int) -> Ints:
    """Sum the weights of the rows of each unit, exactly."""
    loads = np.zeros(units, np.int64)
    for column in members.T:
        loads += exact_loads(column, weights, units + 1)[:units]
    return loads


def _float_loads(members: Ints, weights: Floats, units: int) -> Floats:
    loads = np.zeros(units)
    for column in members.T:
        loads += np.bincount(column, weights=weights, minlength=units + 1)[:units]
    return loads
