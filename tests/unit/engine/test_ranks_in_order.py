"""Cells of one argument are put in the order of their ranks, those of others stay."""

from __future__ import annotations

from fractions import Fraction

from dpsql.engine.compute import in_order
from dpsql.model import JoinQuery


def ranked(rank: Fraction | None, cells: int = 9) -> JoinQuery:
    return JoinQuery((), (), cells=cells, rank=rank)


def test_only_ranks_of_one_argument_are_exchanged() -> None:
    high, low, other, none = (
        ranked(Fraction(9, 10)),
        ranked(Fraction(0)),
        ranked(Fraction(1, 2), cells=8),
        JoinQuery((), ()),
    )
    values: list[list[int | None]] = [[3, 5], [4, 1], [1, 1], [7, 0]]
    assert in_order([high, low, other, none], values) == [[4, 5], [3, 1], [1, 1], [7, 0]]
    assert values[0] == [3, 5]
