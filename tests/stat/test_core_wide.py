"""Draws of wide noise against the exact laws, by chi-square.

Fewer than sixty comparisons at a nominal level of 1e-12, with at least 1000 expected draws in a cell: as
in `test_core_tables` each is at most ten times likelier than that, so a false alarm of this file
has a chance below 1e-9.  There is no seed to print: the bits are the operating system's.  Mutants
that a statistic can see must be rejected at the same level, and are missed with a chance below
1e-20; `tests/unit/core/test_wide.py` has those that it cannot.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.core import rng, tables, wide
from dpsql.core.rng import SystemNoise

pytestmark = pytest.mark.stat
DRAWS = 2_000_000
LEVEL = 1e-12
CELLS = 256

GAUSSIAN = [
    Fraction(90**2),
    Fraction(3000**2) + Fraction(1, 7),
    Fraction(4 * 10**7) ** 2,
    Fraction(10**30),
]
LAPLACE = [Fraction(20), Fraction(1001, 3), Fraction(10**7), Fraction(10**15)]


def quantiles(kind: str, parameter: Fraction) -> list[int]:
    """Ends of about ``CELLS`` cells: below the first, from the first to below the second, ..."""
    from scipy import stats

    parts = np.arange(1, CELLS) / CELLS
    if kind == "gaussian":
        ends = stats.norm.ppf(parts) * float(parameter) ** 0.5
    else:
        ends = stats.laplace.ppf(parts) * float(parameter)
    return sorted({round(end) for end in ends})


def below(kind: str, parameter: Fraction, end: int) -> float:
    """``P(X < end)``: exact for Laplace; Euler-Maclaurin for Gaussians, off by less than 1e-10 here."""
    from scipy import stats

    if kind == "laplace":
        b = float(parameter)
        tail = np.exp(-(end if end > 0 else 1 - end) / b) / (1 + np.exp(-1 / b))
        return float(1 - tail) if end > 0 else float(tail)
    sigma = float(parameter) ** 0.5
    z = (end - 0.5) / sigma
    return float(stats.norm.cdf(z) + z * stats.norm.pdf(z) / (24 * sigma**2))


def chi_square(counts: np.ndarray, mass: np.ndarray) -> bool:
    """Whether the counts reject ``mass``."""
    from scipy.stats import chi2

    expected = mass * counts.sum()
    assert expected.min() >= 1000
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return bool(statistic > chi2.isf(LEVEL, len(mass) - 1))


def rejected(draws: np.ndarray, kind: str, parameter: Fraction, *, off: float = 1.0) -> bool:
    """Whether a test of the whole law rejects; ``off`` moves the scale of the law it is held to."""
    ends = quantiles(kind, parameter)
    held = parameter * Fraction(off) ** (2 if kind == "gaussian" else 1)
    edges = [0.0, *(below(kind, held, end) for end in ends), 1.0]
    mass = np.array([b - a for a, b in pairwise(edges)])
    cells = np.searchsorted(np.array(ends), draws, side="right")
    return chi_square(np.bincount(cells, minlength=len(mass)), mass)


def uneven(draws: np.ndarray, shift: int) -> bool:
    """Whether bits ``shift .. shift + 3`` are not uniform and independent of the next draw's."""
    digits = (draws >> shift) & 15
    pairs = np.bincount(16 * digits[:-1:2] + digits[1::2], minlength=256)
    return chi_square(pairs, np.full(256, 1 / 256))


def drawn(kind: str, parameter: Fraction) -> np.ndarray:
    noise = SystemNoise()
    draw = noise.gaussians if kind == "gaussian" else noise.laplaces
    return wide.gathered(draw(parameter, DRAWS), DRAWS)


CASES = [*(("gaussian", p) for p in GAUSSIAN), *(("laplace", p) for p in LAPLACE)]


@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_draws_follow_the_exact_law_and_a_scale_off_by_two_percent_does_not(
    kind, parameter
) -> None:
    draws = drawn(kind, parameter)
    assert not rejected(draws, kind, parameter)
    assert rejected(draws, kind, parameter, off=1.02)
    assert rejected(draws, kind, parameter, off=0.98)
    assert rejected(draws + round(float(draws.std()) / 50), kind, parameter)


@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_a_sum_with_a_scale_off_by_two_percent_is_rejected(kind, parameter) -> None:
    off = Fraction(102, 100) ** (2 if kind == "gaussian" else 1)
    assert rejected(drawn(kind, parameter * off), kind, parameter)


@pytest.mark.parametrize(("kind", "parameter"), [c for c in CASES if c[1] > 1000])
def test_low_bits_are_uniform(kind, parameter) -> None:
    """Sixteen residues of a power of two far below the scale are equally likely, up to 1e-9."""
    draws = drawn(kind, parameter)
    scale = float(parameter) ** (0.5 if kind == "gaussian" else 1)
    top = int(np.log2(scale)) - 8 if kind == "gaussian" else int(np.log2(scale)) - 20
    for shift in range(0, max(top, 0) + 1, 3):
        assert not uneven(draws, shift), shift


def from_parts(parts: list) -> np.ndarray:
    draws = [(f, np.concatenate(list(SystemNoise().blocks(t, DRAWS)))) for f, t in parts]
    return sum(factor * block for factor, block in draws)


def test_factors_that_are_too_large_leave_gaps() -> None:
    """Eight times the factor, and the variance right."""
    parameter = Fraction(3000**2)
    law = wide.gaussian(parameter)
    low, rest = law.terms
    factor = 8 * rest.factor
    mutant = from_parts(
        [
            (1, tables.gaussian(low.parameter)),
            (factor, tables.gaussian((parameter - low.parameter) / factor**2)),
        ]
    )
    assert rejected(mutant, "gaussian", parameter)
    assert not uneven(drawn("gaussian", parameter), 7)
    assert uneven(mutant, 7)


def test_mutants_of_the_sum_are_rejected(monkeypatch) -> None:
    parameter = Fraction(3000**2)
    law = wide.gaussian(parameter)
    parts = law.tables()
    assert not rejected(from_parts(parts), "gaussian", parameter)
    for mutant in (
        parts[1:],
        [parts[0], (parts[1][0] // 2, parts[1][1])],
        [(1, tables.gaussian(Fraction(1))), parts[1]],
    ):
        draws = from_parts(mutant)
        assert rejected(draws, "gaussian", parameter) or uneven(draws, 0)
    not_taken_off = replace(law.terms[1], parameter=parameter / law.terms[1].factor ** 2)
    draws = from_parts([parts[0], replace(law, terms=(not_taken_off,)).tables()[0]])
    assert rejected(draws, "gaussian", parameter)
    # the same words for both parts: the sum is as wide as their scales together
    words = np.frombuffer(rng.secret(8 * DRAWS), dtype=np.uint64)
    again = sum(factor * table.look_up(words, rng.secret) for factor, table in parts)
    assert rejected(again, "gaussian", parameter)
