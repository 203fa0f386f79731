"""Tables of noise against decimal arithmetic, exhaustively where words are short; mutants."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.core import rng, tables, tabulate
from dpsql.core.tabulate import Cumulative
from dpsql.errors import InternalError, InvalidParameter

BITS = 191
DIGITS = 130
LAWS = [
    *(
        ("gaussian", Fraction(*p))
        for p in [
            (1, 100),
            (1, 3),
            (1, 1),
            (22, 7),
            (10007, 4),
            (90000, 1),
            (10**40 + 1, 10**39 + 7),
        ]
    ),
    *(("laplace", Fraction(*p)) for p in [(1, 100), (1, 3), (1, 1), (22, 7), (40, 1)]),
]


def decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


def exact_law(kind: str, parameter: Fraction, reach: int) -> list[Decimal]:
    """``P(|X| = k)`` up to well beyond ``reach``, each weight by its own exponential."""
    with localcontext(prec=DIGITS):
        scale = decimal(parameter)
        weights = []
        k = 0
        while k <= reach + 2 or weights[-1] > Decimal(2) ** -220:
            power = Decimal(k * k) / (2 * scale) if kind == "gaussian" else Decimal(k) / scale
            weights.append((-power).exp())
            k += 1
        norm = 2 * sum(weights) - 1
        return [weights[0] / norm, *(2 * w / norm for w in weights[1:])]


def distance(values: list[int], bits: int, law: list[Decimal]) -> Decimal:
    """The total variation distance of a tabulated magnitude from ``law``, by its definition."""
    with localcontext(prec=DIGITS):
        edges = [0, *values, 1 << bits]
        table = [Decimal(b - a) / Decimal(1 << bits) for a, b in pairwise(edges)]
        table += [Decimal(0)] * (len(law) - len(table))
        return sum(abs(p - q) for p, q in zip(table, law, strict=True)) / 2


@pytest.mark.parametrize(("kind", "parameter"), LAWS)
def test_the_stated_distance_covers_the_true_one(kind, parameter) -> None:
    law = getattr(tabulate, kind)(parameter, BITS)
    exact = exact_law(kind, parameter, len(law.values))
    true = distance(law.values, BITS, exact)
    with localcontext(prec=DIGITS):
        stated = decimal(law.distance)
        assert true <= stated
        assert stated <= Decimal(2) ** -128 * Decimal("1.01")
        # tight: the tail is most of it, so the bound is no mere constant
        tail = sum(exact[len(law.values) + 1 :])
        assert stated <= 2 * tail + len(law.values) * Decimal(2) ** (1 - BITS) + Decimal(2) ** -250


@pytest.mark.parametrize(("kind", "parameter"), LAWS)
def test_every_entry_is_rounded_down_by_less_than_two_units(kind, parameter) -> None:
    law = getattr(tabulate, kind)(parameter, BITS)
    exact = exact_law(kind, parameter, len(law.values))[: len(law.values) + 1]
    with localcontext(prec=DIGITS):
        norm, total = sum(exact), Decimal(0)
        for value, p in zip(law.values, exact, strict=False):
            total += p
            assert 0 <= total / norm * Decimal(1 << BITS) - value < 2
    assert law.values == sorted(law.values)
    assert all(0 <= value < 1 << BITS for value in law.values)


MUTANTS = {
    "off by one": lambda v: v[1:],
    "one more": lambda v: [0, *v],
    "tail cut at half the reach": lambda v: v[: len(v) // 2],
    "last entry gone": lambda v: v[:-8],
    "one entry wrong in bit 120": lambda v: [v[0], v[1] + (1 << (BITS - 120)), *v[2:]],
    "zero counted twice": lambda v: [int(x + (v[0] * ((1 << BITS) - x) >> BITS)) for x in v],
}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_a_wrong_table_is_beyond_the_stated_distance(kind, mutant) -> None:
    law = getattr(tabulate, kind)(Fraction(22, 7), BITS)
    exact = exact_law(kind, Fraction(22, 7), len(law.values) + 1)
    wrong = MUTANTS[mutant](law.values)
    with localcontext(prec=DIGITS):
        assert distance(wrong, BITS, exact) > decimal(law.distance)


@pytest.mark.parametrize("bits", [1, 20, 300])
@pytest.mark.parametrize(
    "x", [0, Fraction(1, 10**9), Fraction(1, 3), Fraction(1, 2), 1, Fraction(22, 7), 64, 299, 10**6]
)
def test_exponential_is_inside_its_interval(x, bits) -> None:
    low, high = tabulate.exponential(Fraction(x), bits)
    with localcontext(prec=400):
        true = (-decimal(Fraction(x))).exp() * Decimal(1 << bits)
        assert low <= true <= high
    assert 0 <= high - low <= 40_000


@pytest.mark.parametrize("bits", [3, 12, 40])
@pytest.mark.parametrize(("kind", "parameter"), LAWS)
def test_weights_are_inside_their_intervals_at_low_precision(kind, parameter, bits) -> None:
    """Where rounding is coarse, so that one wrong direction leaves the interval."""
    first = 1 / (2 * parameter) if kind == "gaussian" else 1 / parameter
    second = 2 * first if kind == "gaussian" else Fraction(0)
    bounds = tabulate.weights(first, second, bits)
    with localcontext(prec=60):
        one, a, b = Decimal(1 << bits), decimal(first), decimal(second)
        for k, (low, high, ratio_low, ratio_high) in zip(range(1, 400), bounds, strict=False):
            true = (-(k * a + Decimal(k * (k - 1) // 2) * b)).exp() * one
            assert low <= true <= high
            assert ratio_low <= (-(a + k * b)).exp() * one <= ratio_high


def reference(law: Cumulative, head_bits: int, word: int, tail: int) -> int:
    """One draw as the definition says, without any table."""
    u = (word >> (64 - head_bits) << (law.bits - head_bits)) | tail
    magnitude = sum(value <= u for value in law.values)
    return -magnitude if word & 1 else magnitude


class Tail:
    """Gives one tail, and counts how often it is asked."""

    def __init__(self, tail: int, bits: int) -> None:
        self.bytes = (tail << (128 - bits) | ((1 << (128 - bits)) - 1)).to_bytes(16, "little")
        self.asked = 0

    def __call__(self, size: int) -> bytes:
        assert size == 16
        self.asked += 1
        return self.bytes


def enumerate_law(table: tables.Table) -> tuple[Counter, int]:
    """Every head, sign and tail once: the drawn law, in units of ``2**-(bits + 1)``."""
    words = np.array(
        [
            (head << (64 - table.head_bits)) | ((1 << (64 - table.head_bits)) - 2) | sign
            for head in range(1 << table.head_bits)
            for sign in (0, 1)
        ],
        dtype=np.uint64,
    )
    counts: Counter = Counter()
    asked = 0
    for tail in range(1 << table.tail_bits):
        more = Tail(tail, table.tail_bits)
        counts.update(table.look_up(words, more).tolist())
        asked += more.asked
    return counts, asked


def tabulated(law: Cumulative) -> Counter:
    """What `enumerate_law` must find."""
    edges = [0, *law.values, 1 << law.bits]
    counts: Counter = Counter()
    for k, (a, b) in enumerate(pairwise(edges)):
        counts[k] += b - a
        counts[-k] += b - a
    return +counts


SHORT = [("gaussian", Fraction(3), 6, 5), ("gaussian", Fraction(40), 4, 8), ("laplace", Fraction(2), 7, 4),
         ("laplace", Fraction(9), 11, 2), ("gaussian", Fraction(5), 12, 0)]  # fmt: skip


@pytest.mark.parametrize(("kind", "parameter", "head_bits", "tail_bits"), SHORT)
def test_short_words_give_the_tabulated_law_exactly(kind, parameter, head_bits, tail_bits) -> None:
    law = getattr(tabulate, kind)(parameter, head_bits + tail_bits)
    table = tables.build(kind, parameter, law, head_bits)
    counts, asked = enumerate_law(table)
    assert counts == tabulated(law)
    assert asked > 0


def test_mutants_of_the_look_up_are_caught() -> None:
    law = tabulate.gaussian(Fraction(3), 11)
    table = tables.build("gaussian", Fraction(3), law, 6)

    class NoSecondLook(tables.Table):
        def _second_look(self, head, end, more):
            return end

    class NoSign(tables.Table):
        def look_up(self, words, more):
            return abs(super().look_up(words, more))

    class WrongSide(tables.Table):
        def _tail(self, k):
            return super()._tail(k) + 1

    parts = {name: getattr(table, name) for name in table.__dataclass_fields__}
    assert enumerate_law(tables.Table(**parts))[0] == tabulated(law)
    for mutant in (NoSecondLook, NoSign, WrongSide):
        assert enumerate_law(mutant(**parts))[0] != tabulated(law), mutant
    for change in (
        {"heads": table.heads + 1},
        {"guide": np.where(table.guide < 0, 1, table.guide)},
    ):
        assert enumerate_law(replace(table, **change))[0] != tabulated(law), change


@pytest.mark.parametrize(("kind", "parameter"), LAWS)
def test_full_tables_agree_with_the_definition_at_every_threshold(kind, parameter) -> None:
    """Words just below, at and above each threshold, with tails on either side of it."""
    law = getattr(tabulate, kind)(parameter, BITS)
    table = getattr(tables, kind)(parameter)
    assert (table.reach, table.distance) == (len(law.values), law.distance)
    ks = range(0, len(law.values), max(1, len(law.values) // 40))
    for value in (law.values[k] for k in ks):
        head, tail = value >> 128, value & ((1 << 128) - 1)
        for h in (head - 1, head, head + 1):
            if not 0 <= h < 1 << 63:
                continue
            for t in {max(tail - 1, 0), tail, min(tail + 1, (1 << 128) - 1)}:
                words = [h << 1, h << 1 | 1]
                more = Tail(t, 128)
                drawn = table.look_up(np.array(words, dtype=np.uint64), more)
                assert drawn.tolist() == [reference(law, 63, word, t) for word in words]
                assert h != head or more.asked == 2


def test_extreme_words_reach_the_ends() -> None:
    table = tables.gaussian(Fraction(25))
    words = np.array([0, 1, 2**64 - 2, 2**64 - 1], dtype=np.uint64)
    assert table.look_up(words, lambda size: b"\xff" * size).tolist() == [
        0,
        0,
        table.reach,
        -table.reach,
    ]
    assert 13 * 5 <= table.reach <= 14 * 5


def test_blocks_cover_the_count_and_tick_before_each(monkeypatch) -> None:
    monkeypatch.setattr(rng, "BLOCK", 1000)
    ticks: list[int] = []
    noise, table = rng.SystemNoise(), tables.gaussian(Fraction(4))
    sizes = [len(b) for b in noise.blocks(table, 2500, lambda: ticks.append(1))]
    assert (sizes, len(ticks)) == ([1000, 1000, 500], 3)
    assert list(noise.blocks(table, 0)) == []
    blocks = list(noise.blocks(table, 2000))
    assert blocks[0].dtype == np.int64
    assert blocks[0].flags.writeable
    assert not np.array_equal(*blocks)


def test_blocks_take_all_bits_from_the_operating_system(monkeypatch) -> None:
    sizes: list[int] = []
    urandom = rng.os.urandom

    def record(size: int) -> bytes:
        sizes.append(size)
        return urandom(size)

    monkeypatch.setattr(rng.os, "urandom", record)
    table = tables.build("short", Fraction(9), tabulate.gaussian(Fraction(9), 131), 3)
    blocks = list(rng.SystemNoise().blocks(table, 1000))
    assert len(blocks[0]) == 1000
    assert sizes[0] == 8000
    # heads of three bits tie in some of eight buckets: fewer than 200 of 1000 below 1e-9
    assert set(sizes[1:]) == {16}
    assert len(sizes) > 200


class Cancelled(Exception):
    """What a tick raises."""


def cancel() -> None:
    raise Cancelled


def test_ticks_cancel() -> None:
    table = tables.gaussian(Fraction(4))
    with pytest.raises(Cancelled):
        next(rng.SystemNoise().blocks(table, 10, cancel))
    with pytest.raises(Cancelled):
        tables.gaussian(Fraction(10**6), cancel)
    with pytest.raises(Cancelled):
        tables.build("x", Fraction(4), tabulate.gaussian(Fraction(4), 191), 63, cancel)


def test_what_to_add_to_delta() -> None:
    table = tables.gaussian(Fraction(100))
    million = 10**6
    assert table.total_distance(million) == million * table.distance
    for epsilon in (Fraction(0), Fraction(1, 2), Fraction(1), Fraction(29, 10)):
        least = (1 + math.exp(epsilon)) * million * float(table.distance)
        assert least * (1 - 1e-12) <= table.delta(million, epsilon) <= 3.1 * least
    assert table.delta(10**8, Fraction(1)) < Fraction(1, 10**29)
    assert table.delta(2**140, Fraction(1)) == table.total_distance(2**140) == 1


@pytest.mark.parametrize("law", [tables.gaussian, tables.laplace])
def test_what_no_table_can_hold_is_refused(law) -> None:
    with pytest.raises(InvalidParameter, match="too large for a table"):
        law(Fraction(10**12))
    for parameter in (Fraction(0), Fraction(-1)):
        with pytest.raises(InternalError):
            law(parameter)


def test_the_limit_holds_while_tabulating(monkeypatch) -> None:
    monkeypatch.setattr(tabulate, "MAX_ENTRIES", 133)
    assert tables.gaussian(Fraction(9 * 9)).reach < 133
    with pytest.raises(InvalidParameter, match="too large for a table"):
        tables.gaussian(Fraction(102, 10) ** 2)


@pytest.mark.parametrize("head_bits", [0, 64])
def test_words_that_do_not_fit_are_refused(head_bits) -> None:
    with pytest.raises(InternalError):
        tables.build("x", Fraction(1), tabulate.gaussian(Fraction(1), 70), head_bits)
