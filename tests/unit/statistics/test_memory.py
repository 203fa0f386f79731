"""The memory bound; no database."""

from __future__ import annotations

import pytest

from dpsql.statistics.arrays import Memory, NotInArrays


def test_memory_refuses_before_it_is_taken() -> None:
    memory = Memory(100)
    memory.hold(60)
    with pytest.raises(NotInArrays):
        memory.need(41)
    memory.release(30)
    memory.need(70)
    assert memory.peak == 100
