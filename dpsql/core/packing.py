"""Results that belong to several units, and the linear program that cuts units off.

``Q(I, tau) = max sum_k x_k`` where ``0 <= x_k <= n_k`` and no unit is in more than ``tau``:
``n_k`` results have the set ``k`` of units, or add up to ``n_k``.  A unit that comes or goes moves
it by at most ``tau`` (docs/proofs/linear.md).  Sets that take away have a program of their own.
Everything here is exact: numbers between which ``Q`` certainly lies, whatever a solver did to find
them (PRIVACY.md section 5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.model import GRID

Ints = NDArray[Any]
Floats = NDArray[np.float64]

#: What a set of units adds or takes away at most; more is read as this.
HIGHEST = 2**61
#: Bounds from this on are in steps that are a power of two, so that programs stay below it.
_COARSE = 2**31
#: What a set of units counts at most in the steps of a bound.
_MOST = 2**38
_HALF = 26
_MASK = (1 << _HALF) - 1


def exact_loads(codes: Ints, weights: Ints, size: int) -> Ints:
    """Sum weights below ``2**52`` by code, exactly: each half of a weight in double precision.

    Exact for up to ``2**26`` rows with sums below ``2**62``.
    """
    low = np.bincount(codes, weights=weights & _MASK, minlength=size)
    high = np.bincount(codes, weights=weights >> _HALF, minlength=size)
    return low.astype(np.int64) + (high.astype(np.int64) << _HALF)


def saturated(codes: Ints, weights: Ints, size: int) -> Ints:
    """Sum weights up to ``HIGHEST`` in magnitude by code; sums beyond it are read as it.

    A function of the weights of each code alone, whatever their order.  Exact up to there for at
    most ``2**17`` weights of a code, and for any number of them below ``2**52``.
    """
    low = np.bincount(codes, weights=weights & _MASK, minlength=size).astype(np.int64)
    high = np.bincount(codes, weights=weights >> _HALF, minlength=size) + (low >> _HALF)
    edge = float(HIGHEST >> _HALF)
    sums = (np.clip(high, -edge, edge).astype(np.int64) << _HALF) + (low & _MASK)
    sums[high < -edge] = -HIGHEST
    np.clip(sums, -HIGHEST, HIGHEST, out=sums)
    return sums


def exact_dot(left: Ints, right: Ints) -> int:
    """Multiply and add numbers ``0 <= left < 2**32`` and ``0 <= right <= 2**20``, exactly."""
    low = int(((left & 0xFFFF) * right).sum())
    return low + (int(((left >> 16) * right).sum()) << 16)


def exact_sum(weights: Ints) -> int:
    """Add up to ``2**26`` numbers below ``2**52``, exactly."""
    return int((weights & _MASK).sum()) + (int((weights >> _HALF).sum()) << _HALF)


def merged(members: Ints, counts: Ints, units: int) -> tuple[Ints, Ints]:
    """Add up the rows with the same units; sorts each row of ``members`` in place.

    Parameters
    ----------
    members : array of int, rows x width
        Units of a row, each once; ``units`` fills the rest.
    counts : array of int64
        Numbers of results, or what they add up to.
    units : int
        Number of units.
    """
    members.sort(axis=1)
    key, bound = members[:, 0].astype(np.int64), units + 1
    for column in members[:, 1:].T:
        if bound > 2**62 // (units + 1):
            names, key = np.unique(key, return_inverse=True)
            bound = len(names)
        key = key * (units + 1) + column
        bound *= units + 1
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return members[first], saturated(place, counts, len(first))


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

    @classmethod
    def of(cls, columns: list[Ints], roots: list[int], counts: Ints) -> Memberships:
        """Give the units numbers and merge results with the same ones.

        Parameters
        ----------
        columns : list of array
            Names of units: integers.
        roots : list of int
            For each column the relation whose units it names.
        counts : array of int64
            Number of results of each row, or what they add up to.
        """
        members = np.empty((len(counts), len(columns)), np.int32)
        units = 0
        for root in dict.fromkeys(roots):
            mine = [i for i, other in enumerate(roots) if other == root]
            names = np.unique(np.concatenate([np.unique(columns[i]) for i in mine]))
            for i in mine:
                members[:, i] = np.searchsorted(names, columns[i]) + units
            units += len(names)
        members.sort(axis=1)
        for column in range(len(columns) - 1, 0, -1):  # a set has a unit once
            again = members[:, column] == members[:, column - 1]
            members[again, column] = units
        return cls(*merged(members, counts, units), units)

    def part(self, sign: int) -> Memberships:
        """Return the sets that add, for the sign 1, or those that take away, for -1."""
        counts = self.counts * sign
        kept = counts > 0
        if kept.all():
            return replace(self, counts=counts)
        return replace(self, members=self.members[kept], counts=counts[kept])

    @property
    def sizes(self) -> Memberships:
        """What every set adds or takes away, signs ignored."""
        return replace(self, counts=np.abs(self.counts))

    def in_steps(self, tau: int) -> Memberships:
        """Count in the steps of a bound, rounded down (docs/proofs/linear.md, claim 11).

        It depends on each set and ``tau`` alone.
        """
        step = step_of(tau)
        if step == 1 and self.most < _MOST:
            return self
        return replace(self, counts=np.minimum(self.counts // step, _MOST - 1))

    @cached_property
    def heaviest(self) -> float:
        """At most a millionth less than the largest sum of a unit."""
        loads = _float_loads(self.members, self.counts.astype(np.float64), self.units)
        return float(loads.max(initial=0.0))

    @cached_property
    def total(self) -> int:
        """The number of results."""
        return int(self.counts.sum())

    @cached_property
    def most(self) -> int:
        """The greatest number of results with the same units."""
        return int(self.counts.max(initial=0))

    @cached_property
    def least(self) -> int:
        """The least number of units that a result has."""
        return int((self.members < self.units).sum(axis=1).min(initial=self.members.shape[1]))

    @cached_property
    def contributions(self) -> Ints:
        """The number of results of each unit."""
        return _loads(self.members, self.counts, self.units)

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
        counts, step = self.in_steps(tau).counts, step_of(tau)
        tau //= step
        counts = np.minimum(counts, tau)  # no row is above the bound of its first unit
        names = np.flatnonzero(_loads(self.members, counts, self.units) > tau)
        numbers = np.full(self.units + 1, len(names), np.int32)
        numbers[names] = np.arange(len(names), dtype=np.int32)
        members = numbers[self.members]
        touched = (members < len(names)).any(axis=1)
        free = int(counts[~touched].sum())
        members, caps = merged(members[touched], counts[touched], len(names))
        return Program(members, np.minimum(caps, tau), len(names), tau, free, step)


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

    def above(self, prices: Floats) -> int:
        """Return an upper bound of the value, times ``GRID``, from any prices of the units.

        By weak duality ``tau sum y + sum_k n_k max(0, 1 - sum of y in k)`` is one for every
        ``y >= 0``; it is computed from whole numbers ``GRID y``.
        """
        whole = np.zeros(self.units + 1, np.int64)
        whole[:-1] = np.rint(np.clip(np.nan_to_num(prices), 0, 1) * GRID)
        left = GRID - whole[self.members].sum(axis=1)
        np.maximum(left, 0, out=left)
        value = self.free * GRID + self.tau * int(whole.sum()) + exact_dot(self.caps, left)
        return value * self.step

    def below(self, values: Floats) -> int:
        """Return a lower bound of the value, times ``GRID``, from any values of the variables.

        They are scaled down to what is feasible, and that they are is checked in whole numbers.
        """
        x = np.clip(np.nan_to_num(values), 0, self.caps)
        loads = _float_loads(self.members, x, self.units)
        ratio = np.ones(self.units + 1)
        ratio[:-1] = self.tau / np.maximum(loads, self.tau)
        x = x * ratio[self.members].min(axis=1, initial=1.0)
        for shrink in (1.0, 1 - 1e-12, 1 - 1e-9, 1 - 1e-6):
            whole = np.minimum(np.floor(x * shrink * GRID).astype(np.int64), self.caps * GRID)
            loads = _loads(self.members, whole, self.units)
            if loads.max(initial=0) <= self.tau * GRID:
                return (self.free * GRID + exact_sum(whole)) * self.step
        return self.free * GRID * self.step


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
