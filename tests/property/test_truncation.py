"""Truncated counts: what one unit can change, and the law of the drawn bound."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.core.mechanisms import threshold, truncation
from dpsql.core.mechanisms.truncation import Limits
from dpsql.core.rng import SystemNoise
from dpsql.counted import Contributions
from dpsql.engine.methods.units import largest_sum
from dpsql.model import GRID, Guarantee, Key, Weight
from dpsql.query.ir import TRUE
from tests.property.noisy_maximum import chances

GROUPS: list[Key] = [("a",), ("b",), (None,)]
Vector = tuple[int, int, int]
vectors = st.lists(st.tuples(*[st.integers(0, 40)] * 3), max_size=8)
signed = st.lists(st.tuples(*[st.integers(-40, 40)] * 3), max_size=8)


def histogram(units: list[Vector], bounds: Sequence[int] = ()) -> Contributions:
    """Summarise what units contribute, one vector each."""
    bounds = tuple(bounds) or truncation.bounds(10**9)
    sizes = [sum(map(abs, v)) for v in units]
    places = [bisect_left(bounds, size) for size in sizes]
    groups: dict[Key, dict[int, tuple[int, int]]] = {}
    for g, key in enumerate(GROUPS):
        for v, size, place in zip(units, sizes, places, strict=True):
            if v[g]:
                amount, share = groups.setdefault(key, {}).get(place, (0, 0))
                part = GRID * abs(v[g]) // size * (1 if v[g] > 0 else -1)
                groups[key][place] = amount + v[g], share + part
    found = Counter(places)
    return Contributions(bounds, tuple(found[j] for j in range(len(bounds) + 1)), groups)


@given(signed, st.integers(1, 100))
def test_a_unit_moves_the_vector_by_at_most_the_bound(units: list[Vector], tau: int) -> None:
    whole = histogram(units, [tau]).truncated(0, GROUPS)
    for i in range(len(units)):
        less = histogram(units[:i] + units[i + 1 :], [tau]).truncated(0, GROUPS)
        assert sum(abs(a - b) for a, b in zip(whole, less, strict=True)) <= tau * GRID


@given(vectors)
def test_counts_above_are_of_units(units: list[Vector]) -> None:
    bounds = [1, 2, 3, 10, 50, 200]
    found = histogram(units, bounds).above()
    assert found == [sum(sum(v) > bound for v in units) for bound in bounds]


@given(signed, st.integers(120, 10**9))
def test_nothing_is_lost_below_the_bound(units: list[Vector], tau: int) -> None:
    assert histogram(units, [tau]).truncated(0, GROUPS) == [
        GRID * sum(v[g] for v in units) for g in range(3)
    ]


@given(st.integers(), st.integers(1, 2**20))
def test_rounding_is_to_the_nearest(value: int, grid: int) -> None:
    assert abs(truncation.rounded(value, grid) * grid - value) * 2 <= grid


def worst_ratio(epsilon: float, claimed_noise: float, usual: int = 1) -> float:
    """Return the largest ratio of chances over all small data and all neighbours."""
    worst = 0.0
    bounds = (1, 2, 30)
    for above in product(range(4), repeat=3):
        if list(above) != sorted(above, reverse=True):
            continue
        here = chances(above, bounds, epsilon, claimed_noise, usual)
        for raised in range(4):  # the new unit exceeds so many of the bounds
            other = [n + (j < raised) for j, n in enumerate(above)]
            there = chances(other, bounds, epsilon, claimed_noise, usual)
            for p, q in zip(here, there, strict=True):
                worst = max(worst, p / q, q / p)
    return worst


@pytest.mark.parametrize("usual", [1, 2, 30])
def test_the_law_of_the_draw_is_private_for_all_small_data(usual: int) -> None:
    for epsilon in (0.3, 0.9, 2.0):
        assert worst_ratio(epsilon, 1.0, usual) <= math.exp(epsilon) * (1 + 1e-4)


def test_a_mutant_with_half_the_noise_is_caught() -> None:
    assert worst_ratio(0.9, 0.5) > math.exp(0.9) * 1.1


@pytest.mark.parametrize("usual", [1, 10, 100])
def test_the_draw_follows_its_law(usual: int) -> None:
    """Pearson's statistic over 3 cells, of 49 draws at least; beyond 60 with probability below 1e-10."""
    bounds = (1, 10, 30)
    units = [(1, 0, 0)] * 3 + [(0, 20, 0)] * 4 + [(50, 0, 0)]
    guarantee = Guarantee(Fraction(2), Fraction(0))
    plan = truncation.Quantile(guarantee, Fraction(1), Fraction(1), bounds, usual=usual)
    contributions = histogram(units, bounds)
    assert contributions.above() == [5, 5, 1]
    expected = chances(contributions.above(), bounds, 1.0, usual=usual)
    assert sum(expected) == pytest.approx(1, abs=1e-5)
    n = 10_000
    drawn = Counter(plan.draw(contributions, SystemNoise()) for _ in range(n))
    statistic = sum((drawn[j] - n * p) ** 2 / (n * p) for j, p in enumerate(expected))
    assert statistic < 60


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
@pytest.mark.parametrize("number", [0, 1, 50, 1000, 100_000])
@pytest.mark.parametrize("largest", [1, 20, 5000])
def test_a_bound_far_above_all_units_is_rarely_drawn(
    largest: int, number: int, epsilon: float
) -> None:
    """By the law: the noise is a hundred times the largest unit in one answer of ten thousand."""
    bounds = truncation.bounds(10**9)
    exceeding = [number * (1 - b / largest) if b < largest else 0 for b in bounds]
    law = chances([round(n) for n in exceeding], bounds, epsilon / 4)
    assert sum(p for p, b in zip(law, bounds, strict=True) if b > 10 * largest) < 0.02
    assert sum(p for p, b in zip(law, bounds, strict=True) if b > 100 * largest) < 2e-4


@pytest.mark.parametrize("largest", [10**9, 10**30])
def test_few_units_are_enough_however_many_bounds_there_are(largest: int) -> None:
    """Three hundred units of a hundred thousand steps each, epsilon 1."""
    units = [(100_000, 0, 0)] * 300
    plan = truncation.plan("auto", Fraction(1), None, Limits(largest), single=True)
    assert isinstance(plan, truncation.Quantile)
    contributions = histogram(units, plan.bounds)
    drawn = [plan.bounds[plan.draw(contributions, SystemNoise())] for _ in range(100)]
    # below: a chance of 40 exp(-(300 - 93)/4); above 200,000: about 1/4
    assert sum(100_000 <= tau <= 200_000 for tau in drawn) > 40


@pytest.mark.parametrize("wide", [1, 4, 30])
def test_declared_bounds_of_values_leave_sums_of_few_units_whole(wide: int) -> None:
    """Sixty customers with up to 9 invoices of at most 30.00, epsilon 1; by the law.

    The largest value that is declared may be ``wide`` times too large.
    """
    seed = random.SystemRandom().randrange(2**32)
    source = random.Random(seed)
    units = [
        (sum(source.choice((99, 198, 396, 891, 1386, 3000)) for _ in range(9)), 0, 0)
        for _ in range(60)
    ]
    value = Weight(TRUE, frozenset({0}), 2, 0, 3000 * wide, integer=False)
    limits = largest_sum(value, 1_000_000)
    plan = truncation.plan("auto", Fraction(1), None, limits, single=True)
    assert isinstance(plan, truncation.Quantile)
    contributions = histogram(units, plan.bounds)
    above = contributions.above()
    law = chances(above, plan.bounds, 1 / 4, usual=plan.usual)
    half = sum(v[0] for v in units) * GRID / 2
    cut = sum(p for j, p in enumerate(law) if contributions.truncated(j, GROUPS[:1])[0] < half)
    far = sum(p for p, tau in zip(law, plan.bounds, strict=True) if tau > 30 * max(units)[0])
    assert cut < 0.02, f"seed {seed}"
    assert far < 0.02 * wide, f"seed {seed}"


def test_large_data_are_hardly_cut() -> None:
    """At epsilon 1, fifty thousand units: the bound is near the largest contributions."""
    seed = random.SystemRandom().randrange(2**32)
    source = random.Random(seed)
    units = [(min(source.randrange(1, 60), source.randrange(1, 60)), 0, 0) for _ in range(50_000)]
    contributions = histogram(units)
    plan = truncation.plan("auto", Fraction(1), None, Limits(10**9), single=True)
    assert isinstance(plan, truncation.Quantile)
    noise = SystemNoise()
    drawn = [plan.bounds[plan.draw(contributions, noise)] for _ in range(200)]
    # 59 is the largest; only far-off noise stops at 32, where some 23,000 exceed, or goes on
    assert sum(45 <= tau <= 91 for tau in drawn) > 120, f"seed {seed}"
    released = [plan.release(contributions, [("a",)], noise).values[0] for _ in range(100)]
    truth = sum(v[0] for v in units)
    assert sum(abs(value - truth) < 0.002 * truth for value in released) > 50, f"seed {seed}"


def r2t(epsilon: int, largest: int, *, signed: bool = False) -> truncation.RaceToTheTop:
    limits = Limits(largest, signed=signed)
    plan = truncation.plan("r2t", Fraction(epsilon), None, limits, single=True)
    assert isinstance(plan, truncation.RaceToTheTop)
    return plan


def single(values: list[int], plan: truncation.RaceToTheTop) -> Contributions:
    """Summarise one number per unit, those that take away apart."""
    cells: dict[int, tuple[int, int]] = {}
    for value in values:
        place = bisect_left(plan.bounds, abs(value))
        sign = 1 if value >= 0 else -1
        amount, share = cells.get(place if sign > 0 else ~place, (0, 0))
        cells[place if sign > 0 else ~place] = amount + value, share + sign
    return Contributions(plan.bounds, (), {(): cells}, 1)


UNITS = {
    "all alike": [3] * 2000,
    "few large": [1] * 5000 + [900] * 3,
    "skewed": [1 + 3000 // (i + 1) for i in range(3000)],
    "none": [],
}


@pytest.mark.parametrize("values", UNITS.values(), ids=UNITS)
def test_r2t_stays_below_and_within_the_bound_of_the_paper(values: list[int]) -> None:
    """At most the truth, and at least ``4 log2(GS) ln(log2(GS)/beta) tau*/eps`` less."""
    epsilon, largest, runs = 4, 10**6, 1000
    plan = r2t(epsilon, largest)
    contributions = single(values, plan)
    halvings = math.log2(largest)
    bound = 4 * halvings * math.log(halvings / truncation.FAILURE) * max(values, default=0)
    bound = bound / epsilon + 1  # shifts are rounded up
    answers = [plan.release(contributions, [()], SystemNoise()).values[0] for _ in range(runs)]
    # either fails with probability at most 1/20: more than 100 of 1000 below 1e-10
    assert sum(answer > sum(values) for answer in answers) <= 100
    assert sum(answer < sum(values) - bound for answer in answers) <= 100


def test_two_races_answer_a_signed_sum() -> None:
    """Each race errs on its own side, and no further than its bound."""
    plan = r2t(8, 1000, signed=True)
    contributions = single([3] * 2000 + [-5] * 1000, plan)
    wrong = 0
    for _ in range(200):
        (value,) = plan.release(contributions, [()], SystemNoise()).values
        bound = 8 * plan.rounds * math.log(plan.rounds / truncation.FAILURE) * 5 / 8
        wrong += not 1000 - bound - 1 <= value <= 1000 + bound + 1
    # as above, for two races: a chance of 1/5 at most; more than 110 of 200 below 1e-20
    assert wrong <= 110


def test_a_unit_of_very_many_groups_shows_none_of_its_own() -> None:
    """Its groups count one unit each, and as many as the bound at most."""
    bounds = truncation.bounds(10**9)
    many: dict[Key, dict[int, tuple[int, int]]] = {
        (str(i),): {bisect_left(bounds, i + 1): (1, 0)} for i in range(10_000)
    }
    units = [0] * (len(bounds) + 1)
    units[bisect_left(bounds, 10_000)] = 1
    contributions = Contributions(bounds, tuple(units), many, 1)
    delta = Fraction(1, 10**12)
    plan = truncation.plan("auto", Fraction(1), delta, Limits(10**9), single=False)
    release = plan.release(contributions, list(many), SystemNoise())
    assert release.shown is not None
    assert sum(release.shown) == 0  # but for a probability of 1e-12


@pytest.mark.parametrize(("tau", "epsilon"), [(1, 1), (3, 2), (10, 0.5), (100, 0.1)])
def test_the_threshold_of_units_hides_new_groups(tau: int, epsilon: float) -> None:
    """The chance that one of ``tau`` groups of one unit is shown, by the law of the noise."""
    delta = 1e-6
    scale = tau / epsilon
    least = threshold.cutoff(tau, Fraction(epsilon), Fraction(delta), each=1)

    def shown(cutoff: int) -> float:  # P(1 + noise >= cutoff)
        return math.exp(-(cutoff - 1) / scale) / (1 + math.exp(-1 / scale))

    assert -math.expm1(tau * math.log1p(-shown(least))) <= delta
    assert tau * shown(least - 1) > delta * (1 - 1e-6)


@given(st.integers(1, 2**31 - 1))
def test_the_bounds_end_with_the_largest(largest: int) -> None:
    found = truncation.bounds(largest)
    assert found[-1] == largest
    assert found[0] == 1
    assert all(b <= 1.5 * a or b - a == 1 for a, b in pairwise(found))


def test_r2t_covers_the_largest_contribution() -> None:
    for largest in (1, 2, 3, 1000, 1024, 1025, 10**6):
        plan = r2t(1, largest)
        assert plan.bounds[-1] >= largest
        assert plan.rounds == 1 or plan.bounds[-2] < largest
