"""How many units must go, in fractions: its value, its certificates, and the bound drawn by it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dpsql.core import deletion, excess
from dpsql.core.mechanisms import drawing, linear, linear_quantile
from dpsql.core.mechanisms.truncation import Limits
from dpsql.core.merging import merged
from dpsql.core.packing import Memberships
from dpsql.core.programs import Bounds
from dpsql.core.rng import SystemNoise
from dpsql.model import GRID
from tests.property.noisy_maximum import of_noisy_maximum
from tests.property.test_packing import (
    Result,
    circle,
    kinds,
    memberships,
    results,
    units_of,
    without,
)

CLOSE = GRID // 10**4


def value_of(rows: list[Result], roots: list[int], tau: int) -> float:
    """Solve the program in ``x`` and ``y`` as it is defined, a variable per result."""
    names = sorted(set().union(*(units_of(row, roots) for row in rows)) if rows else [])
    size, matrix, right = len(rows), [], []
    for k, row in enumerate(rows):  # x_k + w_k sum of y >= w_k
        line = [0.0] * (size + len(names))
        line[k] = -1.0
        for name in units_of(row, roots):
            line[size + names.index(name)] = -float(row[3])
        matrix.append(line)
        right.append(-float(row[3]))
    for name in names:
        held = [float(name in units_of(row, roots)) for row in rows]
        matrix.append(held + [0.0] * len(names))
        right.append(float(tau))
    if not rows:
        return 0.0
    found = linprog(
        [0.0] * size + [1.0] * len(names),
        A_ub=matrix,
        b_ub=right,
        bounds=[(0, row[3]) for row in rows] + [(0, None)] * len(names),
        method="highs-ds",
    )
    return float(found.fun)


def never(lower: deletion.Lower) -> bool:
    return False


def solved(found: Memberships, tau: int) -> Bounds:
    bounds = deletion.solve(found, tau, 0, lambda: None, never)
    assert bounds is not None
    assert bounds.lower <= bounds.upper
    return bounds


@given(results, kinds, st.integers(1, 40))
def test_the_value_is_that_which_another_solver_finds(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    expected = value_of(rows, roots, tau)
    bounds = solved(memberships(rows, roots), tau)
    assert bounds.upper - bounds.lower <= CLOSE
    assert bounds.lower / GRID <= expected + 1e-6
    assert bounds.upper / GRID >= expected - 1e-6


@settings(max_examples=50)
@given(results, kinds, st.integers(1, 20))
def test_a_unit_moves_the_value_by_at_most_one_and_only_up(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    """Every unit of every kind, with all that belongs to it."""
    whole = value_of(rows, roots, tau)
    bounds = solved(memberships(rows, roots), tau)
    for unit in set().union(*(units_of(row, roots) for row in rows)) if rows else ():
        fewer = without(rows, roots, unit)
        assert -1e-6 <= whole - value_of(fewer, roots, tau) <= 1 + 1e-6
        less = solved(memberships(fewer, roots), tau)
        assert less.lower <= bounds.upper
        assert bounds.lower <= less.upper + GRID


@settings(max_examples=40)
@given(results, kinds)
def test_the_value_falls_to_nothing_at_the_largest_unit(
    rows: list[Result], roots: list[int]
) -> None:
    found = memberships(rows, roots)
    largest = int(found.contributions.max(initial=1))
    values = [solved(found, tau) for tau in range(1, largest + 1)]
    for a, b in pairwise(values):
        assert a.upper >= b.lower
    assert values[-1] == Bounds(0, 0)
    assert all(value.lower > 0 for value in values[:-1])


@given(
    results,
    kinds,
    st.integers(1, 20),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=60, max_size=60),
)
def test_certificates_hold_whatever_a_solver_says(
    rows: list[Result], roots: list[int], tau: int, said: list[float]
) -> None:
    expected = value_of(rows, roots, tau)
    found = memberships(rows, roots)
    excess = deletion.Excess.of(found, tau)
    assume(len(excess.heavy))
    with np.errstate(invalid="ignore", over="ignore"):
        for numbers in (np.array(said), np.abs(np.array(said)) % 1.0):
            assert excess.above(numbers[: found.units]) / GRID >= expected - 1e-6
            assert excess.below(numbers[: len(excess.heavy)]).value / GRID <= expected + 1e-6
            master = deletion._Master(excess, lambda: None)
            master.cut(np.zeros(found.units))
            master.cut(np.nan_to_num(numbers[: found.units] % 1.0))
            master.cut(np.nan_to_num(numbers[-found.units :] % 1.0))
            said_duals = np.resize(numbers, master.rows)
            assert master._below(said_duals).value / GRID <= expected + 1e-6
            for lower in (master._below(said_duals), excess.below(1 / excess.loads)):
                assert lower.at(tau) == lower.value
                for less in range(1, tau):
                    assert lower.at(less) / GRID <= value_of(rows, roots, less) + 1e-6


@given(results, kinds, st.integers(1, 20))
def test_cuts_are_above_what_units_lose(rows: list[Result], roots: list[int], tau: int) -> None:
    found = memberships(rows, roots)
    excess = deletion.Excess.of(found, tau)
    heavy = np.arange(len(excess.heavy))
    source = np.random.default_rng(7)
    for _ in range(4):
        y, at = source.random(found.units), source.random(found.units) * source.integers(0, 2)
        constants, cut, columns, values = excess.cuts(heavy, at)
        above = constants + np.bincount(cut, values * y[columns], minlength=len(heavy))
        exact = [
            sum(
                w * min(1.0, sum(y[v] for v in row if v < found.units))
                for row, w in zip(found.members.tolist(), found.counts.tolist(), strict=True)
                if u in row
            )
            for u in excess.heavy
        ]
        assert np.allclose(excess.lost(y), exact)
        assert (above >= np.array(exact) - 1e-9).all()


@pytest.mark.parametrize(("wide", "units", "rows"), [(7, 50, 400), (7, 100, 800), (3, 200, 2000)])
def test_gaps_close_where_few_sets_hold_nearly_all_results(
    wide: int, units: int, rows: int
) -> None:
    # a gap that stays open fails the question, of one neighbour and not of another
    source = random.Random(5)
    for _ in range(2):
        sets = {
            frozenset(source.sample(range(units), wide)[: source.choice([wide] * 4 + [3])])
            for _ in range(rows)
        }
        padded = [[*sorted(k), *[units] * (wide - len(k))] for k in sorted(sets, key=sorted)]
        counts = np.array([source.choice([1, 1, 1, 10**9]) for _ in padded])
        found = Memberships(*merged(np.array(padded, np.int32), counts, units), units)
        for tau in (6, 8):
            bounds = deletion.solve(found, tau, GRID // 256, lambda: None, lambda _: False)
            assert bounds is not None
            assert 0 <= bounds.upper - bounds.lower <= GRID // 256


def test_sorted_and_tabled_sums_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wheel(9, 40)
    expected = [solved(found, tau) for tau in (2, 5, 20)]
    monkeypatch.setattr(excess, "_TABLE", 0)
    assert [solved(found, tau) for tau in (2, 5, 20)] == expected


def wheel(hubs: int, rim: int) -> Memberships:
    """Hubs that all know each other and have a rim of their own; the rim is a circle."""
    pairs = [(i, j) for i in range(hubs) for j in range(i)]
    pairs += [(i, hubs + rim * i + j) for i in range(hubs) for j in range(rim)]
    pairs += [(hubs + j, hubs + (j + 1) % (rim * hubs)) for j in range(rim * hubs)]
    a, b = np.array(pairs).T
    return Memberships.of([a, b], [1, 1], np.ones(len(a), np.int64))


class Said(SystemNoise):
    """Noise that a list says, then none."""

    __slots__ = ("said",)

    def __init__(self, said: list[int]) -> None:
        super().__init__()
        self.said = said

    def discrete_laplace(self, scale: Fraction) -> int:
        return self.said.pop(0) if self.said else 0

    geometric = discrete_laplace


@settings(max_examples=40)
@given(results, kinds, st.lists(st.integers(0, 9 * GRID), min_size=12, max_size=12))
def test_bounds_that_are_left_out_could_not_win(
    rows: list[Result], roots: list[int], said: list[int]
) -> None:
    """The bound is that of a maximum over all, the smallest of the best."""
    found = memberships(rows, roots)
    plan = linear.plan("quantile", Fraction(5), Limits(64))
    assert isinstance(plan, linear_quantile.LinearQuantile)
    assert len(plan.bounds) == len(said)
    scores = []
    for tau, drawn in zip(plan.bounds, said, strict=True):
        bounds = deletion.solve(found, tau, GRID // linear_quantile.CLOSE, lambda: None, never)
        assert bounds is not None
        scores.append(drawn - drawing.penalty(tau, plan.epsilon_choice) - bounds.upper)
    j = plan.draw(found, Said(list(said)), lambda: None)
    assert j == scores.index(max(scores))


def test_one_sided_noise_and_penalties_are_what_the_proof_says() -> None:
    plan = linear.plan("auto", Fraction(1), Limits(1000))
    assert isinstance(plan, linear_quantile.LinearQuantile)
    assert plan.epsilon_choice + plan.epsilon_value == 1
    assert plan.spread == Fraction(34, 32) / plan.epsilon_choice
    assert plan.scale(64) == Fraction(64 * 17, 16) / plan.epsilon_value
    assert plan.bounds[-1] == 1000
    assert drawing.penalty(1, plan.epsilon_choice) == 0
    assert drawing.penalty(512, plan.epsilon_choice) == round(2 * math.log(512) * 2.5 * GRID)
    for mechanism in ("quantile", "auto", "r2t"):
        fixed = linear.plan(mechanism, Fraction(1), Limits(50, fixed=True))
        assert isinstance(fixed, linear_quantile.LinearQuantile)
        assert (fixed.bounds, fixed.epsilon_choice, fixed.epsilon_value) == ((50,), 0, 1)


def test_the_law_of_the_bound_hides_a_hub() -> None:
    """Each bound is drawn by I and I' with a ratio of at most e^eps1, by exact integration.

    ``P(j) = integral over the noise of j of the product of the others' laws``: computed for real
    exponential noise from the certified numbers themselves.
    """
    with_hub = wheel(4, 60)
    hub = with_hub.members[:, 0] != 0
    less = Memberships(with_hub.members[hub], with_hub.counts[hub], with_hub.units)
    plan = linear_quantile.plan(Fraction(5, 2), tuple(2**j for j in range(1, 8)))
    laws = []
    for found in (with_hub, less):
        scores = []
        for tau in plan.bounds:
            bounds = deletion.solve(found, tau, GRID // linear_quantile.CLOSE, lambda: None, never)
            assert bounds is not None
            scores.append(-(bounds.upper + drawing.penalty(tau, plan.epsilon_choice)) / GRID)
        laws.append(of_noisy_maximum(scores, float(plan.spread)))
    assert math.isclose(sum(laws[0]), 1, abs_tol=1e-6)
    ratios = [a / b for a, b in zip(*laws, strict=True)]
    assert max(*ratios, *(1 / r for r in ratios)) <= math.exp(float(plan.epsilon_choice)) + 1e-6
    assert max(abs(math.log(r)) for r in ratios) >= 0.5  # the bound is nearly met: a real case


def test_answers_are_near_and_their_scale_is_told() -> None:
    """The bound is at least 4 and the noise beyond 25 scales with probability below 1e-10."""
    found = circle(300, 5)
    plan = linear.plan("auto", Fraction(10), Limits(10**6))
    for _ in range(50):
        answer = plan.release(found, SystemNoise(), lambda: None)
        assert answer.scale is not None
        assert abs(answer.values[0] - 1500) <= 1500 * (answer.scale < 10) + 25 * answer.scale + 1


def test_a_program_that_stays_open_is_solved_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "ROUNDS", 0)
    plan = linear.plan("auto", Fraction(1), Limits(64))
    heavy = Memberships.of(
        [np.repeat(np.arange(30), 40), np.arange(1200) % 37],
        [1, 2],
        np.ones(1200, np.int64),
    )
    # the smallest bound is far ahead, so it must be known
    found = plan.release(heavy, Said([10**6 * GRID]), lambda: None)
    assert found.scale == plan.scale(plan.bounds[0])
    bounds = deletion.solve(heavy, plan.bounds[0], CLOSE, lambda: None, never)
    assert bounds is not None
    assert 0 <= bounds.upper - bounds.lower <= CLOSE


def test_a_tick_stops_it() -> None:
    class Stop(Exception):
        pass

    def tick() -> None:
        raise Stop

    with pytest.raises(Stop):
        deletion.solve(wheel(5, 30), 3, 0, tick, never)


def listening(told: list[deletion.Lower]) -> Callable[[deletion.Lower], bool]:
    """Return what keeps every lower bound, and never gives up."""

    def hopeless(lower: deletion.Lower) -> bool:
        told.append(lower)
        return False

    return hopeless


def test_no_question_fails_for_units_that_are_unlike() -> None:
    """That one fails would tell who is there: certificates close on skewed data, too."""
    members = np.array([[0, 2, 4], [0, 3, 4], [1, 3, 4]], np.int32)
    counts = np.array([1980, 38, 150333], np.int64)
    seed = random.SystemRandom().randrange(2**32)
    source = random.Random(seed)
    instances = [(members, counts, 5)]
    for unit in range(5):
        kept = (members != unit).all(axis=1)
        instances.append((members[kept], counts[kept], 5))
    for _ in range(150):
        units = source.randrange(2, 7)
        sets = {
            tuple(sorted(source.sample(range(units), min(units, source.randrange(2, 4)))))
            for _ in range(source.randrange(1, 7))
        }
        rows = [(*one, *[units] * (3 - len(one))) for one in sorted(sets)]
        sizes = [int(10 ** source.uniform(0, 9.6)) for _ in rows]
        instances.append((np.array(rows, np.int32), np.array(sizes, np.int64), units))
    for members, counts, units in instances:
        if not len(members):
            continue
        told: list[deletion.Lower] = []
        for tau in (16384, 64, 1):
            found = deletion.solve(
                Memberships(members, counts, units),
                tau,
                GRID // linear_quantile.CLOSE,
                lambda: None,
                listening(told),
            )
            assert found is not None
            assert found.upper - found.lower <= GRID // linear_quantile.CLOSE, f"seed {seed}"
            assert all(lower.at(tau) <= found.upper for lower in told), f"seed {seed}"
