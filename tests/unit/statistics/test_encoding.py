"""Codes of values: the same for the same value, in every kind of range."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.statistics import limits
from dpsql.statistics.arrays import Memory
from dpsql.statistics.encoding import encode
from tests.kernel_library import TINY, loops_named

RANGES = {
    "dense": (0, 50),
    "negative": (-40, 10),
    "sparse": (0, 5000),
    "wide": (-(2**31), 2**31 - 1),
    "widest": (-(2**63), 2**63 - 1),
}


@pytest.mark.parametrize("kind", ["native", "portable"])
@pytest.mark.parametrize("sizes", ["usual", "tiny"])
@pytest.mark.parametrize("name", RANGES)
def test_values_come_back(
    kind: str, sizes: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, value in (TINY if sizes == "tiny" else {}).items():
        monkeypatch.setattr(limits, limit, value)
    random = np.random.default_rng(11)
    low, high = RANGES[name]
    values = [random.integers(low, high, 300, dtype=np.int64, endpoint=True) for _ in range(3)]
    values[1] = np.concatenate((values[1], values[0][:50], [low, high]))
    memory = Memory(1 << 30)
    memory.hold(sum(v.nbytes for v in values))
    given = {i: ({4: v.copy()}, len(v)) for i, v in enumerate(values)}
    given[3] = ({4: np.zeros(0, dtype=np.int32)}, 0)
    ticks: list[int] = []
    tables, domains, origin = encode(given, memory, lambda: ticks.append(1), loops_named(kind))
    base, known = origin[4]
    for i, before in enumerate(values):
        codes = tables[i].columns[4]
        assert codes.max() < domains[4]
        assert codes.min() >= 0
        after = codes.astype(np.int64) + base if known is None else known[codes]
        assert (after == before).all()
    assert tables[3].rows == 0
    assert memory.used == sum(t.nbytes for t in tables.values())
    assert ticks
