"""The interval around a mean holds every quotient of what its sum and its count can be."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product

from dpsql.query.noisy import mean_ends
from dpsql.sqltree import render

CASE = re.compile(r"CASE WHEN (p|q)0 < 0 THEN greatest\((p|q)1, 1\) ELSE greatest\((p|q)1, 1\) END")


def test_it_is_the_least_and_the_greatest_quotient() -> None:
    for ends, (low, high) in product(
        product(range(-3, 4), range(-3, 4)), product(range(-2, 5), range(-2, 5))
    ):
        if ends[0] > ends[1] or low > high:
            continue
        values = {"p": (ends[0], low), "q": (ends[1], high)}
        quotients = [
            Fraction(s, max(c, 1))
            for s in range(ends[0], ends[1] + 1)
            for c in range(low, high + 1)
        ]
        for text, end, expected in zip(
            map(render, mean_ends(0, 1)), "pq", (min(quotients), max(quotients)), strict=True
        ):
            found = CASE.search(text)
            assert found is not None
            sign, below, above = found.groups()
            assert sign == end
            divisor = max(values[below if values[end][0] < 0 else above][1], 1)
            assert Fraction(values[end][0], divisor) == expected
