"""The samplers' laws, by chi-square; there is no seed to print: the bits are the operating system's.

Thirteen comparisons at a nominal level of 1e-12.  Cells have at least 700 expected draws, where the
skewness of a count makes 7 deviations up to 10 times likelier than the normal law says; so a false
alarm of this file has a chance below 1e-9.  A mutant's is missed with a smaller one.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest

from dpsql.core.rng import SystemNoise

pytestmark = pytest.mark.stat
DRAWS = 60_000
LEVEL = 1e-12
LEAST = 700


def chi_square_p(draws: list[int], law: dict[int, float]) -> float:
    """P-value against ``law``; values share cells of at least ``LEAST`` expected draws, in their order."""
    from scipy.stats import chi2

    reach = max(law)
    counts = Counter(min(max(x, -reach), reach) for x in draws)
    statistic, cells, seen, expected = 0.0, 0, 0, 0.0
    left = float(len(draws))
    for x in sorted(law):
        seen += counts[x]
        expected += law[x] * len(draws)
        # the last cell takes the rest, of which there is enough for itself
        if expected >= LEAST and (left - expected >= LEAST or x == reach):
            statistic += (seen - expected) ** 2 / expected
            left -= expected
            cells, seen, expected = cells + 1, 0, 0.0
    assert cells >= 3
    return float(chi2.sf(statistic, cells - 1))


def laplace(scale: float) -> dict[int, float]:
    norm = math.tanh(1 / (2 * scale))
    return {x: norm * math.exp(-abs(x) / scale) for x in range(-3000, 3001)}


def cauchy(scale: float) -> dict[int, float]:
    weights = {x: 1 / (1 + (x / scale) ** 4) for x in range(-20_000, 20_001)}
    norm = sum(weights.values())
    return {x: w / norm for x, w in weights.items()}


def geometric(scale: float) -> dict[int, float]:
    norm = -math.expm1(-1 / scale)
    return {x: norm * math.exp(-x / scale) for x in range(3001)}


#: Of a geometric law with a smaller scale than 2/3 there are too few cells.
LAWS = {
    "discrete_laplace": (laplace, Fraction(1, 3)),
    "discrete_cauchy": (cauchy, Fraction(1, 3)),
    "geometric": (geometric, Fraction(2, 3)),
}


@pytest.mark.parametrize("scale", [None, Fraction(1), Fraction(22, 7), Fraction(40)])
@pytest.mark.parametrize("kind", LAWS)
def test_sampler_follows_its_law_and_a_mutant_is_caught(kind, scale) -> None:
    law, smallest = LAWS[kind]
    scale = smallest if scale is None else scale
    draw = getattr(SystemNoise(), kind)
    draws = [draw(scale) for _ in range(DRAWS)]
    assert chi_square_p(draws, law(float(scale))) > LEVEL
    # power: a scale that is 20 % off is rejected
    assert chi_square_p(draws, law(float(scale) * 1.2)) < LEVEL


def test_agrees_with_opendp() -> None:
    import opendp.prelude as dp
    from scipy.stats import chi2_contingency

    dp.enable_features("contrib")
    measurement = dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), 3.0)
    noise = SystemNoise()
    ours = Counter(cell(noise.discrete_laplace(Fraction(3))) for _ in range(20_000))
    theirs = Counter(cell(int(measurement(0))) for _ in range(20_000))
    # of at least 1000 expected draws, of both together
    table = [[c[x] for x in range(-5, 6)] for c in (ours, theirs)]
    assert chi2_contingency(table).pvalue > LEVEL


def cell(draw: int) -> int:
    """Pool what is far off, each side apart."""
    return min(max(draw, -5), 5)


def test_counts_beyond_machine_integers() -> None:
    noise = SystemNoise()
    scale = Fraction(2**200, 3)
    draws = [noise.discrete_laplace(scale) for _ in range(200)]
    assert len(set(draws)) == 200
    assert any(abs(d) > 2**195 for d in draws)
    assert any(abs(noise.discrete_cauchy(scale)) > 2**190 for _ in range(50))
