"""Plans: shapes, sharing and the bound on bags; no database."""

from __future__ import annotations

import re

from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence, same_values
from dpsql.query.counting_sql import counting_sql, read_counts
from dpsql.query.decomposition import Decomposer, Sizes
from dpsql.query.elimination import Base, Product, make_plan
from dpsql.query.ir import renumber
from dpsql.relation import Column, Relation
from tests.expressions import parsed


def chain(length: int, *, keys: bool = False, cyclic: bool = False) -> JoinQuery:
    """r0(x, y) - r1(x, y) - ...: y of one joins x of the next; with keys, x is unique."""
    occurrences = []
    for i in range(length):
        columns = (Column("x", 23, "integer", True), Column("y", 23, "integer", True))
        relation = Relation(
            i + 1, "public", f"t{i}", True, i + 1, columns, (("x",),) if keys else ()
        )
        uses = []
        if i > 0:
            uses.append(AttributeUse(i - 1, parsed(f'r{i}."x"'), "x"))
        elif cyclic:
            uses.append(AttributeUse(length - 1, parsed('r0."x"'), "x"))
        if i < length - 1 or cyclic:
            uses.append(AttributeUse(i, parsed(f'r{i}."y"'), "y"))
        occurrences.append(Occurrence(i, relation, tuple(uses)))
    attributes = tuple(Attribute(a, "integer", True) for a in range(length - (not cyclic)))
    return JoinQuery(tuple(occurrences), attributes)


def test_answer_and_boundaries_share_factors() -> None:
    query = chain(5)
    shape = query.shape()
    intervals = [frozenset(range(i, j)) for i in range(5) for j in range(i + 1, 6) if j - i < 5]
    plan = make_plan(query, [Boundary(s, shape.boundary(s)) for s in intervals])
    # 14 intervals and the whole: one factor each, at most one more per relation
    assert len(plan.factors) <= 15 + 5


def test_factors_come_before_their_readers() -> None:
    plan = make_plan(chain(6, cyclic=True), [])
    for n, factor in enumerate(plan.factors):
        if isinstance(factor, Product):
            assert factor.left < n
            assert factor.right < n


def test_a_bag_is_joined_only_with_something_unique() -> None:
    for keys in (False, True):
        for cyclic in (False, True):
            plan = make_plan(chain(5, keys=keys, cyclic=cyclic), [])
            for factor in plan.factors:
                if isinstance(factor, Product):
                    sides = (plan.factors[factor.left], plan.factors[factor.right])
                    assert any(side.unique for side in sides)


def test_a_key_saves_the_grouping() -> None:
    query = chain(2, keys=True)
    inside = frozenset({1})
    plan = make_plan(query, [Boundary(inside, frozenset({0}))], answer=False)
    (base,) = plan.factors
    assert isinstance(base, Base)
    assert base.unit
    assert not base.grouped


def test_independent_parts_multiply() -> None:
    left, right = chain(2), chain(2)
    moved = [
        Occurrence(
            o.index + 2,
            o.relation,
            tuple(
                AttributeUse(
                    u.attribute + 1, renumber(u.expression, {o.index: o.index + 2}), u.column
                )
                for u in o.uses
            ),
        )
        for o in right.occurrences
    ]
    query = JoinQuery(
        (*left.occurrences, *moved), (Attribute(0, "integer", True), Attribute(1, "integer", True))
    )
    plan = make_plan(query, [Boundary(frozenset(range(4)), frozenset())])
    assert plan.answer is not None
    assert len(plan.answer) == 2
    a, b = plan.answer
    rows = [(-1, "2"), (-2, "3"), *((n, "7") for n in plan.maxima())]
    counts = read_counts(plan, rows)
    assert counts.groups == {(): 6}
    assert a != b


def test_closure_follows_keys() -> None:
    query = chain(4, keys=True)
    decomposer = Decomposer(query, Sizes.guess(query))
    everything = frozenset(range(4))
    assert decomposer.closure(everything, frozenset({0})) == {0, 1, 2}
    assert decomposer.closure(everything, frozenset({2})) == {2}


def test_lossy_casts_do_not_keep_keys() -> None:
    assert same_values("integer", "bigint")
    assert same_values("text", "text")
    assert same_values("character varying(10)", "text")
    assert same_values("character varying(10)", "character varying")
    assert same_values("character(10)", "bpchar")
    assert same_values("numeric(9,2)", "numeric")
    assert same_values("timestamp(3) without time zone", "timestamp without time zone")
    assert not same_values("numeric(9,2)", "numeric(9,1)")
    assert not same_values("character(10)", "text")
    assert not same_values("bigint", "double precision")
    assert not same_values("bigint", "integer")


def test_numeric_form_never_casts_to_bigint() -> None:
    plan = make_plan(chain(3), [])
    assert "AS bigint)" in counting_sql(plan)
    assert "AS bigint)" not in counting_sql(plan, numeric=True)


def test_joins_of_keys_are_written_in_place_unless_they_are_much_smaller() -> None:
    query = chain(4, keys=True)
    shape = query.shape()
    wanted = [
        Boundary(frozenset(range(i)), shape.boundary(frozenset(range(i)))) for i in range(1, 4)
    ]
    even = Sizes((1e5,) * 4, {(i, a): 1e5 for i in range(4) for a in range(3)})
    skewed = Sizes((10.0, 1e5, 1e5, 1e5), {(i, a): 1e5 for i in range(4) for a in range(3)})
    assert "f" not in _stored(counting_sql(make_plan(query, wanted, sizes=even)))
    assert "f" in _stored(counting_sql(make_plan(query, wanted, sizes=skewed)))


def test_a_factor_of_which_only_maxima_are_wanted_is_not_stored() -> None:
    query = chain(3)
    both = Boundary(frozenset({0, 1}), frozenset({0, 1}))
    one = Boundary(frozenset({1}), frozenset({0, 1}))
    plan = make_plan(query, [both, one], answer=False)
    text = counting_sql(plan)
    assert plan.tops()
    assert _stored(text) == "m"
    assert text.count('"t1"') == 1


def test_groups_that_hardly_repeat_are_sorted_the_widest_attribute_first() -> None:
    query = chain(3)
    wanted = [Boundary(frozenset({1}), frozenset({0, 1}))]

    def text(distinct: float) -> str:
        sizes = Sizes((5e6,) * 3, {(i, a): 10.0**a * distinct for i in range(3) for a in (0, 1)})
        return counting_sql(make_plan(query, wanted, answer=False, sizes=sizes))

    assert "ORDER BY a1, a0" in text(1e5)
    assert "ORDER BY" not in text(100)


def _stored(text: str) -> str:
    """Kinds of the common table expressions of a statement."""
    return "".join(sorted(set(re.findall(r"\b([fm])\d+ AS MATERIALIZED", text))))
