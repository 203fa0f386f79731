"""What takes long for a shape is looked at between ticks, and a cancel leaves nothing half known."""

from __future__ import annotations

import pytest

from dpsql.core import residual
from dpsql.model import Shape


class Cancelled(Exception):
    pass


def test_looking_at_a_shape_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual, "_known_sums", {})
    monkeypatch.setattr(residual, "_known_needs", {})
    key = frozenset({0})
    shape = Shape((key,) * 6, (0,) * 6, ((key,),) * 6)  # of which all 63 sets are looked at
    left = 0

    def tick() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Cancelled

    cancelled = 0
    for left in range(0, 10**6, 7):  # noqa: B007 - what ``tick`` counts down
        try:
            found = residual.is_public(shape, tick=tick)
        except Cancelled:
            cancelled += 1
        else:
            break
    assert cancelled > 8
    assert found
    monkeypatch.setattr(residual, "_known_sums", {})
    monkeypatch.setattr(residual, "_known_needs", {})
    assert residual.is_public(shape) == found
