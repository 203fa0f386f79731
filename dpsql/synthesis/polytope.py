"""The sets that links may lie in, and Bregman projection onto them.

The Kullback-Leibler projection of ``Y > 0`` onto tables with ``X <= cap``, given total, and bounds
on row and column sums has the form ``X = min(cap, w u_s v_t Y_st)`` with one multiplier per
constraint.  They are found by ascent in one family at a time, each exactly: iterative proportional
fitting, with the box inside.  (Algorithm 5's loop of ``b = min(b, 1)`` and rescaling is no
projection of either kind: it stops at tables that violate the box, and where it converges it
depends on the order.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.synthesis.relationship import End, Relationship
from dpsql.synthesis.types import Types
from dpsql.workload.marginals import Floats

#: Below this nothing is: a zero could never grow again.
TINY = 1e-200
#: No factor grows beyond, so that products of them stay finite.
LARGE = 1e90
_SETTLED = 1e-7


@dataclass(frozen=True)
class Bounds:
    """Bounds of sums, each of shape (k,); equal where the sum is fixed."""

    low: Floats
    high: Floats


@dataclass(frozen=True)
class Polytope:
    """Tables of links between types.

    Attributes
    ----------
    total : float
        Sum of all cells.
    cap : array of shape (k1, k2), optional
        Upper bounds of cells.
    rows, columns : Bounds, optional
    """

    total: float
    cap: Floats | None = None
    rows: Bounds | None = None
    columns: Bounds | None = None

    def project(self, table: Floats, *, sweeps: int = 200, tolerance: float = 1e-9) -> Floats:
        """Return the closest member in Kullback-Leibler divergence.

        Parameters
        ----------
        table : array of shape (k1, k2)
            Positive; is overwritten.
        sweeps : int
            At most so many rounds over the families of constraints.
        tolerance : float
            Of any sum, relative to the total.

        Notes
        -----
        What is not reached within `sweeps` (a margin that no table has, or nearly none) is left
        as close as it came; `excess` tells.
        """
        np.maximum(table, TINY, out=table)
        whole = Bounds(np.array([self.total]), np.array([self.total]))
        families = [(self.rows, (-1, 1)), (self.columns, (1, -1)), (whole, (1, 1))]
        used = [(bounds, to) for bounds, to in families if bounds is not None]
        if _fixed(self.rows) or _fixed(self.columns):
            used.pop()
        if self.cap is None:
            return self._scaled(table, used, sweeps, tolerance)
        factors = [np.ones_like(bounds.low) for bounds, _ in used]
        alone = len(used) == 1
        slack = not all(_fixed(bounds) for bounds, _ in used)
        result = table
        for _ in range(sweeps):
            still = True
            for k, (bounds, to) in enumerate(used):
                plain = table
                for n, (_, other) in enumerate(used):
                    if n != k:
                        plain = plain * factors[n].reshape(other)
                before, factors[k] = factors[k], self._factors(plain, self.cap, bounds, to)
                # tables may be feasible before the multipliers of inequalities have settled
                still &= not slack or bool(np.allclose(before, factors[k], rtol=_SETTLED, atol=0))
                result = plain * factors[k].reshape(to)
                np.minimum(result, self.cap, out=result)
            if alone or (still and self.excess(result) <= tolerance * max(self.total, 1.0)):
                break
        return result

    def _scaled(
        self,
        table: Floats,
        used: Sequence[tuple[Bounds, tuple[int, int]]],
        sweeps: int,
        tolerance: float,
    ) -> Floats:
        """Project without a box: sums are products with vectors, no table is made on the way."""
        rows, columns, whole = np.ones(table.shape[0]), np.ones(table.shape[1]), 1.0
        for _ in range(sweeps):
            still = True
            for bounds, to in used:
                if to == (-1, 1):
                    before = rows
                    rows = found = _multipliers(whole * (table @ columns), bounds)
                elif to == (1, -1):
                    before = columns
                    columns = found = _multipliers(whole * (rows @ table), bounds)
                else:
                    before = np.array([whole])
                    found = _multipliers(np.array([float(rows @ (table @ columns))]), bounds)
                    whole = float(found[0])
                still &= bool(np.allclose(before, found, rtol=_SETTLED, atol=0))
            if len(used) == 1:
                break
            slack = not all(_fixed(bounds) for bounds, _ in used)
            if slack and not still:
                continue
            down, across = rows * whole * (table @ columns), columns * whole * (rows @ table)
            if self._sums_excess(down, across) <= tolerance * max(self.total, 1.0):
                break
        result = table * (rows * whole)[:, None]
        result *= columns
        return result

    def _sums_excess(self, down: Floats, across: Floats) -> float:
        """Return the largest violation of sums of rows and of columns, and of the total."""
        found = abs(float(down.sum()) - self.total)
        for bounds, sums in ((self.rows, down), (self.columns, across)):
            if bounds is not None:
                found = max(found, float((sums - bounds.high).max(initial=0.0)))
                found = max(found, float((bounds.low - sums).max(initial=0.0)))
        return found

    def settle(self, table: Floats) -> Floats:
        """Return a nearly feasible table with its fixed sums exact, for rounding.

        Where rows and columns are fixed, both are scaled down to their sums, and what is missing is
        added as a product (Altschuler, Weed and Rigollet 2017, Algorithm 2); else the one fixed
        family, or the total, is scaled.  A cell moves no more than sums were off.
        """
        rows, columns = self.rows, self.columns
        if rows is None or columns is None or not (_fixed(rows) and _fixed(columns)):
            if rows is not None and _fixed(rows):
                table = table * (rows.low / np.maximum(table.sum(axis=1), TINY))[:, None]
            elif columns is not None and _fixed(columns):
                table = table * (columns.low / np.maximum(table.sum(axis=0), TINY))
            else:
                table = table * (self.total / max(float(table.sum()), TINY))
            return table if self.cap is None else np.minimum(table, self.cap)
        table = table * np.minimum(1.0, rows.low / np.maximum(table.sum(axis=1), TINY))[:, None]
        table *= np.minimum(1.0, columns.low / np.maximum(table.sum(axis=0), TINY))
        missing = np.maximum(rows.low - table.sum(axis=1), 0.0)
        lacking = np.maximum(columns.low - table.sum(axis=0), 0.0)
        if missing.sum() > 0:
            table += np.multiply.outer(missing / missing.sum(), lacking)
        return table if self.cap is None else np.minimum(table, self.cap)

    def excess(self, table: Floats) -> float:
        """Return the largest violation of any bound, in links."""
        found = self._sums_excess(table.sum(axis=1), table.sum(axis=0))
        if self.cap is not None:
            found = max(found, float((table - self.cap).max(initial=0.0)))
        return found

    def _factors(self, plain: Floats, cap: Floats, bounds: Bounds, to: tuple[int, int]) -> Floats:
        """Return the multipliers of one family, exactly."""
        axes = tuple(a for a in (0, 1) if to[a] == 1)

        def sums(factors: Floats | None) -> Floats:
            grown = plain if factors is None else plain * factors.reshape(to)
            return np.asarray(np.minimum(grown, cap).sum(axis=axes)).reshape(-1)

        now = sums(None)
        wanted = np.clip(now, bounds.low, bounds.high)
        moved = wanted != now
        if not moved.any():
            return np.ones_like(bounds.low)
        factors = np.where(moved, wanted / np.maximum(sums_of(plain, axes), 1 / LARGE), 1.0)
        # saturated cells only become more as the factor grows: ends after finitely many steps
        for _ in range(60):
            grown = plain * factors.reshape(to)
            full = grown >= cap
            fixed = sums_of(np.where(full, cap, 0.0), axes)
            free = sums_of(np.where(full, 0.0, plain), axes)
            better = np.where(
                moved & (free > TINY),
                np.maximum(wanted - fixed, 0.0) / np.maximum(free, TINY),
                factors,
            )
            better = np.clip(better, factors, np.maximum(factors, LARGE))
            done = bool(np.all(better <= factors * (1 + 1e-13)))
            factors = better
            if done:
                break
        return np.asarray(factors)


def _multipliers(now: Floats, bounds: Bounds) -> Floats:
    """Return by what sums are multiplied to be within their bounds."""
    wanted = np.clip(now, bounds.low, bounds.high)
    return np.where(wanted != now, wanted / np.maximum(now, 1 / LARGE), 1.0)


def sums_of(table: Floats, axes: tuple[int, ...]) -> Floats:
    """Sum over axes into a vector."""
    return np.asarray(table.sum(axis=axes), dtype=np.float64).reshape(-1)


def _fixed(bounds: Bounds | None) -> bool:
    return bounds is not None and bool(np.array_equal(bounds.low, bounds.high))


def polytope_of(relationship: Relationship, left: Types, right: Types) -> Polytope:
    """Return what links between types may be.

    Notes
    -----
    A cell is at most ``sum over rows i of type s of min(d_i, c_t)``, and the same from the other
    end: the necessary condition of Gale and Ryser for one block.
    """
    cap = None
    if not relationship.single:
        one = _room(relationship.left, left, right)
        other = _room(relationship.right, right, left).T
        cap = np.minimum(one, other)
    return Polytope(
        float(relationship.total),
        cap,
        _bounds(relationship.left, left, relationship.right.count),
        _bounds(relationship.right, right, relationship.left.count),
    )


def _bounds(end: End, types: Types, others: int) -> Bounds | None:
    if end.degrees is not None:
        sums: Floats = np.bincount(types.of, end.degrees, types.number).astype(np.float64)
        return Bounds(sums, sums)
    if end.most is None:
        return None  # the box says it
    high = types.counts.astype(np.float64) * end.limit(others)
    return Bounds(np.zeros(types.number), high)


def _room(end: End, types: Types, others: Types) -> Floats:
    if end.degrees is None:
        limit = end.limit(int(others.counts.sum()))
        return np.multiply.outer(
            types.counts.astype(np.float64), np.minimum(others.counts, limit).astype(np.float64)
        )
    room = np.empty((types.number, others.number))
    order = np.lexsort((end.degrees, types.of))
    degrees = end.degrees[order].astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(types.counts)])
    sums = np.concatenate([[0.0], np.cumsum(degrees)])
    for s in range(types.number):
        a, b = starts[s], starts[s + 1]
        below = a + np.searchsorted(degrees[a:b], others.counts)
        room[s] = sums[below] - sums[a] + (b - below) * others.counts
    return room
