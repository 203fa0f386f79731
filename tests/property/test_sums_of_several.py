"""Sums over results of several units: two programs of one bound, and bounds of coarse steps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.core import deletion, programs
from dpsql.core.mechanisms import drawing, linear
from dpsql.core.mechanisms.linear import LinearRace
from dpsql.core.mechanisms.linear_quantile import CLOSE, LinearQuantile
from dpsql.core.mechanisms.truncation import Limits
from dpsql.core.merging import HIGHEST, saturated
from dpsql.core.packing import Memberships, step_of
from dpsql.model import GRID
from tests.property import test_deletion, test_packing
from tests.property.test_packing import (
    EXACT,
    MOST,
    Noise,
    Result,
    kinds,
    memberships,
    never,
    solved,
    units_of,
    without,
)

#: Results with their units and what they add or take away.
signed = st.lists(
    st.tuples(*[st.integers(0, MOST - 1)] * 3, st.integers(-9, 9)), min_size=0, max_size=14
)


def units(rows: list[Result], roots: list[int]) -> set[tuple[int, int]]:
    return set().union(*(units_of(row, roots) for row in rows)) if rows else set()


def per_set(rows: list[Result], roots: list[int], sign: int) -> list[Result]:
    """Add up the results of each set of units; those sets that add, or that take away."""
    found: dict[frozenset[tuple[int, int]], list[Result]] = {}
    for row in rows:
        found.setdefault(frozenset(units_of(row, roots)), []).append(row)
    sums = [(*same[0][:3], sign * sum(row[3] for row in same)) for same in found.values()]
    return [row for row in sums if row[3] > 0]


def quantile(signs: tuple[int, ...], largest: int = 2**40) -> LinearQuantile:
    plan = linear.plan("auto", Fraction(5), Limits(largest), signs)
    assert isinstance(plan, LinearQuantile)
    return plan


def cut(rows: list[Result], roots: list[int], tau: int) -> int:
    return quantile((1, -1)).cut(memberships(rows, roots), tau, lambda: None)


@given(signed, kinds, st.integers(1, 30))
def test_a_sum_is_the_difference_of_two_programs(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    parts = [test_packing.value_of(per_set(rows, roots, sign), roots, tau) for sign in (1, -1)]
    assert abs(cut(rows, roots, tau) / GRID - (parts[0] - parts[1])) <= tau / 16 + 1e-6
    total = sum(row[3] for row in rows)
    assert cut(rows, roots, 200) == total * GRID


@given(signed, kinds, st.integers(1, 12))
def test_a_unit_moves_a_sum_by_at_most_the_bound(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    """Of both programs together, whatever the unit adds and takes away: tau, and not twice tau."""
    found = memberships(rows, roots)
    whole = [solved(found.part(sign), tau) for sign in (1, -1)]
    answer = cut(rows, roots, tau)
    for unit in units(rows, roots):
        fewer = without(rows, roots, unit)
        left = memberships(fewer, roots)
        less = [solved(left.part(sign), tau) for sign in (1, -1)]
        distance = (whole[0].upper - whole[1].upper) - (less[0].upper - less[1].upper)
        assert abs(distance) <= tau * GRID + 4 * EXACT * tau
        assert abs(answer - cut(fewer, roots, tau)) <= tau * GRID * 17 // 16


def test_the_bound_is_met_on_either_side() -> None:
    """Who adds only, or takes only, moves a sum by tau; who does both, by their difference."""
    adds, takes = [(0, i, i, 9) for i in range(1, 5)], [(0, i, i, -9) for i in range(1, 5)]
    both = [(0, 1, 1, 9), (0, 2, 2, -9)]
    assert cut(adds, [1, 1, 1], 4) == 4 * GRID
    assert cut(takes, [1, 1, 1], 4) == -4 * GRID
    assert cut(both, [1, 1, 1], 4) == 0
    # all sizes in one program, less twice what takes away: a unit would move it by 2 tau
    found = memberships(takes, [1, 1, 1])
    wrong = solved(found.sizes, 4).upper - 2 * solved(found.part(-1), 4).upper
    assert wrong == -4 * GRID
    mixed = memberships([(0, 1, 1, -9), (0, 2, 2, 9), (1, 3, 3, 9), (2, 4, 4, 9)], [1, 1, 1])
    left = memberships([(1, 3, 3, 9), (2, 4, 4, 9)], [1, 1, 1])
    values = [
        solved(one.sizes, 4).upper - 2 * solved(one.part(-1), 4).upper for one in (mixed, left)
    ]
    assert abs(values[0] - values[1]) > 4 * GRID * 17 // 16


@given(signed, kinds)
def test_sizes_are_those_of_sets(rows: list[Result], roots: list[int]) -> None:
    """What a set adds and takes away is added up before it is bounded."""
    found = memberships(rows, roots)
    for sign in (1, -1):
        expected = sorted(row[3] for row in per_set(rows, roots, sign))
        assert sorted(found.part(sign).counts.tolist()) == expected
    sizes = found.sizes
    assert int(sizes.counts.sum()) == sum(
        row[3] for sign in (1, -1) for row in per_set(rows, roots, sign)
    )
    assert sizes.heaviest == int(sizes.contributions.max(initial=0))


@settings(max_examples=40)
@given(signed, kinds, st.integers(1, 12))
def test_a_unit_moves_the_number_that_must_go_by_at_most_one(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    sizes = [row for sign in (1, -1) for row in per_set(rows, roots, sign)]
    whole = test_deletion.solved(memberships(rows, roots).sizes, tau)
    assert abs(whole.upper / GRID - test_deletion.value_of(sizes, roots, tau)) <= 1e-3
    for unit in units(rows, roots):
        less = test_deletion.solved(memberships(without(rows, roots, unit), roots).sizes, tau)
        assert less.lower <= whole.upper
        assert whole.lower <= less.upper + GRID


# -- numbers that are large ------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-HIGHEST, HIGHEST)), max_size=40),
    st.randoms(use_true_random=False),
)
def test_large_sums_are_exact_up_to_what_they_are_cut_to(
    rows: list[tuple[int, int]], source: object
) -> None:
    expected = [
        max(-HIGHEST, min(HIGHEST, sum(w for code, w in rows if code == j))) for j in range(4)
    ]
    for _ in range(3):
        source.shuffle(rows)  # type: ignore[attr-defined]
        codes = np.array([code for code, _ in rows], np.int64)
        weights = np.array([w for _, w in rows], np.int64)
        assert saturated(codes, weights, 4).tolist() == expected


def test_sets_that_come_in_any_order_are_cut_to_the_highest() -> None:
    """Two tuples of one set, each as large as can be told: no sum turns around."""
    a, b = np.array([0, 1, 2]), np.array([1, 0, 1])
    for sign in (1, -1):
        weights = sign * np.array([HIGHEST, HIGHEST, 5])
        found = Memberships.of([a, b], [1, 1], weights)
        assert sorted(found.part(sign).counts.tolist()) == [5, HIGHEST]
        assert not len(found.part(-sign).counts)


def test_a_lower_bound_says_nothing_of_other_steps() -> None:
    lower = deletion.Lower(tau=2**30, free=1, value=5, rise=2**40, step=4)
    assert lower.at(2**32) == 5
    assert lower.at(2**32 + 2**31) == 5
    other = deletion.Lower(tau=2**30 + 9, free=1, value=5, rise=2**40, step=4)
    assert other.at(2**32) == 5 + 9
    assert other.at(2**31) == 0
    assert other.at(100) == 0


@given(st.integers(1, 2**70))
def test_steps_are_fine(tau: int) -> None:
    step = step_of(tau)
    assert step & (step - 1) == 0
    assert tau // step < 2**31
    assert step == 1 or tau // step >= 2**30


huge = st.lists(
    st.tuples(
        *[st.integers(0, MOST - 1)] * 3,
        st.integers(-60, 60).map(lambda n: n and (n // abs(n)) * (1 << abs(n)) + n),
    ),
    min_size=1,
    max_size=10,
)
large_bounds = st.integers(2**28, 2**59)


@given(huge, kinds, large_bounds)
def test_units_move_huge_sums_by_at_most_the_bound(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    answer = cut(rows, roots, tau)
    parts = [per_set(rows, roots, sign) for sign in (1, -1)]
    if all(sum(row[3] for row in part) <= tau for part in parts):
        off = len(rows) * step_of(tau)
        assert abs(answer // GRID - sum(row[3] for row in rows)) <= off
    for unit in units(rows, roots):
        less = cut(without(rows, roots, unit), roots, tau)
        assert abs(answer - less) <= tau * GRID * 17 // 16
    for part in parts:
        found = memberships(part, roots)
        bounds = programs.solve(found.program(tau), tau * GRID // 16, lambda: None, never)
        assert bounds is not None
        assert found.ceiling(tau) * GRID >= bounds.lower


@settings(max_examples=40)
@given(huge, kinds, large_bounds)
def test_units_move_the_number_of_huge_ones_by_at_most_one(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    gap = GRID // CLOSE

    def number(given: list[Result]) -> programs.Bounds:
        found = deletion.solve(
            memberships(given, roots).sizes, tau, gap, lambda: None, lambda _: False
        )
        assert found is not None
        assert found.upper - found.lower <= gap
        return found

    whole = number(rows)
    for unit in units(rows, roots):
        less = number(without(rows, roots, unit))
        assert -gap <= whole.upper - less.upper <= GRID + gap


@settings(max_examples=20)
@given(signed, kinds, st.integers(1, 12))
def test_steps_change_nothing_for_what_is_whole_in_them(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    """Everything times 2^40: steps divide what is summed, and the bound."""
    times = 2**40
    more = [(*row[:3], row[3] * times) for row in rows]
    assert abs(cut(more, roots, tau * times) - cut(rows, roots, tau) * times) <= (
        tau * GRID * times // 8
    )
    one = test_deletion.solved(memberships(rows, roots).sizes, tau)
    other = test_deletion.solved(memberships(more, roots).sizes, tau * times)
    assert abs(one.upper - other.upper) <= GRID // 1000


@settings(max_examples=25)
@given(huge, kinds, st.lists(st.integers(0, 9 * GRID), min_size=80, max_size=80))
def test_bounds_that_are_left_out_could_not_win(
    rows: list[Result], roots: list[int], said: list[int]
) -> None:
    """What is known of a bound says nothing of one with other steps."""
    plan = quantile((1, -1))
    sizes = memberships(rows, roots).sizes
    scores = []
    for tau, drawn in zip(plan.bounds, said, strict=False):
        bounds = deletion.solve(sizes, tau, GRID // CLOSE, lambda: None, lambda _: False)
        assert bounds is not None
        scores.append(drawn - drawing.penalty(tau, plan.epsilon_choice) - bounds.upper)
    assert len(scores) == len(plan.bounds)
    j = plan.draw(sizes, test_deletion.Said(list(said)), lambda: None)
    assert j == scores.index(max(scores))


def test_the_bound_is_drawn_for_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """By sizes, whatever their signs, and the sums are cut at what was drawn."""
    asked: list[Memberships] = []

    def draw(self: LinearQuantile, memberships: Memberships, *given: object) -> int:
        asked.append(memberships)
        return self.bounds.index(4)

    monkeypatch.setattr(LinearQuantile, "draw", draw)
    rows = [(0, 1, 1, -9), (0, 2, 2, -3), (3, 4, 4, 2)]
    quantile((1, -1)).release(memberships(rows, [1, 1, 1]), Noise([]), lambda: None)
    assert sorted(asked[0].counts.tolist()) == [2, 3, 9]
    found = quantile((1, -1)).release(memberships(rows, [1, 1, 1]), Noise([0]), lambda: None)
    assert found.values == [2 - 4]


# -- plans -----------------------------------------------------------------------------


def test_a_race_that_has_two_sides_pays_for_both() -> None:
    for signs in ((1,), (-1,), (1, -1)):
        race = linear.plan("r2t", Fraction(2), Limits(1000), signs)
        assert isinstance(race, LinearRace)
        assert race.guarantee.epsilon == 2
        assert race.scale(64) == Fraction(64 * 17, 16) * 5 / 2 * len(signs)


@settings(max_examples=40)
@given(signed, kinds, st.lists(st.integers(-60, 400), min_size=12, max_size=12))
def test_the_race_is_that_of_either_side(
    rows: list[Result], roots: list[int], said: list[int]
) -> None:
    found = memberships(rows, roots)
    race = linear.plan("r2t", Fraction(60), Limits(4096), (1, -1))
    one = linear.plan("r2t", Fraction(30), Limits(4096))
    assert isinstance(race, LinearRace)
    drawn = [n * GRID for n in said]
    sides = [
        one.release(found.part(sign), Noise(drawn[i : i + 6]), lambda: None).values[0]
        for sign, i in ((1, 0), (-1, 6))
    ]
    assert race.release(found, Noise(list(drawn)), lambda: None).values == [sides[0] - sides[1]]


def test_noise_of_both_signs_is_that_of_one_bound() -> None:
    """Programs are solved twice as closely, so that two have the slack of one."""
    for signs in ((1,), (-1,), (1, -1)):
        plan = quantile(signs)
        assert plan.scale(64) == Fraction(64 * 17, 16) / plan.epsilon_value
        assert plan.guarantee.epsilon == plan.epsilon_choice + plan.epsilon_value
    least = linear.plan("auto", Fraction(1), Limits(10**6, least=100))
    assert isinstance(least, LinearQuantile)
    assert least.bounds[0] >= 100


def test_what_two_programs_lack_together_is_within_their_slack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    right = programs.solve

    def listening(program: object, gap: int, *given: object) -> object:
        asked.append(gap)
        return right(program, gap, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(programs, "solve", listening)
    cut([(0, 1, 2, 9), (0, 2, 3, -9)], [1, 1, 1], 64)
    quantile((-1,)).cut(memberships([(0, 1, 2, -9)], [1, 1, 1]), 64, lambda: None)
    assert asked == [2 * GRID, 2 * GRID, 4 * GRID]


def test_a_sum_that_cannot_be_negative_leaves_out_what_is() -> None:
    """Bounds of values are public, and no side that they exclude is ever told."""
    found = memberships([(0, 1, 2, 9), (0, 2, 3, -4)], [1, 1, 1])
    assert quantile((1,)).cut(found, 64, lambda: None) == 9 * GRID
    assert quantile((-1,)).cut(found, 64, lambda: None) == -4 * GRID
    empty = Memberships(np.zeros((0, 2), np.int32), np.zeros(0, np.int64), 0)
    assert quantile((1, -1)).cut(empty, 64, lambda: None) == 0
