"""Names of statistics, and which of those that exist are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dpsql.core import stale
from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence
from dpsql.query.ir import ALWAYS
from dpsql.relation import Column, ForeignKey, Relation
from dpsql.statistics.frequencies import column_sets
from dpsql.statistics.stored import frequency_identity, identity, load, unfiltered
from tests.expressions import parsed

E = frozenset


def relation(
    oid: int, private: bool = True, kinds: Sequence[str] = ("integer", "integer")
) -> Relation:
    columns = tuple(Column("ab"[i], 0, kind, False) for i, kind in enumerate(kinds))
    return Relation(oid, "s", f"t{oid}", private, oid if private else 0, columns)


def path(relations: Sequence[Relation], kind: str = "integer", names: str = "ab") -> JoinQuery:
    """Chain b = a; the ends are free."""
    last = len(relations) - 1
    occurrences = []
    for i, r in enumerate(relations):
        uses = []
        if i > 0:
            uses.append(AttributeUse(i - 1, parsed(f"r{i}.{names[0]}"), names[0]))
        if i < last:
            uses.append(AttributeUse(i, parsed(f"r{i}.{names[1]}"), names[1]))
        occurrences.append(Occurrence(i, r, tuple(uses), (ALWAYS,)))
    return JoinQuery(tuple(occurrences), tuple(Attribute(i, kind, True) for i in range(last)))


def backwards(query: JoinQuery) -> JoinQuery:
    """The same query with occurrences and attributes numbered the other way round."""
    last, most = len(query.occurrences) - 1, len(query.attributes) - 1
    occurrences = tuple(
        Occurrence(
            last - o.index,
            o.relation,
            tuple(AttributeUse(most - u.attribute, parsed("x"), u.column) for u in o.uses),
        )
        for o in reversed(query.occurrences)
    )
    return JoinQuery(occurrences, query.attributes)


@pytest.mark.parametrize("oids", [(1, 2, 3), (1, 1, 1), (1, 2, 1, 2), (7, 7)])
def test_equal_boundaries_have_equal_names_in_any_order(oids: tuple[int, ...]) -> None:
    query = path([relation(oid) for oid in oids])
    other = backwards(query)
    last, most = len(oids) - 1, len(query.attributes) - 1
    needed = stale.required(query.shape(), stale.numbering(query), "residual")
    for b in needed:
        turned = Boundary(E(last - i for i in b.occurrences), E(most - a for a in b.attributes))
        assert identity(query, b) == identity(other, turned)


def test_different_boundaries_have_different_names() -> None:
    query = path([relation(1), relation(1), relation(2)])
    needed = stale.required(query.shape(), stale.numbering(query), "residual")
    names: dict[str | None, Boundary] = {}
    for b in needed:
        assert names.setdefault(identity(query, b), b) == b


def test_casts_that_may_merge_values_are_part_of_the_name() -> None:
    one = Boundary(E({0}), E({0}))
    own, wide, lossy = (
        path([relation(1)] * 2, k) for k in ("integer", "bigint", "double precision")
    )
    assert identity(own, one) == identity(wide, one) != identity(lossy, one)
    with_precision = relation(1, kinds=("numeric(12,2)", "numeric(12,2)"))
    assert "::" not in str(identity(path([with_precision] * 2, "numeric"), one))


def test_joins_on_expressions_have_no_name() -> None:
    query = path([relation(1), relation(2)])
    hidden = AttributeUse(0, parsed("lower(r0.b)"), None)
    first = Occurrence(0, query.occurrences[0].relation, (hidden,))
    query = JoinQuery((first, query.occurrences[1]), query.attributes)
    assert identity(query, Boundary(E({0, 1}), E())) is None
    assert identity(query, Boundary(E({1}), E({0}))) is not None


def test_filters_do_not_matter() -> None:
    query = path([relation(1), relation(2)])
    assert unfiltered(query).occurrences[0].filters == ()
    both = Boundary(E({0, 1}), E())
    assert identity(query, both) == identity(unfiltered(query), both)


def test_frequencies_are_of_columns_keys_and_foreign_keys() -> None:
    r = Relation(
        1, "s", "t", True, 1,
        (Column("b", 0, "integer", True), Column("a", 0, "text", True), Column("j", 0, "json", True)),
        keys=(("b", "a"),), foreign_keys=(ForeignKey(("b",), 2, ("x",)),),
    )  # fmt: skip
    assert column_sets(r) == [(), ("a",), ("a", "b"), ("b",)]


class Scripted:
    """A database with given statistics, each (measurement, relation, kept, identity, value, time)."""

    def __init__(
        self, rows: list[tuple[object, ...]], gained: dict[tuple[int, int], object]
    ) -> None:
        self.rows, self.gained = rows, gained

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        first = parameters[0][1]
        assert isinstance(first, list)
        if "usable_shift" in sql:
            oids = parameters[1][1]
            assert isinstance(oids, list)
            return [
                (n, self.gained.get((m, o), 0))
                for n, (m, o) in enumerate(zip(first, oids, strict=True))
            ]
        return [row for row in self.rows if row[3] in first]

    def before_reading(self, relations: Sequence[int]) -> None:
        """Nothing to lock."""

    def reads_shards(self, relations: Sequence[int]) -> bool:
        """Everything is here."""
        return False

    def meet(
        self,
        relations: Sequence[int],
        check: object,
        *,
        named: Sequence[int] = (),
        by_steps: bool = False,
        charged: bool = False,
    ) -> None:
        """Everything is here."""

    def at_one_moment(self, relations: Sequence[int], work: Callable[[], object]) -> object:
        """Read what there is."""
        return work()

    def tick(self) -> None:
        """Nothing to cancel."""


QUERY = path([relation(1), relation(2, private=False), relation(3)])
NEEDED = stale.required(QUERY.shape(), stale.numbering(QUERY), "elastic")


def alone(measurement: int, oid: int, column: str, value: int) -> tuple[object, ...]:
    return (
        measurement,
        oid,
        None,
        frequency_identity(oid, [(column, "")]),
        value,
        f"t{measurement}",
    )


APART = [alone(9, 1, "b", 4), alone(8, 2, "a", 5), alone(8, 2, "b", 6), alone(7, 3, "a", 7)]


def test_each_relation_may_have_its_own_time() -> None:
    found = load(QUERY, NEEDED, Scripted(APART, {(9, 1): 2, (8, 2): 3, (7, 3): 4}))
    assert found is not None
    assert found.values[Boundary(E({1}), E({1}))] == 6
    assert dict(zip(stale.numbering(QUERY), (2, 3, 4), strict=True)) == dict(
        enumerate(found.shifts)
    )
    assert found.taken_at == "t7"


def test_one_relation_has_one_time() -> None:
    assert load(QUERY, NEEDED, Scripted([*APART[:2], alone(5, 2, "b", 6), APART[3]], {})) is None


@pytest.mark.parametrize("missing", range(4))
def test_nothing_is_used_when_something_is_missing(missing: int) -> None:
    rows = APART[:missing] + APART[missing + 1 :]
    assert load(QUERY, NEEDED, Scripted(rows, {})) is None


def test_nothing_is_used_of_a_relation_that_changed_uncounted() -> None:
    assert load(QUERY, NEEDED, Scripted(APART, {(8, 2): None})) is None


def test_a_kept_question_comes_first_and_whole() -> None:
    kept: list[tuple[object, ...]] = [
        (6, None, 1, identity(QUERY, b), 50 + n, "t6")
        for n, b in enumerate(sorted(NEEDED, key=str))
    ]
    found = load(QUERY, NEEDED, Scripted([*APART, *kept], {}))
    assert found is not None
    assert min(found.values.values()) >= 50
    assert found.taken_at == "t6"
    half = load(QUERY, NEEDED, Scripted([*APART, *kept[1:]], {}))
    assert half is not None
    assert max(half.values.values()) < 50
    # its relation 2 is not valid any more, what was taken apart still is
    partly = load(QUERY, NEEDED, Scripted([*APART, *kept], {(6, 2): None}))
    assert partly == half
