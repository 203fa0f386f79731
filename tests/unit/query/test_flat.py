"""When an answer is written as one plain join."""

from __future__ import annotations

import pytest

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate
from dpsql.query.flat_sql import is_flat
from dpsql.query.ir import ALWAYS, Expr
from dpsql.relation import Column, Relation
from tests.expressions import parsed

#: A line has one order and one supplier, each of which has one nation.
COLUMNS = {"line": "o s", "ord": "o n", "supplier": "s m", "one": "n", "other": "m"}
ATTRIBUTES = "osnm"
LESS = parsed("a2 < a3")


def join(*predicates: Predicate, filtered: str = "", keyed: bool = True) -> JoinQuery:
    occurrences = []
    for i, (name, listed) in enumerate(COLUMNS.items()):
        columns = listed.split()
        keys = ((columns[0],),) if keyed and name != "line" else ()
        relation = Relation(
            i + 1, "s", name, True, 1, tuple(Column(c, 23, "integer", True) for c in columns), keys
        )
        uses = tuple(AttributeUse(ATTRIBUTES.index(c), parsed(f"r{i}.{c}"), c) for c in columns)
        filters = (parsed(f"r{i}.{columns[0]} > 0"),) if name == filtered else ()
        occurrences.append(Occurrence(i, relation, uses, filters))
    attributes = tuple(Attribute(n, "integer", True) for n in range(len(ATTRIBUTES)))
    return JoinQuery(tuple(occurrences), attributes, predicates)


def spanning(*occurrences: int, condition: Expr = LESS) -> Predicate:
    return Predicate(condition, frozenset({2, 3}), frozenset(occurrences))


@pytest.mark.parametrize(
    ("query", "flat"),
    [
        (join(), False),
        (join(filtered="one"), True),
        (join(filtered="line"), False),
        (join(filtered="one", keyed=False), False),
        (join(spanning(3, 4)), True),
        (join(spanning(3, 4), keyed=False), False),
        (join(spanning(0, 4)), False),
        (join(spanning(3, 4, condition=ALWAYS)), False),
    ],
)
def test_a_join_is_flat_where_others_than_the_leading_relation_are_filtered(
    query: JoinQuery, flat: bool
) -> None:
    assert is_flat(query) is flat
