"""Values by rank: the law of what is found, for all small counts and their neighbours."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.core.mechanisms import percentile
from dpsql.core.mechanisms.percentile import Sought
from dpsql.core.rng import SystemNoise

Counts = tuple[int, ...]


class Recorded:
    """Hands out chosen values in place of geometric noise, in order."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def geometric(self, scale: Fraction) -> int:
        assert scale > 0
        return self.values.pop(0)


def found(counts: Counts, share: Fraction, noise: tuple[int, ...]) -> int:
    rank = share.numerator * sum(counts)
    chosen = [share.denominator * n for n in counts]
    return percentile._best(chosen, rank, Fraction(1), Recorded([*noise]))  # type: ignore[arg-type]


def law(counts: Counts, share: Fraction, bound: int, epsilon: float) -> list[float]:
    """Compute the chance of every cell by summing over all noise up to a far tail."""
    ratio = math.exp(-epsilon / (2 * bound * share.denominator))
    reach = 12
    chances = [0.0] * len(counts)
    for noise in product(range(reach), repeat=len(counts)):
        weight = math.prod((1 - ratio) * ratio**n for n in noise)
        chances[found(counts, share, noise)] += weight
    return chances


def neighbours(counts: Counts, bound: int) -> list[Counts]:
    """List what one unit more or less leaves: counts that move by ``bound`` in all, one way."""
    steps = [s for s in product(range(bound + 1), repeat=len(counts)) if 0 < sum(s) <= bound]
    return [tuple(n + s for n, s in zip(counts, step, strict=True)) for step in steps]


def worst_loss(bound: int, epsilon: float) -> float:
    """Return the largest loss over all small counts and their neighbours."""
    worst = 0.0
    for share in (Fraction(1, 2), Fraction(1, 3), Fraction(1)):
        for counts in product(range(3), repeat=3):
            here = law(counts, share, bound, epsilon)
            for other in neighbours(counts, bound):
                there = law(other, share, bound, epsilon)
                for p, q in zip(here, there, strict=True):
                    # what the tail beyond the sum could add is below 0.05
                    if min(p, q) > 0.05:
                        worst = max(worst, abs(math.log(p / q)))
    return worst


def test_the_law_is_private_for_all_small_counts() -> None:
    assert worst_loss(1, 2.0) <= 2.0 + 0.05
    assert worst_loss(1, 6.0) <= 6.0 + 0.05


def test_a_mutant_without_the_denominator_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same check fails where scores are taken to move by the bound alone."""
    real = law
    monkeypatch.setitem(globals(), "law", lambda c, s, b, e: real(c, s, b, e * 2 * s.denominator))
    assert worst_loss(1, 2.0) > 2.1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), st.sampled_from([1, 2, 3, 9]))
def test_without_noise_the_cell_is_that_of_the_rank(counts: list[int], tenths: int) -> None:
    share = Fraction(tenths, 10)
    silent = Recorded([0] * 1000)
    cell = percentile._cell(counts, share, 1, Fraction(1), silent)  # type: ignore[arg-type]
    below = sum(counts[: cell - 1])
    assert below <= share * sum(counts) <= below + counts[cell - 1]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), st.integers(0, 10))
def test_public_data_are_answered_exactly(counts: list[int], tenths: int) -> None:
    (cell,) = percentile.exact([counts], Sought(Fraction(tenths, 10), len(counts)))
    values = [i for i, n in enumerate(counts, 1) for _ in range(n)]
    if values:
        place = max(math.ceil(Fraction(tenths, 10) * len(values)), 1)
        assert cell == values[place - 1]


@pytest.mark.parametrize(
    ("share", "least", "most"),
    [(Fraction(0), 1000, 1400), (Fraction(1, 2), 1800, 2200), (Fraction(1), 2600, 3000)],
)
def test_large_data_are_found_closely(share: Fraction, least: int, most: int) -> None:
    """Ten thousand rows between cells 1000 and 3000 of 65,536, epsilon 1."""
    seed = random.SystemRandom().randrange(2**32)
    source = random.Random(seed)
    counts = [0] * 2**16
    for _ in range(10_000):
        counts[source.randrange(1000, 3001) - 1] += 1
    noise = SystemNoise()
    cells = [percentile._cell(counts, share, 1, Fraction(1), noise) for _ in range(20)]
    # each is missed with a probability below 1/20 (3 % measured): all but four of 20 below 1e-16
    assert sum(least <= cell <= most for cell in cells) > 4, f"seed {seed}: {cells}"


def test_groups_are_sought_apart() -> None:
    counts = [[5, 0, 0], [0, 0, 7]]
    plan = percentile.plan_rows(
        "auto", Fraction(100), Fraction(0), 0, Sought(Fraction(1, 2), 3), constant=True
    )
    assert plan.release(counts, Fraction(1), SystemNoise()).values == [1, 3]
