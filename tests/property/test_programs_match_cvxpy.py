"""The truncation programs have the value that cvxpy finds, by an interior-point method.

They are written down as docs/proofs/linear.md defines them: a variable for every result, whatever
its units, and a constraint for every unit.  The bounds that ours return are certified, so nothing
but Clarabel's tolerance stands between them.  Instances are a function of the seed.
"""

from __future__ import annotations

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

from dpsql.core import deletion, programs
from dpsql.core.mechanisms import linear_quantile
from dpsql.core.packing import Memberships
from dpsql.model import GRID
from tests.property.convex import TOLERANCE, least, most
from tests.property.test_packing import Result, memberships, units_of

ROOTS = [[1, 1, 1], [1, 1, 2], [1, 2, 3]]
SEEDS = range(9)


def results(seed: int) -> tuple[list[Result], list[int], int]:
    """Draw results of units of one kind to three, and a bound."""
    random = np.random.default_rng(seed)
    number = int(random.integers(3, 60))
    units = int(random.integers(3, 12))
    names = np.minimum(random.geometric(3 / units, (number, 3)), units)
    counts = random.integers(1, 9, number)
    rows = [(*map(int, row), int(n)) for row, n in zip(names, counts, strict=True)]
    return rows, ROOTS[seed % 3], int(random.integers(1, 25))


def incidence(rows: list[Result], roots: list[int]) -> np.ndarray:
    """Tell which unit has which result: a row for each unit."""
    names = sorted(set().union(*(units_of(row, roots) for row in rows)))
    return np.array([[float(name in units_of(row, roots)) for row in rows] for name in names])


def cut_off(rows: list[Result], roots: list[int], tau: int) -> float:
    """``Q = max sum x`` with ``0 <= x <= n``, at most ``tau`` for each unit."""
    x = cp.Variable(len(rows), nonneg=True)
    counts = np.array([row[3] for row in rows])
    return most(cp.sum(x), [x <= counts, incidence(rows, roots) @ x <= tau])


def deleted(rows: list[Result], roots: list[int], tau: int) -> float:
    """``f = min sum y``: every unit is left with ``tau`` at most when shares ``y`` of units go."""
    belongs = incidence(rows, roots)
    counts = np.array([float(row[3]) for row in rows])
    y = cp.Variable(len(belongs), nonneg=True)
    gone = cp.Variable(len(rows), nonneg=True)
    enough = belongs @ cp.multiply(counts, 1 - gone) <= tau
    return least(cp.sum(y), [gone <= 1, gone <= belongs.T @ y, enough])


def check(bounds: programs.Bounds | None, best: float, gap: int, scale: float) -> None:
    """Check that the bounds hold, and that they are as near each other as they have to be."""
    assert bounds is not None
    off = TOLERANCE * scale
    assert bounds.lower / GRID <= best + off, f"{bounds} for {best}"
    assert bounds.upper / GRID >= best - off, f"{bounds} for {best}"
    assert bounds.upper - bounds.lower <= gap
    assert bounds.upper / GRID <= best + gap / GRID + off


def packed(found: Memberships, tau: int, gap: int) -> programs.Bounds | None:
    return programs.solve(found.program(tau), gap, lambda: None, lambda _: False)


def left(found: Memberships, tau: int, gap: int) -> programs.Bounds | None:
    return deletion.solve(found, tau, gap, lambda: None, lambda _: False)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_when_units_are_cut_off(seed: int) -> None:
    rows, roots, tau = results(seed)
    best = cut_off(rows, roots, tau)
    check(packed(memberships(rows, roots), tau, 0), best, GRID * tau // 10**4, best)


@pytest.mark.parametrize("seed", SEEDS)
def test_how_many_units_must_go(seed: int) -> None:
    rows, roots, tau = results(seed)
    best = deleted(rows, roots, tau)
    check(left(memberships(rows, roots), tau, 0), best, GRID // 10**4, best + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_over_the_sets_end_within_the_gap(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What solves programs that are too large for the simplex method."""
    monkeypatch.setattr(programs, "SIMPLEX", 0)
    monkeypatch.setattr(programs, "SIMPLEX_PAIRS", 0)
    monkeypatch.setattr(deletion, "IN_MEMORY", -1)
    rows, roots, tau = results(seed)
    found = memberships(rows, roots)
    best, gap = cut_off(rows, roots, tau), tau * GRID // (8 * programs.SLACK)
    check(packed(found, tau, gap), best, gap, best)
    best, gap = deleted(rows, roots, tau), GRID // (8 * linear_quantile.CLOSE)
    check(left(found, tau, gap), best, gap, best + 1)


@pytest.mark.parametrize("seed", range(4))
def test_sums_that_add_and_take_away(seed: int) -> None:
    """The value is the difference of two programs, at most ``tau/SLACK`` above."""
    rows, roots, tau = results(seed)
    tau += 10
    signs = np.where(np.random.default_rng(seed).random(len(rows)) < 0.4, -1, 1)
    columns = [np.array([r[i] for r in rows], np.int64) for i in range(3)]
    counts = np.array([r[3] for r in rows], np.int64)
    found = Memberships.of(columns, roots, counts * signs)
    # results with the same units are one set, which adds or takes away as a whole
    sets: dict[frozenset[tuple[int, int]], tuple[int, Result]] = {}
    for row, sign in zip(rows, signs, strict=True):
        key = frozenset(units_of(row, roots))
        sets[key] = sets.get(key, (0, row))[0] + int(sign) * row[3], row
    best = 0.0
    for sign in (1, -1):
        own = [(*row[:3], n * sign) for n, row in sets.values() if n * sign > 0]
        best += sign * cut_off(own, roots, tau) if own else 0.0
    plan = linear_quantile.plan(Fraction(1), (tau,), (1, -1))
    off = tau / programs.SLACK + TOLERANCE * sum(r[3] for r in rows)
    assert abs(plan.cut(found, tau, lambda: None) / GRID - best) <= off


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_that_are_wrong_are_caught(seed: int) -> None:
    """Of another bound, without one result, without the constraint of one unit."""
    rows, roots, _ = results(seed)
    tau = max(3, int(memberships(rows, roots).contributions.max()) // 3)
    best, gap = cut_off(rows, roots, tau), GRID * tau // 10**4
    found = memberships(rows, roots)
    check(packed(found, tau, 0), best, gap, best)
    larger, smaller = packed(found, tau + 1, 0), packed(found, tau - 1, 0)
    heaviest = int(found.contributions.argmax())
    free = np.where(found.members == heaviest, found.units, found.members)
    free.sort(axis=1)
    without = packed(Memberships(free, found.counts, found.units), tau, 0)
    changed = [other for other in (larger, smaller, without) if other is not None]
    assert changed
    wrong = [other for other in changed if abs(other.upper / GRID - best) > 1e-3 * tau]
    assert len(wrong) >= 2  # a unit's constraint may follow from others
    for mutant in wrong:
        with pytest.raises(AssertionError):
            check(mutant, best, gap, best)
    gone = deleted(rows, roots, tau)
    check(left(found, tau, 0), gone, GRID // 10**4, gone + 1)
    with pytest.raises(AssertionError):
        check(left(found, tau - 1, 0), gone, GRID // 10**4, gone + 1)
