"""A value of several occurrences is summed where they come together, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpsql.errors import InternalError
from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate, Weight
from dpsql.query.elimination import make_plan
from dpsql.query.ir import ALWAYS
from dpsql.query.sum_sql import sum_sql
from dpsql.relation import Column, Relation
from tests.expressions import parsed

BOTH = frozenset({0, 1})
RELATION = Relation(1, "s", "t", True, 1, (Column("x", 23, "integer", True),))
OCCURRENCES = tuple(
    Occurrence(i, RELATION, (AttributeUse(i, parsed(f"r{i}.x"), "x"),)) for i in (0, 1)
)
ATTRIBUTES = tuple(Attribute(i, "integer", join=False) for i in (0, 1))
WEIGHT = Weight(parsed("a0 + a1"), BOTH, 0, 0, 100, integer=False)
APART = JoinQuery(OCCURRENCES, ATTRIBUTES, groups=(0, 1), weights=(WEIGHT,))


def test_a_value_of_occurrences_that_are_counted_apart_is_refused() -> None:
    with pytest.raises(InternalError):
        sum_sql(make_plan(APART, ()), [APART])


def test_a_predicate_brings_them_together() -> None:
    query = replace(APART, predicates=(Predicate(ALWAYS, BOTH, BOTH),))
    assert "a0 + a1" in sum_sql(make_plan(query, ()), [query])
