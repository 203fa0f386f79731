"""Values within bins: of the largest ranges that types have as well."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.synthesis.bins import binned
from dpsql.synthesis.values import MISSING


@pytest.mark.parametrize(
    ("base", "scale", "edges"),
    [
        ("int8", None, (str(-(2**63)), "0", str(2**63))),
        ("int8", None, (str(-(2**63)), str(2**63))),
        ("int4", None, ("0", "3", "4")),
        ("numeric", None, ("0", "500000000000000000", "1000000000000000000")),
        ("numeric", 4, ("-1e30", "0", "1e30")),
        ("numeric", -1, ("0", "500", "1000")),
        ("numeric", 2, ("0.5", "0.75", "1")),
    ],
)
def test_values_lie_in_their_bins(base: str, scale: int | None, edges: tuple[str, ...]) -> None:
    levels = [*(str(n) for n in range(len(edges) + 1)), None]  # below, the bins, beyond; NULL
    made = binned(base, scale, edges, levels)
    rng = np.random.default_rng(1)
    exact = [Fraction(edge) for edge in edges]
    unit = Fraction(10) ** -made.kind.scale
    for code, level in enumerate(levels):
        drawn = made.draw(np.full(200, code), rng)
        if level is None:
            assert set(drawn.tolist()) == {MISSING}
            continue
        low, high = exact[max(int(level) - 1, 0)], exact[min(int(level), len(edges) - 1)]
        low, high = (min(max(e, (MISSING + 1) * unit), (2**63 - 2) * unit) for e in (low, high))
        assert all(low <= int(n) * unit <= high for n in drawn)
        if 0 < int(level) < len(edges) and high - low > 100 * unit:
            assert (
                len(set(drawn.tolist())) > 10
            )  # of 200, all but equal with probability below 1e-99
