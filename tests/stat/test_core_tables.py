"""Draws from tables against the exact laws, by chi-square.

Thirteen comparisons at a nominal level of 1e-12.  Cells have at least 1000 expected draws, where
the skewness of a count makes 7 deviations up to 7 times likelier than the normal law says; so a
false alarm of this file has a chance below 1e-9.  Mutants that a statistic can see must be rejected
at the same level; `tests/unit/core/test_tables.py` has those that it cannot (far tails, low bits).
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.core import tables, tabulate
from dpsql.core.rng import SystemNoise, secret
from dpsql.core.tabulate import Cumulative

pytestmark = pytest.mark.stat
DRAWS = 2_000_000
LEVEL = 1e-12
LEAST = 1000


def law(kind: str, parameter: Fraction, reach: int) -> np.ndarray:
    """``P(X = x)`` for ``x`` in ``-reach .. reach``, in floating point, by its definition."""
    x = np.arange(-reach, reach + 1, dtype=float)
    scale = float(parameter)
    weights = np.exp(-(x**2) / (2 * scale) if kind == "gaussian" else -np.abs(x) / scale)
    return weights / math.fsum(weights)


def rejected(draws: np.ndarray, exact: np.ndarray) -> bool:
    """Whether a chi-square test rejects; cells below ``LEAST`` expected are pooled, each side apart."""
    from scipy.stats import chi2

    reach = len(exact) // 2
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(exact))
    big = np.flatnonzero(exact * len(draws) >= LEAST)
    edges = [0, *range(big[0], big[-1] + 2), len(exact)]
    pooled = [(counts[a:b].sum(), exact[a:b].sum()) for a, b in pairwise(edges)]
    # an outer part of less than that joins its neighbour
    if pooled[0][1] * len(draws) < LEAST:
        pooled[:2] = [tuple(map(sum, zip(*pooled[:2], strict=True)))]
    if pooled[-1][1] * len(draws) < LEAST:
        pooled[-2:] = [tuple(map(sum, zip(*pooled[-2:], strict=True)))]
    seen, mass = np.array(pooled).T
    if len(seen) == 1:
        return False
    statistic = float(((seen - mass * len(draws)) ** 2 / (mass * len(draws))).sum())
    return bool(statistic > chi2.isf(LEVEL, len(seen) - 1))


def drawn(table: tables.Table) -> np.ndarray:
    return np.concatenate(list(SystemNoise().blocks(table, DRAWS)))


CASES = [
    ("gaussian", Fraction(1, 3)),
    ("gaussian", Fraction(22, 7)),
    ("gaussian", Fraction(10007, 4)),
    ("gaussian", Fraction(90_000)),
    ("laplace", Fraction(1, 3)),
    ("laplace", Fraction(22, 7)),
    ("laplace", Fraction(100)),
]


@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_draws_follow_the_exact_law_and_a_scale_off_by_two_percent_does_not(
    kind, parameter
) -> None:
    table = getattr(tables, kind)(parameter)
    draws = drawn(table)
    assert not rejected(draws, law(kind, parameter, table.reach))
    off = parameter * Fraction(102, 100) ** (2 if kind == "gaussian" else 1)
    assert rejected(draws, law(kind, off, table.reach))


@pytest.mark.parametrize("head_bits", [7, 14])
def test_draws_that_tie_often_follow_the_exact_law(head_bits) -> None:
    """Short first words: a good part of the draws takes a second look (and would be off else)."""
    values = tabulate.gaussian(Fraction(100), head_bits + 128)
    table = tables.build("gaussian", Fraction(100), values, head_bits)
    exact = law("gaussian", Fraction(100), table.reach)
    words = np.frombuffer(secret(8 * 200_000), dtype=np.uint64)
    asked = []

    def more(size: int) -> bytes:
        asked.append(size)
        return secret(size)

    assert not rejected(table.look_up(words, more), exact)
    assert len(asked) > len(words) * 2**-head_bits
    if head_bits == 7:
        assert rejected(table.look_up(words, lambda size: b"\0" * size), exact)
        assert rejected(table.look_up(words, lambda size: b"\xff" * size), exact)


class NoSign(tables.Table):
    """Forgets the sign."""

    def look_up(self, words, more):
        return np.abs(super().look_up(words, more))


class SignOfHead(tables.Table):
    """Takes the sign from a bit that the magnitude uses, too."""

    def look_up(self, words, more):
        draws = np.abs(super().look_up(words, more))
        return np.where(words >> np.uint64(60) & np.uint64(1), -draws, draws)


def test_mutants_are_rejected() -> None:
    parameter = Fraction(100)
    good = tabulate.gaussian(parameter, 191)
    table = tables.build("gaussian", parameter, good, 63)
    exact = law("gaussian", parameter, table.reach)
    assert not rejected(drawn(table), exact)
    for values in (
        good.values[1:],
        [0, *good.values],
        good.values[:25],
        [v - (v >> 8) for v in good.values],
    ):
        mutant = tables.build("gaussian", parameter, Cumulative(values, 191, Fraction(0)), 63)
        assert rejected(drawn(mutant), exact)
    parts = {name: getattr(table, name) for name in table.__dataclass_fields__}
    for kind in (NoSign, SignOfHead):
        assert rejected(drawn(kind(**parts)), exact), kind


def test_neighbouring_draws_and_blocks_are_independent() -> None:
    """Signs and magnitudes above the median: 16 cells of (draw, next draw)."""
    from scipy.stats import chi2_contingency

    draws = drawn(tables.gaussian(Fraction(100)))
    cells = 2 * (draws > 0) + (np.abs(draws) > 6)
    for step in (1, 2, 1 << 18):
        seen = np.bincount(4 * cells[:-step] + cells[step:], minlength=16).reshape(4, 4)
        assert chi2_contingency(seen).pvalue > LEVEL
    seen = np.bincount(4 * cells + cells, minlength=16).reshape(4, 4)
    assert chi2_contingency(seen + 1).pvalue < LEVEL
