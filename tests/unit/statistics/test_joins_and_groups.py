"""Joins and groups of the array kernel against dictionaries, in both kinds of loops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.statistics import limits
from dpsql.statistics.arrays import Memory, NotInArrays, Table
from dpsql.statistics.grouping import group, top
from dpsql.statistics.indexing import Engine
from dpsql.statistics.joining import Join, collect, total
from tests.kernel_library import TINY, loops_named

Row = tuple[int, ...]
BOTH = pytest.mark.parametrize("kind", ["native", "portable"])
SIZES = pytest.mark.parametrize("sizes", ["usual", "tiny"])


@pytest.fixture(autouse=True)
def limits_as_they_were() -> Iterator[None]:
    before = {name: getattr(limits, name) for name in TINY}
    yield
    for name, value in before.items():
        setattr(limits, name, value)


def use(sizes: str) -> None:
    for name, value in (TINY if sizes == "tiny" else {}).items():
        setattr(limits, name, value)


def engine(kind: str, domains: dict[int, int], limit: int = 1 << 30) -> Engine:
    return Engine(domains, Memory(limit), lambda: None, loops_named(kind))


def table(names: tuple[int, ...], rows: list[Row], weights: list[int] | None, kind: Any) -> Table:
    columns = {a: np.array([r[i] for r in rows], dtype=kind) for i, a in enumerate(names)}
    weight = None if weights is None else np.array(weights[: len(rows)], dtype=np.int64)
    return Table(columns, weight, len(rows))


def joined(left: Table, right: Table | None) -> list[tuple[dict[int, int], int]]:
    """All rows of the join as dictionaries, with their weights."""

    def rows(t: Table) -> list[tuple[dict[int, int], int]]:
        lists = {a: c.tolist() for a, c in t.columns.items()}
        weights = [1] * t.rows if t.weight is None else t.weight.tolist()
        return [({a: lists[a][i] for a in lists}, weights[i]) for i in range(t.rows)]

    if right is None:
        return rows(left)
    return [
        (x | y, u * v)
        for x, u in rows(left)
        for y, v in rows(right)
        if all(x[a] == y[a] for a in x.keys() & y.keys())
    ]


def as_counter(found: Table | None, output: tuple[int, ...]) -> Counter[Row]:
    assert found is not None
    counts: Counter[Row] = Counter()
    for row, weight in joined(found, None):
        counts[tuple(row[a] for a in output)] += weight
    return counts


@st.composite
def joins(draw: st.DrawFn) -> tuple[dict[int, int], Table, Table | None, tuple[int, ...]]:
    """Draw two tables of up to three attributes each, and an output."""
    domains = {a: draw(st.sampled_from([1, 2, 5, 9])) for a in range(4)}
    kinds = [np.int16, np.int32]
    sides = []
    for _ in range(2):
        names = tuple(sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=3))))
        row = st.tuples(*(st.integers(0, domains[a] - 1) for a in names))
        rows = draw(st.lists(row, max_size=12))
        if draw(st.booleans()):
            rows = sorted(set(rows))
        weighted = (
            draw(st.lists(st.integers(0, 4), min_size=12, max_size=12))
            if draw(st.booleans())
            else None
        )
        sides.append(table(names, rows, weighted, draw(st.sampled_from(kinds))))
    left, right = sides[0], None if draw(st.integers(0, 3)) == 0 else sides[1]
    names_all = sorted(left.columns.keys() | (right.columns.keys() if right else set()))
    output = tuple(a for a in names_all if draw(st.booleans())) or (names_all[0],)
    return domains, left, right, output


def shared(left: Table, right: Table | None) -> tuple[int, ...]:
    return tuple(sorted(left.columns.keys() & right.columns.keys())) if right else ()


@BOTH
@SIZES
@settings(max_examples=60, deadline=None)
@given(case=joins(), keep=st.booleans(), largest=st.booleans())
def test_group_equals_a_dictionary(
    kind: str,
    sizes: str,
    case: tuple[dict[int, int], Table, Table | None, tuple[int, ...]],
    keep: bool,
    largest: bool,
) -> None:
    use(sizes)
    domains, left, right, output = case
    expected: Counter[Row] = Counter()
    for row, weight in joined(left, right):
        key = tuple(row[a] for a in output)
        expected[key] = max(expected[key], weight) if largest else expected[key] + weight
    e = engine(kind, domains)
    join = Join(e, left, right, shared(left, right))
    found, maximum = group(join, output, keep=keep, largest=largest)
    assert maximum == max(expected.values(), default=0)
    if keep:
        assert as_counter(found, output) == +expected
        assert found is not None
        assert found.rows == len(+expected)
    if keep and not largest and domains[output[0]] <= limits.MOST_CELLS:
        best, again = group(join, output, keep=True, best=output[:1])
        per_value: Counter[Row] = Counter()
        for key, count in expected.items():
            per_value[key[:1]] = max(per_value[key[:1]], count)
        assert as_counter(best, output[:1]) == +per_value
        assert again == maximum
    held = sum(i.held for t in (left, right) if t for i in t.indexes.values())
    assert e.memory.used == held


@BOTH
@SIZES
@settings(max_examples=40, deadline=None)
@given(case=joins())
def test_total_and_collect_equal_the_join(
    kind: str, sizes: str, case: tuple[dict[int, int], Table, Table | None, tuple[int, ...]]
) -> None:
    use(sizes)
    domains, left, right, output = case
    rows = joined(left, right)
    e = engine(kind, domains)
    join = Join(e, left, right, shared(left, right))
    assert total(join) == sum(weight for _, weight in rows)
    if right is not None:
        bag = collect(join, output)
        expected: Counter[Row] = Counter()
        for row, weight in rows:
            expected[tuple(row[a] for a in output)] += weight
        assert +as_counter(bag, output) == +expected
        assert bag.rows == len(rows)


@BOTH
@SIZES
@settings(max_examples=40, deadline=None)
@given(case=joins())
def test_top_equals_the_largest_pair(
    kind: str, sizes: str, case: tuple[dict[int, int], Table, Table | None, tuple[int, ...]]
) -> None:
    domains, left, right, _ = case
    if right is None:
        return
    use(sizes)
    join = Join(engine(kind, domains), left, right, shared(left, right))
    expected = max((weight for _, weight in joined(left, right)), default=0)
    assert top(join) == expected


@BOTH
@pytest.mark.parametrize("domain", [7, 3000, 40_000])
def test_group_of_many_rows(kind: str, domain: int) -> None:
    random = np.random.default_rng(domain)
    n = 30_000
    left = Table({a: random.integers(0, domain, n).astype(np.int32) for a in (0, 1)}, None, n)
    right = Table(
        {a: random.integers(0, domain, 500).astype(np.int32) for a in (1, 2)},
        random.integers(1, 9, 500),
        500,
    )
    expected: Counter[Row] = Counter()
    by_key: dict[int, list[int]] = {}
    for r, key in enumerate(right.columns[1].tolist()):
        by_key.setdefault(key, []).append(r)
    for a, b in zip(left.columns[0].tolist(), left.columns[1].tolist(), strict=True):
        for r in by_key.get(b, ()):
            weight = 0 if right.weight is None else int(right.weight[r])
            expected[a, int(right.columns[2][r])] += weight
    join = Join(engine(kind, dict.fromkeys(range(3), domain)), left, right, (1,))
    found, maximum = group(join, (0, 2), keep=True)
    assert as_counter(found, (0, 2)) == expected
    assert maximum == max(expected.values())


@BOTH
def test_wide_keys_are_hashed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three output attributes whose keys pass any dense accumulator; the hash table must grow."""
    random = np.random.default_rng(3)
    domains = {0: 3, 1: 50_000, 2: 60_000, 3: 4}
    n = 20_000
    left = Table({a: random.integers(0, domains[a], n).astype(np.int32) for a in (0, 3)}, None, n)
    right = Table(
        {a: random.integers(0, domains[a], 900).astype(np.int32) for a in (1, 2, 3)}, None, 900
    )
    join = Join(engine(kind, domains), left, right, (3,))
    found, maximum = group(join, (0, 1, 2), keep=True)
    sides = Counter(zip(left.columns[0].tolist(), left.columns[3].tolist(), strict=True))
    expected: Counter[Row] = Counter()
    rows = zip(*(right.columns[a].tolist() for a in (1, 2, 3)), strict=True)
    for b, c, d in rows:
        for a in range(domains[0]):
            expected[a, b, c] += sides[a, d]
    assert as_counter(found, (0, 1, 2)) == +expected
    assert maximum == max(expected.values())


@BOTH
@pytest.mark.parametrize("weights", [(2**40, 2**40), (2**62, 1), (2**31, 2**31)])
def test_counts_past_two_to_the_62_are_refused(kind: str, weights: tuple[int, int]) -> None:
    ones = np.zeros(1, dtype=np.int16)
    left, right = (Table({0: ones}, np.array([w]), 1) for w in weights)
    for output in ((), (0,)):
        join = Join(engine(kind, {0: 1}), left, right, (0,))
        with pytest.raises(NotInArrays):
            total(join) if not output else group(join, output, keep=False)


@BOTH
def test_sums_past_two_to_the_62_are_refused(kind: str) -> None:
    n = 40
    column = np.zeros(n, dtype=np.int16)
    left = Table({0: column}, np.full(n, 2**58), n)
    with pytest.raises(NotInArrays):
        group(Join(engine(kind, {0: 1}), left, None, ()), (0,), keep=True)
    left.weight = np.full(n, 2**56)
    _, most = group(Join(engine(kind, {0: 1}), left, None, ()), (0,), keep=True)
    assert most == n * 2**56


@BOTH
def test_ticks_come_often(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece of work of about a block's size is followed by a tick."""
    for name in ("BLOCK", "BUDGET", "ROOM"):
        monkeypatch.setattr(limits, name, 1000)
    random = np.random.default_rng(5)
    n = 50_000
    domains = {0: 300, 1: 400, 2: 500}
    ticks: list[int] = []
    e = Engine(domains, Memory(1 << 30), lambda: ticks.append(1), loops_named(kind))
    left = Table({a: random.integers(0, domains[a], n).astype(np.int16) for a in (0, 1)}, None, n)
    right = Table({a: random.integers(0, domains[a], n).astype(np.int16) for a in (1, 2)}, None, n)
    pairs = int(
        (np.bincount(left.columns[1], minlength=400) * np.bincount(right.columns[1], minlength=400))
        .astype(np.int64)
        .sum()
    )
    group(Join(e, left, right, (1,)), (0, 2), keep=False)
    assert len(ticks) >= math.floor(pairs / 3000)


@BOTH
def test_a_memory_bound_is_kept(kind: str) -> None:
    random = np.random.default_rng(7)
    n = 10_000
    left = Table({a: random.integers(0, 5000, n).astype(np.int16) for a in (0, 1)}, None, n)
    e = engine(kind, {0: 5000, 1: 5000}, limit=100_000)
    with pytest.raises(NotInArrays):
        group(Join(e, left, left, (0, 1)), (0, 1), keep=True)
    assert e.memory.peak <= 100_000
