"""Truncated counts: what one unit can change, and the law of the drawn bound."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.core.mechanisms import truncation
from dpsql.core.rng import SystemNoise
from dpsql.model import Contributions, Key

GROUPS: list[Key] = [("a",), ("b",), (None,)]
Vector = tuple[int, int, int]
vectors = st.lists(st.tuples(*[st.integers(0, 40)] * 3), max_size=8)


def histogram(units: list[Vector]) -> Contributions:
    """Summarise what units contribute, one vector each."""
    totals = Counter(sum(v) for v in units if sum(v))
    groups: dict[Key, dict[tuple[int, int], int]] = {}
    for g, key in enumerate(GROUPS):
        cell = Counter((sum(v), v[g]) for v in units if v[g])
        if cell:
            groups[key] = dict(cell)
    return Contributions(dict(totals), groups)


@given(vectors, st.integers(1, 100))
def test_a_unit_moves_the_vector_by_at_most_the_bound(units: list[Vector], tau: int) -> None:
    whole = histogram(units).truncated(tau, GROUPS)
    for i in range(len(units)):
        less = histogram(units[:i] + units[i + 1 :]).truncated(tau, GROUPS)
        assert sum(abs(a - b) for a, b in zip(whole, less, strict=True)) <= tau
        assert all(a >= b for a, b in zip(whole, less, strict=True))


@given(vectors)
def test_counts_above_are_of_units(units: list[Vector]) -> None:
    bounds = [1, 2, 3, 10, 50, 200]
    found = histogram(units).above(bounds)
    assert found == [sum(sum(v) > bound for v in units) for bound in bounds]


@given(vectors, st.integers(120, 10**9))
def test_nothing_is_lost_below_the_bound(units: list[Vector], tau: int) -> None:
    assert histogram(units).truncated(tau, GROUPS) == [sum(v[g] for v in units) for g in range(3)]


def law(scores: list[int], epsilon: float) -> list[float]:
    """Compute the chance of each bound to win: geometric noise, ties to the first."""
    ratio = math.exp(-epsilon / 2)
    reach = 60 + max(scores) - min(scores)

    def below(limit: int) -> float:  # P(G < limit)
        return 1 - ratio**limit if limit > 0 else 0.0

    found = []
    for i, mine in enumerate(scores):
        chance = 0.0
        for m in range(int(reach / epsilon)):
            win = (1 - ratio) * ratio**m
            for j, other in enumerate(scores):
                if j != i:
                    win *= below(mine + m - other + (j > i))
            chance += win
        found.append(chance)
    return found


def test_the_law_of_the_draw_is_private_for_every_change_of_scores() -> None:
    """All score vectors in a small cube and all their neighbours."""
    epsilon = 0.9
    for scores in [(0, 0, 0), (0, -1, -3), (-2, 0, 0), (-1, -1, 0), (-4, -2, -3)]:
        here = law(list(scores), epsilon)
        assert sum(here) == pytest.approx(1, abs=1e-6)
        for a in (-1, 0, 1):
            for b in (-1, 0, 1):
                for c in (-1, 0, 1):
                    there = law([scores[0] + a, scores[1] + b, scores[2] + c], epsilon)
                    for p, q in zip(here, there, strict=True):
                        assert p <= q * math.exp(epsilon) * (1 + 1e-6)


def test_a_mutant_with_half_the_noise_is_caught() -> None:
    """The same check fails where the noise forgets that scores move both ways."""
    claimed = 0.9
    here, there = law([0, 0, 0], 2 * claimed), law([-1, 1, 1], 2 * claimed)
    assert any(p > q * math.exp(claimed) * 1.01 for p, q in zip(here, there, strict=True))


def test_the_draw_follows_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pearson's statistic over 3 cells; beyond 60 with probability below 1e-12."""
    monkeypatch.setattr(truncation, "bounds", lambda largest: (1, 10, 30))
    units = [(1, 0, 0)] * 3 + [(0, 20, 0)] * 2 + [(50, 0, 0)]
    plan = truncation.Quantile(None, Fraction(1), Fraction(1), 2, 1, 30)  # type: ignore[arg-type]
    contributions = histogram(units)
    scores = [-abs(n - 2) - j for j, n in enumerate(contributions.above((1, 10, 30)))]
    expected = law(scores, 1.0)
    n = 4000
    drawn = Counter(plan.draw(contributions, SystemNoise()) for _ in range(n))
    statistic = sum(
        (drawn[tau] - n * p) ** 2 / (n * p) for tau, p in zip((1, 10, 30), expected, strict=True)
    )
    assert statistic < 60


def test_large_data_are_hardly_cut() -> None:
    """At epsilon 1, fifty thousand units: the bound is near the largest contributions."""
    seed = random.SystemRandom().randrange(2**32)
    source = random.Random(seed)
    units = [(min(source.randrange(1, 60), source.randrange(1, 60)), 0, 0) for _ in range(50_000)]
    contributions = histogram(units)
    plan = truncation.plan("auto", Fraction(1), Fraction(0), 1, 10**9)
    assert isinstance(plan, truncation.Quantile)
    noise = SystemNoise()
    drawn = [plan.draw(contributions, noise) for _ in range(200)]
    # 64 or 91 win with a probability of 0.86: fewer than 121 of 200 times below 1e-15
    assert sum(64 <= tau <= 91 for tau in drawn) > 120, f"seed {seed}"
    released = [plan.release(contributions, [("a",)], noise).values[0] for _ in range(100)]
    truth = sum(v[0] for v in units)
    assert sum(abs(value - truth) < 0.002 * truth for value in released) > 50, f"seed {seed}"


def test_r2t_stays_below_and_near() -> None:
    units = [(3, 0, 0)] * 2000
    contributions = histogram(units)
    plan = truncation.plan("r2t", Fraction(4), Fraction(0), 1, 10**9)
    assert isinstance(plan, truncation.RaceToTheTop)
    wrong = 0
    for _ in range(200):
        (value,) = plan.release(contributions, [("a",)], SystemNoise()).values
        bound = 4 * plan.rounds * math.log(plan.rounds / truncation.FAILURE) * 3 / 4
        wrong += not 6000 - bound - 1 <= value <= 6000
    # each fails with probability at most 1/20 twice; more than 70 of 200 below 1e-15
    assert wrong <= 70


def test_groups_of_which_nothing_is_left_are_not_shown() -> None:
    """One unit in very many groups brings none of them in."""
    many: dict[Key, dict[tuple[int, int], int]] = {
        (str(i),): {(10_000, 1): 1} for i in range(10_000)
    }
    contributions = Contributions({10_000: 1}, many)
    plan = truncation.plan("auto", Fraction(1), Fraction(1, 10**6), None, 10**9)
    release = plan.release(contributions, list(many), SystemNoise())
    assert release.shown is not None
    # the one unit is above every bound that the draw can choose with probability 1 - 1e-9,
    # or the threshold hides it
    assert sum(release.shown) == 0


@given(st.integers(1, 2**31 - 1))
def test_the_bounds_end_with_the_largest(largest: int) -> None:
    found = truncation.bounds(largest)
    assert found[-1] == largest
    assert found[0] == 1
    assert all(b <= 1.5 * a or b - a == 1 for a, b in pairwise(found))


def test_r2t_covers_the_largest_contribution() -> None:
    for largest in (1, 2, 3, 1000, 1024, 1025, 10**6):
        plan = truncation.plan("r2t", Fraction(1), Fraction(0), 1, largest)
        assert isinstance(plan, truncation.RaceToTheTop)
        assert 2**plan.rounds >= largest
        assert plan.rounds == 1 or 2 ** (plan.rounds - 1) < largest
