"""Integer codes: which types have them, and what is checked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dpsql.counted import Counts
from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.query.elimination import Plan, make_plan
from dpsql.relation import Column, Relation
from dpsql.statistics.codes import coded_plan, decode, needs_check, read_texts
from tests.expressions import parsed


class Scripted:
    """A database that repeats one answer and remembers what it was asked."""

    def __init__(self, rows: list[tuple[object, ...]]) -> None:
        self.rows = rows
        self.asked: list[str] = []

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        self.asked.append(sql)
        return self.rows

    def tick(self) -> None:
        """Nothing to cancel."""


def self_join(kind: str, *, group: bool = False) -> Plan:
    relation = Relation(1, "s", "t", True, 1, (Column("x", 0, kind, True),))
    uses = [(AttributeUse(0, parsed(f"r{i}.x"), "x"),) for i in range(2)]
    query = JoinQuery(
        tuple(Occurrence(i, relation, u) for i, u in enumerate(uses)),
        (Attribute(0, kind, True),),
        groups=(0,) if group else (),
    )
    return make_plan(query, [])


ALL = frozenset({0})


@pytest.mark.parametrize(
    ("kind", "code", "checked"),
    [
        ("integer", "integer", False),
        ("date", "integer", False),
        ("boolean", "integer", False),
        ("timestamp with time zone", "bigint", False),
        ("timestamp(3) without time zone", "bigint", False),
        ("text", "bigint", True),
        ("character varying(8)", "bigint", True),
        ("numeric(6,2)", "bigint", True),
        ("uuid", "bigint", True),
    ],
)
def test_codes_by_type(kind: str, code: str, checked: bool) -> None:
    plan = self_join(kind)
    coded = coded_plan(plan, ALL)
    assert coded is not None
    assert coded.query.attributes[0].type_name == code
    assert coded.factors == plan.factors
    assert needs_check(plan, ALL) == checked


@pytest.mark.parametrize("kind", ["bytea", "text[]", "interval", "s.numeric", '"date"', "s.mood"])
def test_types_without_codes(kind: str) -> None:
    assert coded_plan(self_join(kind), ALL) is None


def test_groups_by_values_of_several_texts_are_left_to_sql() -> None:
    assert coded_plan(self_join("numeric"), ALL) is not None
    assert coded_plan(self_join("numeric", group=True), ALL) is None
    assert coded_plan(self_join("text", group=True), ALL) is not None


def test_a_shared_hash_is_not_used() -> None:
    plan = self_join("text")
    assert read_texts(plan, ALL, Scripted([(1,)])) is None
    database = Scripted([(0,)])
    assert read_texts(plan, ALL, database) == {}
    (sql,) = database.asked
    assert sql.count("UNION ALL") == 0, "a self-join reads its column once"


def test_groups_get_their_texts_back() -> None:
    plan = self_join("date", group=True)
    texts = read_texts(plan, ALL, Scripted([("-1", "1999-12-31"), ("0", "2000-01-01")]))
    assert texts is not None
    counts = decode(plan, texts, Counts({}, {("0",): 7}))
    assert counts.groups == {("2000-01-01",): 7}
