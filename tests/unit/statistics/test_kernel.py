"""Whole plans on arrays: under every memory bound, and nothing outlives them."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dpsql.counted import Counts
from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence
from dpsql.query.elimination import Plan, make_plan
from dpsql.relation import Column, Relation
from dpsql.statistics import kernel, limits
from dpsql.statistics.arrays import Memory, NotInArrays, OutOfMemory
from tests.expressions import parsed
from tests.kernel_library import loops_named

ROWS = 3000
CODES = 60


def cycle(length: int) -> Plan:
    """All boundaries and the answer of a cycle of binary relations."""
    occurrences = []
    for i in range(length):
        columns = (Column("f", 23, "integer", True), Column("t", 23, "integer", True))
        relation = Relation(i + 1, "public", f"e{i}", True, i + 1, columns)
        uses = (
            AttributeUse(i, parsed(f"r{i}.f"), "f"),
            AttributeUse((i + 1) % length, parsed(f"r{i}.t"), "t"),
        )
        occurrences.append(Occurrence(i, relation, uses))
    query = JoinQuery(
        tuple(occurrences), tuple(Attribute(a, "integer", True) for a in range(length))
    )
    shape = query.shape()
    boundaries = [
        Boundary(frozenset(inside), shape.boundary(frozenset(inside)))
        for k in range(1, length)
        for inside in itertools.combinations(range(length), k)
    ]
    return make_plan(query, boundaries)


def data(length: int) -> dict[int, tuple[dict[int, Any], int]]:
    random = np.random.default_rng(length)
    return {
        i: (
            {
                a: random.integers(1000, 1000 + CODES, ROWS).astype(np.int32)
                for a in (i, (i + 1) % length)
            },
            ROWS,
        )
        for i in range(length)
    }


def run(plan: Plan, length: int, limit: int, kind: str) -> tuple[Counts, Memory]:
    tables = data(length)
    memory = Memory(limit)
    memory.hold(sum(c.nbytes for columns, _ in tables.values() for c in columns.values()))
    return kernel.evaluate(plan, tables, memory, lambda: None, loops_named(kind)), memory


def test_the_answer_is_the_trace_of_the_product() -> None:
    plan = cycle(4)
    product = np.eye(CODES, dtype=np.int64)
    for i, (columns, _) in data(4).items():
        matrix = np.zeros((CODES, CODES), dtype=np.int64)
        np.add.at(matrix, (columns[i] - 1000, columns[(i + 1) % 4] - 1000), 1)
        product = product @ matrix
    for kind in ("native", "portable"):
        counts, _ = run(plan, 4, 1 << 28, kind)
        assert counts.groups == {(): int(np.trace(product))}


def test_every_bound_gives_the_same_or_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory runs out in the middle, what was kept for speed is dropped first."""
    for name in ("BLOCK", "BUDGET", "ROOM"):
        monkeypatch.setattr(limits, name, 64)
    plan = cycle(5)
    reference, memory = run(plan, 5, 1 << 28, "native")
    retried: Counter[bool] = Counter()
    original = kernel._Run._evaluate
    failed: list[int] = []

    def evaluate(self: Any, n: int, *, keep: bool) -> Any:
        again = n in failed
        try:
            result = original(self, n, keep=keep)
        except OutOfMemory:
            failed.append(n)
            retried[False] += again
            raise
        retried[True] += again
        return result

    monkeypatch.setattr(kernel._Run, "_evaluate", evaluate)
    outcomes: Counter[str] = Counter()
    for share in range(1, 101):
        failed.clear()
        try:
            counts, used = run(plan, 5, memory.peak * share // 100, "native")
        except NotInArrays:
            outcomes["refused"] += 1
            continue
        outcomes["same"] += 1
        assert counts == reference
        assert 0 <= used.used <= used.peak <= used.limit
    assert outcomes["refused"] > 0
    assert outcomes["same"] > 0
    assert retried[True] > 0


def test_nothing_outlives_an_answer() -> None:
    """No reference cycle: a backend's next question must not find the arrays of this one."""
    plan = cycle(3)
    seen: list[weakref.ref[Any]] = []
    loops = loops_named("native")

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(loops, name)

        def place(self, codes: Any, *rest: Any) -> Any:
            order = loops.place(codes, *rest)
            seen.extend((weakref.ref(codes), weakref.ref(order)))
            return order

    gc.disable()
    try:
        tables = data(3)
        memory = Memory(1 << 28)
        kernel.evaluate(plan, tables, memory, lambda: None, Watching())  # type: ignore[arg-type]
        del tables
        assert seen
        assert all(reference() is None for reference in seen)
    finally:
        gc.enable()
