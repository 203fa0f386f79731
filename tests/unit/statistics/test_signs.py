"""Counters of AGMS sketches against sums of signs, one by one."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest

from dpsql.statistics.signs import Counters, bytes_needed, column_sums
from dpsql.statistics.sketch_build import products

SEEDS = (b"a" * 32, b"b" * 32, b"c" * 32)


def sign(seed: bytes, value: str, estimator: int) -> int:
    digest = hashlib.shake_128(seed + value.encode()).digest(estimator // 8 + 1)
    return 1 - 2 * (digest[-1] >> estimator % 8 & 1)


def slow(keys: list[tuple[str, ...]], counts: list[int], factors: list[tuple[int, bytes]], n: int):
    found = []
    for s in range(n):
        total = 0
        for key, count in zip(keys, counts, strict=True):
            for at, seed in factors:
                count *= sign(seed, key[at], s)
            total += count
        found.append(total)
    return found


@pytest.mark.parametrize("height", [0, 1, 2, 3, 4, 5, 63, 64, 100, 1001])
def test_column_sums(height: int) -> None:
    rows = np.random.default_rng(height).integers(0, 1 << 63, size=(height, 3), dtype=np.uint64)
    bits = np.unpackbits(rows.view(np.uint8).reshape(height, 24), axis=1, bitorder="little")
    assert column_sums(rows).tolist() == bits.sum(axis=0, dtype=np.int64).tolist()


@pytest.mark.parametrize("columns", [0, 1, 2, 3])
def test_counters_are_sums_of_products_of_signs(columns: int) -> None:
    generator = random.Random(columns)
    keys = [tuple(str(generator.randrange(9)) for _ in range(columns)) for _ in range(200)]
    counts = [generator.choice([1, 1, 2, 7, 1000]) for _ in keys]
    factors = [(at, SEEDS[at]) for at in range(columns)]
    counters = Counters(factors, 130, 1 << 20)
    counters.add(keys[:77], counts[:77])
    counters.add(keys[77:], counts[77:])
    assert counters.values().tolist() == slow(keys, counts, factors, 130)


def test_two_families_of_one_column() -> None:
    keys, counts = [("x",), ("é",), ("",)], [3, 2, 1]
    factors = [(0, SEEDS[0]), (0, SEEDS[1])]
    counters = Counters(factors, 70, 1 << 20)
    counters.add(keys, counts)
    assert counters.values().tolist() == slow(keys, counts, factors, 70)


def test_memory_changes_nothing_but_time() -> None:
    keys = [(str(i), str(i % 300)) for i in range(3000)]
    counts = [1 + i % 3 for i in range(3000)]
    factors = [(0, SEEDS[0]), (1, SEEDS[1])]
    found = []
    for limit in (bytes_needed(500, 2), 1 << 24):
        counters = Counters(factors, 500, limit)
        counters.add(keys, counts)
        found.append(counters.values().tolist())
    assert found[0] == found[1]


def test_no_rows() -> None:
    counters = Counters([(0, SEEDS[0])], 10, 1 << 20)
    counters.add([], [])
    assert counters.values().tolist() == [0] * 10


def test_work_can_be_cancelled() -> None:
    def cancel() -> None:
        raise KeyboardInterrupt

    counters = Counters([(0, SEEDS[0])], 10, 1 << 20, cancel)
    with pytest.raises(KeyboardInterrupt):
        counters.add([("a",)], [1])


def test_products_are_exact_for_every_set() -> None:
    values = [[2**62, -1], [-(2**62), 3], [5, 7]]
    found = products(values, 2, lambda: None)
    assert found == [
        2,
        2**62 + 1,
        2**62 + 3,
        2**124 + 3,
        12,
        5 * 2**62 + 7,
        5 * 2**62 + 21,
        5 * 2**124 + 21,
    ]
