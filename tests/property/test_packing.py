"""Results of several units: the linear program, its certificates, and the race over bounds."""

from __future__ import annotations

import os
import random
from fractions import Fraction
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dpsql.core import programs
from dpsql.core.mechanisms import linear
from dpsql.core.mechanisms.truncation import Limits
from dpsql.core.packing import Memberships, Program, exact_dot, exact_loads
from dpsql.core.rng import SystemNoise
from dpsql.errors import InvalidParameter
from dpsql.model import GRID

#: One result with its units by name, per kind; several results may have the same.
Result = tuple[int, ...]
MOST = 6
EXACT = GRID // 10**4
results = st.lists(
    st.tuples(*[st.integers(0, MOST - 1)] * 3, st.integers(1, 9)), min_size=0, max_size=14
)
kinds = st.sampled_from([[1, 1, 1], [1, 1, 2], [1, 2, 3]])


def memberships(rows: list[Result], roots: list[int]) -> Memberships:
    columns = [np.array([r[i] for r in rows], np.int64) for i in range(3)]
    return Memberships.of(columns, roots, np.array([r[3] for r in rows], np.int64))


def units_of(row: Result, roots: list[int]) -> set[tuple[int, int]]:
    return {(root, name) for root, name in zip(roots, row[:3], strict=True)}


def without(rows: list[Result], roots: list[int], unit: tuple[int, int]) -> list[Result]:
    """Delete a unit with all its results."""
    return [row for row in rows if unit not in units_of(row, roots)]


def value_of(rows: list[Result], roots: list[int], tau: int) -> float:
    """Solve the program as it is defined, by another solver and with a variable per row."""
    if not rows:
        return 0.0
    names = sorted(set().union(*(units_of(row, roots) for row in rows)))
    matrix = [[float(name in units_of(row, roots)) for row in rows] for name in names]
    found = linprog(
        [-1.0] * len(rows),
        A_ub=matrix,
        b_ub=[tau] * len(names),
        bounds=[(0, row[3]) for row in rows],
        method="highs-ds",
    )
    return float(-found.fun)


def never(upper: int) -> bool:
    return False


def solved(found: Memberships, tau: int) -> programs.Bounds:
    bounds = programs.solve(found.program(tau), 0, lambda: None, never)
    assert bounds is not None
    assert bounds.lower <= bounds.upper
    return bounds


@given(results, kinds, st.integers(1, 40))
def test_the_program_has_the_value_that_another_solver_finds(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    expected = value_of(rows, roots, tau)
    bounds = solved(memberships(rows, roots), tau)
    assert bounds.upper - bounds.lower <= EXACT * tau
    assert bounds.lower / GRID <= expected + 1e-6
    assert bounds.upper / GRID >= expected - 1e-6


@given(results, kinds, st.integers(1, 20))
def test_a_unit_moves_the_value_by_at_most_the_bound(
    rows: list[Result], roots: list[int], tau: int
) -> None:
    """Every unit of every kind, with all that belongs to it; the value only falls."""
    whole = solved(memberships(rows, roots), tau)
    for unit in set().union(*(units_of(row, roots) for row in rows)) if rows else ():
        less = solved(memberships(without(rows, roots, unit), roots), tau)
        assert whole.upper - less.lower <= tau * GRID + 2 * EXACT * tau
        assert less.lower <= whole.upper


@given(results, kinds)
def test_values_grow_with_the_bound_up_to_the_count(rows: list[Result], roots: list[int]) -> None:
    found = memberships(rows, roots)
    total = sum(row[3] for row in rows)
    assert found.total == total
    values = [solved(found, tau) for tau in (1, 2, 3, 5, 9, 17, 40, 200)]
    for a, b in pairwise(values):
        assert a.lower <= b.upper
    largest = int(found.contributions.max(initial=1))
    for tau in (largest, largest + 1, 10**9):
        assert solved(found, tau) == programs.Bounds(total * GRID, total * GRID)
        assert found.ceiling(tau) >= total


@given(results, kinds, st.integers(1, 30))
def test_simple_ceilings_are_above(rows: list[Result], roots: list[int], tau: int) -> None:
    found = memberships(rows, roots)
    assert found.ceiling(tau) * GRID >= solved(found, tau).lower


def test_ceilings_of_values_with_halves_are_above() -> None:
    """Three friends with one link each: the program has the value 3/2."""
    links = [(0, 1, 1, 1), (1, 2, 2, 1), (0, 2, 2, 1)]
    found = memberships(links, [1, 1, 1])
    assert value_of(links, [1, 1, 1], 1) == pytest.approx(1.5)
    assert found.ceiling(1) >= 1.5


@given(
    results,
    kinds,
    st.integers(1, 20),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=60, max_size=60),
)
def test_certificates_hold_whatever_a_solver_says(
    rows: list[Result], roots: list[int], tau: int, said: list[float]
) -> None:
    program = memberships(rows, roots).program(tau)
    expected = value_of(rows, roots, tau)
    prices, values = np.array(said[: program.units]), np.array(said[: len(program.caps)])
    assert program.above(prices) / GRID >= expected - 1e-6
    with np.errstate(invalid="ignore"):
        small, parts = np.abs(prices) % 1.0, np.nan_to_num(np.abs(values) % 9.0)
    assert program.above(small) / GRID >= expected - 1e-6
    assert program.below(values) / GRID <= expected + 1e-6
    assert program.below(parts) / GRID <= expected + 1e-6


@given(results, kinds)
def test_units_are_sets_and_results_with_the_same_are_one(
    rows: list[Result], roots: list[int]
) -> None:
    found = memberships(rows, roots)
    expected: dict[frozenset[tuple[int, int]], int] = {}
    for row in rows:
        key = frozenset(units_of(row, roots))
        expected[key] = expected.get(key, 0) + row[3]
    assert sorted(found.counts.tolist()) == sorted(expected.values())
    sizes = [sum(u < found.units for u in row) for row in found.members.tolist()]
    assert sorted(sizes) == sorted(len(key) for key in expected)
    assert len({tuple(row) for row in found.members.tolist()}) == len(expected)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 9)), max_size=12))
def test_two_kinds_of_units_are_a_flow_with_whole_values(rows: list[Result]) -> None:
    """A bipartite program has whole numbers at its corners."""
    columns = [np.array([r[i] for r in rows], np.int64) for i in range(2)]
    found = Memberships.of(columns, [1, 2], np.array([r[2] for r in rows], np.int64))
    for tau in (1, 2, 5):
        bounds = solved(found, tau)
        assert bounds.upper == bounds.lower
        assert bounds.upper % GRID == 0


@given(st.lists(st.integers(0, 2**52 - 1), max_size=50), st.integers(1, 4))
def test_sums_are_exact(weights: list[int], size: int) -> None:
    codes = np.arange(len(weights)) % size
    found = exact_loads(codes, np.array(weights, np.int64), size)
    assert found.tolist() == [sum(weights[i::size]) for i in range(size)]
    caps = np.array([w % 2**32 for w in weights], np.int64)
    left = np.array([w % (GRID + 1) for w in weights], np.int64)
    assert exact_dot(caps, left) == sum(
        a * b for a, b in zip(caps.tolist(), left.tolist(), strict=True)
    )


def test_wide_results_of_many_units_are_merged_exactly() -> None:
    """Keys that do not fit 64 bits are numbered on the way."""
    source = np.random.default_rng(5)
    columns = [source.integers(0, 10**6, 4000) for _ in range(7)]
    twice = [np.concatenate((c, c)) for c in columns]
    turned = [*twice[1:], twice[0]]
    found = Memberships.of(turned, [1] * 7, np.ones(8000, np.int64))
    assert len(found.counts) == 4000
    assert set(found.counts.tolist()) == {2}


class Noise(SystemNoise):
    """The noise that a list says."""

    __slots__ = ("said",)

    def __init__(self, said: list[int]) -> None:
        super().__init__()
        self.said = said

    def discrete_laplace(self, scale: Fraction) -> int:
        return self.said.pop(0) if self.said else 0


@given(results, kinds, st.lists(st.integers(-60, 400), min_size=6, max_size=6))
def test_candidates_that_are_left_out_could_not_win(
    rows: list[Result], roots: list[int], said: list[int]
) -> None:
    """The answer is that of a race in which every program is solved."""
    found = memberships(rows, roots)
    race = linear.plan("r2t", Fraction(60), Limits(4096))
    drawn = [n * GRID for n in said]
    best = 0
    for tau, noise in zip(race.candidates, drawn, strict=True):
        bounds = programs.solve(
            found.program(tau), tau * GRID // programs.SLACK, lambda: None, never
        )
        assert bounds is not None
        value = min(bounds.upper, found.ceiling(tau) * GRID)
        best = max(best, value + noise - race.margin(tau) * GRID)
    answer = race.release(found, Noise(list(drawn)), lambda: None)
    assert answer.values == [best // GRID]
    assert answer.scale is None


def circle(size: int, reach: int) -> Memberships:
    a = np.repeat(np.arange(size), reach)
    b = (a + np.tile(np.arange(1, reach + 1), size)) % size
    return Memberships.of([a, b], [1, 1], np.ones(len(a), np.int64))


def test_the_race_stays_below_and_near() -> None:
    """Each side fails with probability at most 1/20; more than 70 of 200 times below 1e-15."""
    found = circle(300, 5)
    race = linear.plan("r2t", Fraction(10), Limits(10**6))
    wrong = 0
    for _ in range(200):
        (value,) = race.release(found, SystemNoise(), lambda: None).values
        bound = 2 * race.margin(16) + 17
        wrong += not 1500 - bound <= value <= 1500 + 1
    assert wrong <= 70


def test_the_noise_is_scaled_to_the_sensitivity_with_its_slack() -> None:
    race = linear.plan("r2t", Fraction(2), Limits(1000))
    assert race.rounds == 5
    assert race.scale(64) == Fraction(64 * 17, 16) * 5 / 2
    assert race.candidates == [4, 16, 64, 256, 1000]
    for largest in (1, 2, 3, 4, 5, 16, 17, 10**6, 2**31 - 1):
        candidates = linear.plan("r2t", Fraction(2), Limits(largest)).candidates
        assert candidates[-1] == max(largest, 2)
        assert all(0 < a < b <= 4 * a for a, b in pairwise(candidates))
        assert candidates[0] <= 4


@pytest.mark.parametrize("mechanism", ["calibrated", "laplace"])
def test_other_mechanisms_are_refused(mechanism: str) -> None:
    with pytest.raises(InvalidParameter):
        linear.plan(mechanism, Fraction(1), Limits(1000))


def triples(rows: int, units: int) -> Memberships:
    source = np.random.default_rng(3)
    columns = [np.minimum(source.geometric(3 / units, rows), units) for _ in range(3)]
    return Memberships.of(columns, [1, 1, 1], np.ones(rows, np.int64))


def test_both_methods_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solving in passes comes within the gap of what the simplex method finds; twice the same."""
    found = triples(3000, 60)
    gaps = 0
    for tau in (8, 32, 128):
        exact = solved(found, tau)
        monkeypatch.setattr(programs, "SIMPLEX", 0)
        monkeypatch.setattr(programs, "SIMPLEX_PAIRS", 0)
        gap = tau * GRID // 32
        near = programs.solve(found.program(tau), gap, lambda: None, never)
        again = programs.solve(found.program(tau), gap, lambda: None, never)
        monkeypatch.undo()
        assert near is not None
        assert near == again
        assert near.upper - near.lower <= gap
        assert exact.lower <= near.upper <= exact.upper + gap
        gaps += near.upper != exact.upper
    assert gaps  # it was another method


def test_a_program_that_cannot_win_is_left() -> None:
    asked: list[int] = []

    def hopeless(upper: int) -> bool:
        asked.append(upper)
        return True

    program = triples(3000, 60).program(16)
    assert programs.solve(program, 0, lambda: None, hopeless) is None
    assert all(upper >= solved(triples(3000, 60), 16).lower for upper in asked)


class Stop(Exception):
    """What the server raises when it is cancelled."""


def test_the_solver_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "SIMPLEX", 10**9)
    monkeypatch.setattr(programs, "_BETWEEN_TICKS", 0.0)
    ticks = count()

    def tick() -> None:
        if next(ticks) > 20:
            raise Stop

    with pytest.raises(Stop):
        programs.solve(triples(20000, 400).program(64), 0, tick, never)
    assert next(ticks) == 22  # it did not go on


def test_the_solver_starts_no_thread() -> None:
    """A backend must have one thread.  Threads that were there before may end meanwhile."""
    before = set(os.listdir("/proc/self/task"))
    solved(triples(2000, 50), 16)
    assert set(os.listdir("/proc/self/task")) <= before


def sloppy(model: Any) -> tuple[Any, Any]:
    """A solver whose tolerance is ten percent."""
    values, prices = RIGHT(model)
    return values * 1.1 + 0.05, prices * 0.9


RIGHT = programs._Model.run


def test_a_solver_with_a_bad_tolerance_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says its value is would break the sensitivity; the certificate refuses it."""
    found = triples(1000, 12)
    race = linear.plan("r2t", Fraction(10**3), Limits(2**9))
    tau = 32
    exact = solved(found, tau)
    race.release(found, SystemNoise(), lambda: None)
    monkeypatch.setattr(programs._Model, "run", sloppy)
    program = found.program(tau)
    values, _ = programs._Model(program, lambda: None).run()
    claimed = program.free + float(values.sum())
    assert claimed > exact.upper / GRID + tau / programs.SLACK
    bounds = programs.solve(program, 0, lambda: None, never)
    assert bounds is not None
    assert bounds.lower <= exact.upper
    assert bounds.upper >= exact.lower
    assert bounds.upper - bounds.lower > tau * GRID // programs.SLACK
    # what the solver leaves open is solved in passes: nobody is told that it failed
    (value,) = race.release(found, Noise([0, 0, 10**5 * GRID]), lambda: None).values
    tau = race.candidates[2]
    monkeypatch.undo()
    least = solved(found, tau).lower / GRID + 10**5 - race.margin(tau)
    assert least - 1 <= value <= least + tau / programs.SLACK


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_random_graphs_without_each_node(seed: int) -> None:
    """Edges, two-paths and triangles of random graphs; every node in turn leaves."""
    source = random.Random(seed)
    size = source.randint(3, 7)
    edges = {(i, j) for i in range(size) for j in range(i) if source.random() < 0.6}
    assume(edges)
    both = edges | {(j, i) for i, j in edges}
    paths = [(a, b, c) for a, b in both for b2, c in both if b == b2 and a < c]
    for found in ([(a, b, b) for a, b in edges], paths, [p for p in paths if p[::2] in both]):
        rows = [(*units, 1) for units in found]
        for tau in (1, 2, 4):
            whole = solved(memberships(rows, [1, 1, 1]), tau)
            assert abs(whole.upper / GRID - value_of(rows, [1, 1, 1], tau)) < 1e-3
            for node in range(size):
                less = solved(memberships(without(rows, [1, 1, 1], (1, node)), [1, 1, 1]), tau)
                assert whole.upper - less.lower <= tau * GRID + 2 * EXACT * tau


def test_an_empty_program_is_its_free_part() -> None:
    program = Program(np.zeros((0, 2), np.int32), np.zeros(0, np.int64), 0, 4, 7)
    bounds = programs.solve(program, 0, lambda: None, never)
    assert bounds == programs.Bounds(7 * GRID, 7 * GRID)
