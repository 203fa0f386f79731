"""Links of a table to itself: trees, and what their first rows refer to."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.synthesis.assembly import Assembly, Link
from dpsql.synthesis.schema import Column, ForeignKey, Plan, Planned, Reference, Table, Use


@pytest.mark.parametrize("rows", [1, 2, 30])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_where_all_rows_are_linked_the_first_refers_to_none_if_it_may(
    rows: int, nullable: bool, seed: int
) -> None:
    """None of the rows is to be NULL by what was measured; one has to be, or refers to itself."""
    key = ForeignKey("up", ("up",), 1, ("id",))
    columns = (Column("id", 1, "integer", True), Column("up", 2, "integer", not nullable))
    planned = Planned(
        Table(1, "s", "t", columns, foreign_keys=(key,)),
        (("id", Use.KEY), ("up", Use.REFERENCE)),
        (),
        (Reference(key, 0, nullable, False),),
    )
    found = Assembly(Plan((planned,)), [()], seed)
    found.codes[0] = np.zeros((rows, 0), np.int64)
    found.link(Link(0, 0))
    parents = found.parents[0, 0]
    own = parents == np.arange(rows)
    assert own.sum() == (0 if nullable else 1)
    assert (parents < 0).sum() == (1 if nullable else 0)
    at = np.arange(rows)
    for _ in range(rows):
        at = np.where((at >= 0) & ~own[at], parents[at], at)
    assert len(set(at.tolist())) == 1, "more than one tree, or a circle"
