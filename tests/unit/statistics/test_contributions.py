"""Whether what units contribute is added up in arrays: a guess of what those would hold."""

from __future__ import annotations

import pytest

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Weight
from dpsql.relation import Column, Relation
from dpsql.statistics.contributions import expected_need
from dpsql.statistics.merged import merge
from dpsql.statistics.sizes import Facts
from tests.expressions import parsed

ROWS = 10_000_000


def query(kind: str) -> JoinQuery:
    """Count items (a customer each), and sum what they cost."""
    item = Relation(1, "s", "item", True, 1, (Column("c", 0, "integer", True),), kind=kind)
    customer = Relation(2, "s", "c", True, 2, (Column("c", 0, "integer", True),), keys=(("c",),))
    use = (AttributeUse(0, parsed("c"), "c"),)
    occurrences = (Occurrence(0, item, use), Occurrence(1, customer, use))
    weight = Weight(parsed("r0.x"), frozenset({0}), 0, 0, 9, True)
    return JoinQuery(occurrences, (Attribute(0, "integer", True),), (), (), 0, (weight,))


@pytest.mark.parametrize(
    ("kind", "rows", "expected"),
    [
        # a heap is read page by page: only the customers are held, one column of four bytes
        ("r", None, 4 * 1000),
        ("m", None, 4 * 1000),
        # a partitioned table at once: two columns, which exist six times on their way
        ("p", None, 4 * 1000 + 6 * 8 * ROWS),
        ("p", 50.0, 4 * 1000 + 6 * 8 * 50),
    ],
)
def test_what_cannot_be_read_in_parts_is_held_at_once(
    kind: str, rows: float | None, expected: float
) -> None:
    facts = Facts({1: float(ROWS), 2: 1000.0}, {1: 10**5, 2: 10}, {})
    asked = query(kind)
    assert expected_need(merge([asked]), asked.occurrences[0], rows, facts) == expected
