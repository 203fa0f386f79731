"""Sums of table draws against the exact laws, by convolving whole tables; mutants.

Laws are lists of integers in units of ``2**-BITS``, over ``-reach .. reach``; a convolution is a
product of two large integers, so nothing is rounded but the exact law, by less than a unit.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.core import rng, tables, tabulate, wide
from dpsql.core.rng import SystemNoise
from dpsql.engine.ticking import Ticking
from dpsql.errors import InternalError, InvalidParameter

BITS = 320
Law = list[int]


@pytest.fixture(autouse=True)
def _no_table_is_kept(monkeypatch) -> None:
    monkeypatch.setattr(wide, "_shared", {})
    monkeypatch.setattr(wide, "_kept", type(wide._kept)())


def of_table(table: tables.Table) -> Law:
    """The law that a table draws, exactly."""
    bits = table.head_bits + table.tail_bits
    tails = [
        int.from_bytes(table.tails[16 * k : 16 * k + 16], "little") for k in range(table.reach)
    ]
    values = [int(h) << table.tail_bits | t for h, t in zip(table.heads, tails, strict=True)]
    magnitude = [b - a for a, b in pairwise([0, *values, 1 << bits])]
    shift = BITS - bits - 1
    half = [m << shift for m in magnitude]
    return [*half[:0:-1], 2 * half[0], *half[1:]]


def convolved(first: Law, second: Law, factor: int) -> Law:
    """The law of ``X + factor * Y``."""
    spread = [0] * (factor * (len(second) - 1) + 1)
    spread[::factor] = second
    width = (2 * BITS + 40) // 8
    a, b = (b"".join(v.to_bytes(width, "little") for v in law) for law in (first, spread))
    product = int.from_bytes(a, "little") * int.from_bytes(b, "little")
    size = len(first) + len(spread) - 1
    found = product.to_bytes(width * size + 8, "little")
    parts = [int.from_bytes(found[width * k : width * (k + 1)], "little") for k in range(size)]
    return [p >> BITS for p in parts]  # rounded down: below one unit each


def drawn_law(parts: Sequence[tuple[int, tables.Table]]) -> Law:
    """The law of a sum of table draws."""
    law = of_table(parts[-1][1])
    for (factor, table), (wider, _) in zip(parts[-2::-1], parts[:0:-1], strict=True):
        law = convolved(of_table(table), law, wider // factor)
    return law


def exact_law(kind: str, parameter: Fraction, reach: int) -> Law:
    """``P(x)`` for ``x`` in ``-reach .. reach``, with its norm over all integers."""
    first = 1 / (2 * parameter) if kind == "gaussian" else 1 / parameter
    second = 2 * first if kind == "gaussian" else Fraction(0)
    work = BITS + 40
    weights = [1 << work]
    for low, _, _, _ in tabulate.weights(first, second, work):
        if low == 0 and len(weights) > reach:
            break
        weights.append(low)
    norm = 2 * sum(weights) - weights[0]
    half = [(w << BITS) // norm for w in weights[: reach + 1]]
    return [*half[:0:-1], *half]


def distance(found: Law, exact: Law) -> Fraction:
    """Total variation, up to 1e-80; what ``exact`` has beyond the reach counts."""
    beyond = max((1 << BITS) - sum(exact), 0)
    total = sum(abs(a - b) for a, b in zip(found, exact, strict=True)) + beyond
    return Fraction(total, 2 << BITS)


def measured(kind: str, law: wide.Wide, parts=None) -> Fraction:
    found = drawn_law(law.tables() if parts is None else parts)
    return distance(found, exact_law(kind, law.parameter, len(found) // 2))


SUMS = [
    ("gaussian", Fraction(65**2), 2),
    ("gaussian", Fraction(10**40, 10**36 - 7), 2),
    ("gaussian", Fraction(300**2) + Fraction(1, 3), 2),
    ("laplace", Fraction(33, 2), 2),
    ("laplace", Fraction(10**21 + 1, 10**19), 2),
    ("laplace", Fraction(600), 2),
]


@pytest.mark.parametrize(("kind", "parameter", "terms"), SUMS)
def test_whole_laws_are_within_the_stated_distance(kind, parameter, terms) -> None:
    law = getattr(wide, kind)(parameter)
    assert len(law.terms) == terms
    true = measured(kind, law)
    assert Fraction(1, 2**131) < true <= law.distance
    assert law.distance <= terms * Fraction(1, 2**126)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_a_law_of_four_draws_is_within_the_stated_distance(kind, monkeypatch) -> None:
    """Small factors, so that even a long sum can be convolved."""
    monkeypatch.setattr(wide, "_WIDEST_GAUSSIAN", 12**2)
    monkeypatch.setattr(wide, "_LARGEST_FACTOR", 1)
    monkeypatch.setattr(wide, "_WIDEST_LAPLACE", 3)
    monkeypatch.setattr(wide, "_LARGEST_BASE", 2)
    parameter = Fraction(80**2 + 1) if kind == "gaussian" else Fraction(91)
    law = getattr(wide, kind)(parameter)
    assert len(law.terms) == 4
    assert measured(kind, law) <= law.distance
    assert law.distance >= 4 * wide.TABLE_DISTANCE


def with_parameter(part: int, parameter: Fraction, law: wide.Wide, *, base: int = 0) -> list:
    terms = list(law.terms)
    terms[part] = replace(terms[part], parameter=parameter, base=base or terms[part].base)
    return replace(law, terms=tuple(terms)).tables()


def test_wrong_gaussian_sums_are_beyond_the_stated_distance() -> None:
    law = wide.gaussian(Fraction(70**2))
    low, rest = law.terms
    step = rest.factor
    good = law.tables()
    assert measured("gaussian", law, good) <= law.distance
    mutants = {
        "sigma 2 % too large": wide.gaussian(law.parameter * Fraction(102, 100) ** 2).tables(),
        "sigma 2 % too small": wide.gaussian(law.parameter * Fraction(98, 100) ** 2).tables(),
        "low part not taken off": with_parameter(1, law.parameter / step**2, law),
        "rest off by a billionth": with_parameter(
            1, rest.parameter * (1 + Fraction(1, 10**9)), law
        ),
        "factor too large by one": [good[0], (step + 1, good[1][1])],
        "factor doubled, variance right": [
            good[0],
            (2 * step, tables.gaussian((law.parameter - low.parameter) / (2 * step) ** 2)),
        ],
        "factor half as large again, variance right": [
            good[0],
            (
                step * 3 // 2,
                tables.gaussian((law.parameter - low.parameter) / (step * 3 // 2) ** 2),
            ),
        ],
        "second part forgotten": [good[1]],
    }
    found = {name: measured("gaussian", law, parts) for name, parts in mutants.items()}
    assert all(value > 1000 * law.distance for value in found.values()), found


def test_wrong_laplace_sums_are_beyond_the_stated_distance() -> None:
    law = wide.laplace(Fraction(50))
    digit, rest = law.terms
    good = law.tables()
    assert measured("laplace", law, good) <= law.distance
    narrow = tables.laplace_digit(digit.parameter, digit.base - 1)
    mutants = {
        "scale 2 % too large": wide.laplace(Fraction(51)).tables(),
        "digit of another scale": with_parameter(0, digit.parameter * 2, law),
        "rest of another scale": with_parameter(1, rest.parameter * (1 + Fraction(1, 10**9)), law),
        "digit one too short": [(1, narrow), good[1]],
        "one digit, no difference": [(1, tables.laplace(digit.parameter)), good[1]],
        "factor too large by one": [good[0], (good[1][0] + 1, good[1][1])],
    }
    found = {name: measured("laplace", law, parts) for name, parts in mutants.items()}
    assert all(value > 1000 * law.distance for value in found.values()), found


def theta_law(low: float, step: int, rest: float, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """The law of ``X + step * Y`` and the Gaussian of its variance, in floating point."""
    x = np.arange(-reach, reach + 1, dtype=float)

    def gaussian(variance: float) -> np.ndarray:
        weights = np.exp(-(x**2) / (2 * variance))
        return weights / weights.sum()

    y = gaussian(rest)
    spread = np.zeros(2 * step * reach + 1)
    spread[::step] = y
    middle = slice(step * reach, step * reach + 2 * reach + 1)
    return np.convolve(gaussian(low), spread)[middle], gaussian(low + step**2 * rest)


@pytest.mark.parametrize("low", [0.5, 0.8, 1.2])
@pytest.mark.parametrize("step", [2, 5, 16])
@pytest.mark.parametrize("rest", [0.7, 3.0, 30.0])
def test_the_theorem_holds_at_every_point_and_is_tight(low, step, rest) -> None:
    """With variances so small that the factor can be seen: at most ``(1 + e)/(1 - e)``."""
    reach = math.ceil(9 * step * math.sqrt(low + rest))
    found, exact = theta_law(low * step**2, step, rest, reach)
    tau_squared = 1 / (1 / low + 1 / rest)
    q = math.exp(-2 * math.pi**2 * tau_squared)
    e = 2 * q / (1 - q)
    near = exact > 1e-12
    ratio = np.log(found[near] / exact[near])
    assert np.abs(ratio).max() <= math.log((1 + e) / (1 - e)) + 1e-9
    assert e < 1e-6 or ratio.max() - ratio.min() >= e / 4


def test_the_constants_give_the_stated_distance_of_a_sum() -> None:
    assert Fraction(1, wide.LOW) + Fraction(1, wide.REST) <= Fraction(1, 5)
    pi = Fraction(314159265, 10**8)  # below
    q = Fraction(tabulate.exponential(10 * pi**2, 256)[1], 1 << 256)
    e = 2 * q / (1 - q)
    assert e / (1 - e) <= wide.SUM_DISTANCE
    assert (1 + e) / (1 - e) <= 1 + Fraction(1, 2**139)
    q = Fraction(tabulate.exponential(9 * pi**2, 256)[0], 1 << 256)
    assert 2 * q > wide.SUM_DISTANCE


def parameters(seed: int, least: float, most: float, count: int = 400) -> list[Fraction]:
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    span = math.log(most / least)
    return [
        Fraction(least * math.exp(span * source.random())) + Fraction(1, source.randrange(1, 10**9))
        for _ in range(count)
    ]


def test_every_variance_is_split_exactly_and_within_the_theorem() -> None:
    edges = [
        Fraction(64**2),
        Fraction(64**2) + Fraction(1, 10**30),
        wide.MAX_VARIANCE,
        Fraction(1, 10**30),
    ]
    edges += [Fraction(36 * 4**k) + d for k in range(4, 55) for d in (0, Fraction(1, 7), -1)]
    for variance in [*parameters(5, 1e-3, 2.0**113), *edges]:
        law = wide.gaussian(variance)
        assert law.terms[0].factor == 1
        assert sum(t.factor**2 * t.parameter for t in law.terms) == variance
        rest = variance
        for term, following in pairwise(law.terms):
            step, no_rest = divmod(following.factor, term.factor)
            assert no_rest == 0
            assert step >= 2
            assert term.shared
            rest = rest / step**2 - wide.LOW
            assert Fraction(step**2) / term.parameter + 1 / rest <= Fraction(1, 5)
        assert law.terms[-1].parameter == rest <= 64**2
        assert not law.terms[-1].shared
        assert len(law.terms) <= 1 + max(0, math.ceil(math.log2(float(variance) / 64**2) / 22) + 1)
        sums = len(law.terms) - 1
        assert law.distance == (sums + 1) * wide.TABLE_DISTANCE + sums * wide.SUM_DISTANCE


def test_all_variances_share_the_tables_of_low_parts() -> None:
    laws = [wide.gaussian(v) for v in parameters(6, 1e4, 1.6e15)]
    low = {t.parameter for law in laws for t in law.terms if t.shared}
    assert len(low) <= 11
    assert max(low) == 6 * 2**22
    assert max(len(law.terms) for law in laws) == 3


def test_every_scale_is_split_exactly() -> None:
    edges = [Fraction(16), Fraction(16) + Fraction(1, 10**30), wide.MAX_SCALE, Fraction(1, 10**9)]
    edges += [Fraction(2**k) + d for k in range(4, 54) for d in (0, Fraction(1, 7), -1)]
    for scale in [*parameters(7, 1e-3, 2.0**55 - 2), *edges]:
        law = wide.laplace(scale)
        assert law.terms[0].factor == 1
        for term, following in pairwise(law.terms):
            assert term.factor * term.base == following.factor
            assert 2 <= term.base <= 256
        assert all(t.parameter * t.factor == scale for t in law.terms)
        assert law.terms[-1].parameter <= 16
        assert len(law.terms) == 1 or law.terms[-1].parameter > 8
        assert law.distance == len(law.terms) * wide.TABLE_DISTANCE


@pytest.mark.parametrize("base", [1, 2, 3, 17])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5), Fraction(10**9)])
def test_a_digit_is_the_difference_of_two_residues(base, scale) -> None:
    """Against the sum over all pairs of residues, for ``r`` a fraction near ``exp(-1/scale)``."""
    low, high = tabulate.exponential(1 / scale, 300)
    r = Fraction(low + high, 2 << 300)
    masses = [r**g for g in range(base)]
    exact = {
        d: sum(masses[g] * masses[g - d] for g in range(base) if 0 <= g - d < base)
        for d in range(1 - base, base)
    }
    norm = sum(exact.values())
    law = tabulate.laplace_digit(scale, base, 191)
    assert len(law.values) == base - 1
    total = Fraction(0)
    for d, value in enumerate(law.values):
        total += exact[d] + (exact[-d] if d else 0)
        assert -Fraction(1, 2**100) <= total / norm * 2**191 - value < 2
    assert law.distance <= base * Fraction(3, 2**191)


class Cancelled(Exception):
    """What a tick raises."""


def cancel() -> None:
    raise Cancelled


def test_draws_fit_64_bits_at_the_largest_parameters() -> None:
    for law in (wide.gaussian(wide.MAX_VARIANCE), wide.laplace(wide.MAX_SCALE)):
        reach = sum(factor * table.reach for factor, table in law.tables())
        assert 2**60 < reach <= wide.REACH


@pytest.mark.parametrize(
    ("law", "largest"), [(wide.gaussian, wide.MAX_VARIANCE), (wide.laplace, wide.MAX_SCALE)]
)
def test_what_does_not_fit_64_bits_is_refused_before_anything_is_drawn(law, largest) -> None:
    with pytest.raises(InvalidParameter, match="too large for 64 bits"):
        law(largest + 1)
    for parameter in (Fraction(0), Fraction(-1)):
        with pytest.raises(InternalError):
            law(parameter)
    noise = SystemNoise()
    draws = noise.gaussians if law is wide.gaussian else noise.laplaces
    with pytest.raises(InvalidParameter):
        draws(largest + 1, 0)


def test_sums_that_would_not_fit_and_tables_that_are_off_are_never_used(monkeypatch) -> None:
    law = wide.gaussian(Fraction(10**6))
    with monkeypatch.context() as patch:
        patch.setattr(wide, "REACH", 13_000)
        with pytest.raises(InternalError, match="64 bits"):
            law.tables()
    monkeypatch.setattr(wide, "_kept", type(wide._kept)())
    monkeypatch.setattr(wide, "TABLE_DISTANCE", Fraction(1, 2**129))
    with pytest.raises(InternalError, match="further from its law"):
        law.tables()


def test_blocks_cover_the_count_and_use_fresh_words_for_every_term(monkeypatch) -> None:
    monkeypatch.setattr(rng, "BLOCK", 1000)
    sizes: list[int] = []
    urandom = rng.os.urandom

    def record(size: int) -> bytes:
        sizes.append(size)
        return urandom(size)

    monkeypatch.setattr(rng.os, "urandom", record)
    ticks: list[int] = []
    noise = SystemNoise()
    for draws, parameter, terms in ((noise.gaussians, 10**14, 3), (noise.laplaces, 10**6, 3)):
        sizes.clear()
        ticks.clear()
        blocks = list(draws(Fraction(parameter), 2500, lambda: ticks.append(1)))
        assert [len(b) for b in blocks] == [1000, 1000, 500]
        assert all(b.dtype == np.int64 and b.flags.writeable for b in blocks)
        assert [s for s in sizes if s != 16] == [8000] * 2 * terms + [4000] * terms
        assert len(ticks) >= 3 * terms
        assert len(np.unique(np.concatenate(blocks))) > 2000
        assert list(draws(Fraction(parameter), 0)) == []
    assert len(wide.gathered(noise.gaussians(Fraction(10**14), 2500), 2500)) == 2500
    with pytest.raises(InternalError):
        wide.gathered(noise.gaussians(Fraction(10**14), 2400), 2500)


def test_the_sum_weighs_each_term_by_its_factor(monkeypatch) -> None:
    words = itertools.cycle([2, 3, 5])
    monkeypatch.setattr(
        tables.Table, "look_up", lambda self, w, more: np.full(len(w), next(words), dtype=np.int64)
    )
    law = wide.gaussian(Fraction(10**14))
    one, two, three = (t.factor for t in law.terms)
    (block,) = SystemNoise().gaussians(Fraction(10**14), 4)
    assert block.tolist() == [2 * one + 3 * two + 5 * three] * 4


def test_ticks_cancel_and_leave_no_table_half_made() -> None:
    noise = SystemNoise()
    for draws, parameter in ((noise.gaussians, 10**14), (noise.laplaces, 10**6)):
        with pytest.raises(Cancelled):
            next(draws(Fraction(parameter), 10, cancel))
    assert not wide._shared
    assert not wide._kept
    with pytest.raises(Cancelled):
        next(Ticking(noise, cancel).gaussians(Fraction(2), 10))
    with pytest.raises(Cancelled):
        next(Ticking(noise, cancel).laplaces(Fraction(2), 10))
    assert len(next(Ticking(noise, cancel).laplaces(Fraction(2), 10, lambda: None))) == 10


def test_kept_tables_are_few_and_the_shared_ones_stay() -> None:
    for k in range(300):
        wide.gaussian(Fraction(10**14 + 10**11 * k)).tables()
        if k == 0:
            first = wide.gaussian(Fraction(10**14)).tables()
    again = wide.gaussian(Fraction(10**14)).tables()
    assert again[0][1] is first[0][1]
    assert again[2][1] is not first[2][1]
    assert again[2][1] is wide.gaussian(Fraction(10**14)).tables()[2][1]
    assert len(wide._kept) == wide._MOST_KEPT
    for k in range(3, 12):
        wide.gaussian(Fraction(36 * 4**k + 4096)).tables()
    size = sum(t.heads.nbytes + t.guide.nbytes + len(t.tails) for t in wide._shared.values())
    assert size < 12 * 2**20
    largest = wide.laplace(Fraction(16)).tables()[0][1]
    one = largest.heads.nbytes + largest.guide.nbytes + len(largest.tails)
    assert wide._MOST_KEPT * one < 13 * 10**6


def test_what_a_price_needs_is_known_without_tables(monkeypatch) -> None:
    monkeypatch.setattr(wide, "_table", None)
    law = wide.gaussian(Fraction(4 * 10**7) ** 2)
    assert law.total_distance(21 * 10**6) < Fraction(1, 10**30)
    assert law.delta(21 * 10**6, Fraction(1)) < Fraction(1, 10**29)
    assert law.delta(2**140, Fraction(1)) == law.total_distance(2**140) == 1
    assert law.delta(5, Fraction(1)) == 20 * law.distance
