"""The samplers' laws, by chi-square; false-alarm rate of each test below 1e-9."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest

from dpsql.core.rng import SystemNoise

pytestmark = pytest.mark.stat
DRAWS = 40_000


def chi_square_p(draws: list[int], law: dict[int, float]) -> float:
    """P-value against ``law``; cells below 10 expected are pooled with the rest."""
    from scipy.stats import chi2

    counts = Counter(draws)
    big = [x for x, p in law.items() if p * len(draws) >= 10]
    statistic, seen, mass = 0.0, 0, 0.0
    for x in big:
        expected = law[x] * len(draws)
        statistic += (counts[x] - expected) ** 2 / expected
        seen, mass = seen + counts[x], mass + law[x]
    rest = max((1 - mass) * len(draws), 1e-9)
    cells = len(big)
    if rest >= 10:
        statistic += (len(draws) - seen - rest) ** 2 / rest
        cells += 1
    return float(chi2.sf(statistic, cells - 1))


def laplace(scale: float) -> dict[int, float]:
    norm = math.tanh(1 / (2 * scale))
    return {x: norm * math.exp(-abs(x) / scale) for x in range(-3000, 3001)}


def cauchy(scale: float) -> dict[int, float]:
    weights = {x: 1 / (1 + (x / scale) ** 4) for x in range(-20_000, 20_001)}
    norm = sum(weights.values())
    return {x: w / norm for x, w in weights.items()}


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(22, 7), Fraction(40)])
@pytest.mark.parametrize("kind", ["laplace", "cauchy"])
def test_sampler_follows_its_law_and_a_mutant_is_caught(kind, scale) -> None:
    noise = SystemNoise()
    draw = noise.discrete_laplace if kind == "laplace" else noise.discrete_cauchy
    law = laplace if kind == "laplace" else cauchy
    draws = [draw(scale) for _ in range(DRAWS)]
    assert chi_square_p(draws, law(float(scale))) > 1e-9
    # power: a scale that is 20 % off is rejected
    assert chi_square_p(draws, law(float(scale) * 1.2)) < 1e-9


def test_agrees_with_opendp() -> None:
    import opendp.prelude as dp
    from scipy.stats import chi2_contingency

    dp.enable_features("contrib")
    measurement = dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), 3.0)
    noise = SystemNoise()
    ours = Counter(noise.discrete_laplace(Fraction(3)) for _ in range(20_000))
    theirs = Counter(int(measurement(0)) for _ in range(20_000))
    cells = [x for x in range(-20, 21) if ours[x] + theirs[x] >= 20]
    table = [[c[x] for x in cells] for c in (ours, theirs)]
    assert chi2_contingency(table).pvalue > 1e-9


def test_counts_beyond_machine_integers() -> None:
    noise = SystemNoise()
    scale = Fraction(2**200, 3)
    draws = [noise.discrete_laplace(scale) for _ in range(200)]
    assert len(set(draws)) == 200
    assert any(abs(d) > 2**195 for d in draws)
    assert any(abs(noise.discrete_cauchy(scale)) > 2**190 for _ in range(50))
