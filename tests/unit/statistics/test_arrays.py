"""The array kernel's refusals and primitives; no database."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.statistics.arrays import (
    BLOCK,
    Engine,
    Memory,
    NotInArrays,
    Rows,
    Table,
    group,
    sort_in_parts,
    total,
)


def engine(domains: dict[int, int], limit: int = 1 << 30) -> Engine:
    return Engine(domains, Memory(limit), lambda: None)


def test_memory_refuses_before_it_is_taken() -> None:
    memory = Memory(100)
    memory.hold(60)
    with pytest.raises(NotInArrays):
        memory.need(41)
    memory.release(30)
    memory.need(70)
    assert memory.peak == 100


def test_counts_past_two_to_the_62_are_refused() -> None:
    ones = np.zeros(1, dtype=np.int16)
    big = Table({0: ones}, np.array([2**40]), 1)
    rows = Rows(engine({0: 1}), big, Table({0: ones}, np.array([2**40]), 1), (0,))
    with pytest.raises(NotInArrays):
        total(rows)


@pytest.mark.parametrize("domain", [7, 3000, 40_000])
def test_group_equals_a_dictionary(domain: int) -> None:
    random = np.random.default_rng(domain)
    n = 30_000
    left = Table({a: random.integers(0, domain, n).astype(np.int32) for a in (0, 1)}, None, n)
    right = Table(
        {a: random.integers(0, domain, 500).astype(np.int32) for a in (1, 2)},
        random.integers(1, 9, 500),
        500,
    )
    expected: dict[tuple[int, int], int] = {}
    by_key: dict[int, list[int]] = {}
    for r, key in enumerate(right.columns[1].tolist()):
        by_key.setdefault(key, []).append(r)
    for a, b in zip(left.columns[0].tolist(), left.columns[1].tolist(), strict=True):
        for r in by_key.get(b, ()):
            place = (a, int(right.columns[2][r]))
            weight = 0 if right.weight is None else int(right.weight[r])
            expected[place] = expected.get(place, 0) + weight
    table, maximum = group(
        Rows(engine(dict.fromkeys(range(3), domain)), left, right, (1,)), (0, 2), keep=True
    )
    assert table is not None
    found = dict(
        zip(
            zip(table.columns[0].tolist(), table.columns[2].tolist(), strict=True),
            [1] * table.rows if table.weight is None else table.weight.tolist(),
            strict=True,
        )
    )
    assert found == expected
    assert maximum == max(expected.values())


def test_sort_in_parts_sorts() -> None:
    keys = np.random.default_rng(1).integers(0, 1 << 40, 20 * BLOCK)
    expected = np.sort(keys)
    ticks: list[int] = []
    sort_in_parts(keys, lambda: ticks.append(1))
    assert (keys == expected).all()
    assert len(ticks) > 2
