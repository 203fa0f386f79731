"""Contributions that are added up by keys, in arrays, are those that SQL finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate, Weight
from dpsql.relation import Column, Relation
from dpsql.statistics import accumulate, limits, lookup
from dpsql.statistics.contributions import contributions
from tests.property.random_joins import SnapshotDatabase, connection, relaxed
from tests.property.test_contributions_match_the_counts import Recorder

pytestmark = pytest.mark.server
__all__ = ["connection"]

BOUNDS = (1, 2, 3, 5, 8, 20, 400, 10**20)
#: Columns of an item, its order (by k), the order's customer (by c) and a part at a place (by p, q).
DDL = """
create table pg_temp.item (k int, p int not null, q smallint not null, g text not null,
    l char(2) not null, x int, y numeric(9, 2) not null);
create table pg_temp.ord (k int primary key, c bigint not null, q smallint not null, z int not null);
create table pg_temp.customer (c bigint primary key, u bigint not null, h int not null);
create table pg_temp.part (p int, q smallint, s int not null, primary key (p, q));
"""
#: Attributes of the query, by name; k, c, p and q join.
NAMES = ["k", "c", "p", "q", "g", "l", "u", "h", "s", "z"]
TYPES = [
    "integer",
    "bigint",
    "integer",
    "smallint",
    "text",
    "character(2)",
    "bigint",
    "integer",
    "integer",
    "integer",
]
RELATIONS = {
    "item": ("k p q g l", ()),
    "ord": ("k c q z", ("k",)),
    "customer": ("c u h", ("c",)),
    "part": ("p q s", ("p", "q")),
}
LISTED = ("'a'::character(2)", "'b{'::character(2)", "'zz'::character(2)")
WEIGHTS = (
    Weight("coalesce(r0.x, 0)", frozenset({0}), 0, -50, 50, True),
    Weight("r0.y", frozenset({0}), 2, -(10**9), 10**9, False),
    Weight("r1.z", frozenset({1}), 0, -50, 50, True),
)
small = st.integers(0, 3)


def relation(oid: int, name: str) -> Relation:
    attributes, key = RELATIONS[name]
    columns = tuple(
        Column(a, 0, TYPES[NAMES.index(a)], (name, a) != ("item", "k")) for a in attributes.split()
    )
    return Relation(oid, "pg_temp", name, True, oid, columns, keys=(key,) if key else ())


@st.composite
def queries(draw: st.DrawFn) -> list[JoinQuery]:
    names = draw(
        st.sampled_from(["item", "item ord", "item ord customer", "item ord customer part"])
    )
    listed = draw(st.booleans())
    occurrences = []
    for i, name in enumerate(names.split()):
        filters = []
        if name == "item" and listed:
            filters.append(f"r0.l = ANY (ARRAY[{', '.join(LISTED)}])")
        if draw(st.booleans()):
            filters.append(
                f"r{i}.{ {'item': 'p', 'ord': 'c', 'customer': 'h', 'part': 's'}[name] } < 3"
            )
        uses = tuple(
            AttributeUse(NAMES.index(a), f"r{i}.{a}", a)
            for a in RELATIONS[name][0].split()
            if a != "k" or names != "item"  # it may be NULL where it joins
        )
        occurrences.append(Occurrence(i, relation(100 + i, name), uses, tuple(filters)))
    attributes = tuple(
        Attribute(
            n,
            type_,
            sum(n in o.attributes for o in occurrences) > 1,
            LISTED if name == "l" and listed else (),
        )
        for n, (name, type_) in enumerate(zip(NAMES, TYPES, strict=True))
    )
    there = sorted(set().union(*(o.attributes for o in occurrences)))
    groups = draw(st.lists(st.sampled_from(there), max_size=2))
    unit = draw(st.sampled_from([a for a in there if NAMES[a] not in "gl"]))
    predicates = draw(
        st.sampled_from([(), (Predicate("a2 <> 1", frozenset({2}), frozenset({0})),)])
    )
    query = JoinQuery(tuple(occurrences), attributes, predicates, tuple(groups), unit)
    usable = [w for w in WEIGHTS if all(o < len(occurrences) for o in w.occurrences)]
    weights = draw(st.lists(st.sampled_from([None, *usable]), min_size=1, max_size=3))
    asked = [replace(query, weights=() if w is None else (w,)) for w in dict.fromkeys(weights)]
    return [*asked, *(filtered(one, draw) for one in asked if draw(st.booleans()))]


def filtered(query: JoinQuery, draw: st.DrawFn) -> JoinQuery:
    """Add conditions that the other queries may not have."""
    more = {0: "r0.x > 0", 1: "r1.z is distinct from 1", 2: "r2.h < 2", 3: "r3.s > 1"}
    return replace(
        query,
        occurrences=tuple(
            replace(o, filters=(*o.filters, more[o.index])) if draw(st.booleans()) else o
            for o in query.occurrences
        ),
    )


@st.composite
def rows(draw: st.DrawFn, far: int) -> list[str]:
    def some(*columns: Any, most: int = 6) -> list[tuple[Any, ...]]:
        return draw(st.lists(st.tuples(*columns), max_size=most))

    text = st.sampled_from(["a", "b{", "zz", "other"])
    items = some(
        st.none() | small, small, small, text, text.map(lambda t: t[:2]),
        st.none() | st.integers(-50, 50), st.integers(-(10**8), 10**8), most=14,
    )  # fmt: skip
    orders = {k: (c, q, z) for k, c, q, z in some(small, small, small, st.integers(-3, 3))}
    customers = {c: (u, h) for c, u, h in some(small, st.integers(-2, 2), small)}
    parts = {(p, q): s for p, q, s in some(small, small, small)}
    found = []
    for k, p, q, g, listed, x, y in items:
        values = ", ".join("NULL" if v is None else str(v) for v in (k, p, q))
        number = "NULL" if x is None else x
        found.append(
            f"insert into pg_temp.item values ({values}, '{g}', '{listed}', {number}, {y}e-2)"
        )
    found += [
        f"insert into pg_temp.ord values ({k}, {c}, {q}, {z})" for k, (c, q, z) in orders.items()
    ]
    found += [
        f"insert into pg_temp.customer values ({c}, {u * far}, {h})"
        for c, (u, h) in customers.items()
    ]
    found += [f"insert into pg_temp.part values ({p}, {q}, {s})" for (p, q), s in parts.items()]
    return found


@pytest.mark.parametrize("far", [1, 2**60])
@settings(relaxed, max_examples=120)
@given(data=st.data())
def test_sums_by_keys_are_those_of_sql(
    connection: psycopg.Connection[Any], far: int, data: st.DataObject
) -> None:
    asked, statements = data.draw(queries()), data.draw(rows(far))
    bounds = [BOUNDS] * len(asked)
    with connection.transaction(force_rollback=True):
        connection.execute(DDL)
        for statement in statements:
            connection.execute(statement)
        database = Recorder(connection)
        found = contributions(asked, bounds, database, kernel="arrays")
        by_keys = any("dp.pack" in sql for sql in database.seen)
        wide = far > 1 and "u" in {NAMES[a] for a in asked[0].groups}
        assert by_keys
        assert wide or not any(sql.startswith("WITH") for sql in database.seen)
        expected = contributions(asked, bounds, SnapshotDatabase(connection), kernel="sql")
    assert found == expected


@settings(relaxed, max_examples=60)
@given(data=st.data())
def test_pieces_and_sorted_keys_change_nothing(
    connection: psycopg.Connection[Any], data: st.DataObject
) -> None:
    asked, statements = data.draw(queries()), data.draw(rows(1))
    bounds = [BOUNDS] * len(asked)
    with connection.transaction(force_rollback=True), pytest.MonkeyPatch.context() as patch:
        connection.execute(DDL)
        for statement in statements:
            connection.execute(statement)
        expected = contributions(asked, bounds, SnapshotDatabase(connection), kernel="sql")
        patch.setattr(lookup, "_SMALL", 0)
        patch.setattr(lookup, "_SPARSE", 0)
        patch.setattr(limits, "PIECE", 1)
        add = accumulate.Cells.add

        def by_row(self: Any, columns: Any, weights: Any, tick: Any) -> None:
            for i in range(len(columns[0])):
                part = slice(i, i + 1)
                add(self, [c[part] for c in columns], [w[part] for w in weights], tick)

        patch.setattr(accumulate.Cells, "add", by_row)
        found = contributions(asked, bounds, SnapshotDatabase(connection), kernel="arrays")
    assert found == expected


def item_query() -> JoinQuery:
    uses = tuple(AttributeUse(NAMES.index(a), f"r0.{a}", a) for a in RELATIONS["item"][0].split())
    attributes = tuple(Attribute(n, type_, False) for n, type_ in enumerate(TYPES))
    return JoinQuery((Occurrence(0, relation(100, "item"), uses[1:]),), attributes, (), (), 2)


@pytest.mark.parametrize(
    ("value", "number"), [("9223372036854775807", 2), ("1" + "0" * 30, 1), ("4503599627370497", 2)]
)
def test_sums_past_the_machine_are_found_by_sql(
    connection: psycopg.Connection[Any], value: str, number: int
) -> None:
    weight = Weight(f"{value}::numeric", frozenset({0}), 0, 0, 10**31, False)
    asked = [replace(item_query(), weights=(weight,))]
    with connection.transaction(force_rollback=True):
        connection.execute(DDL)
        for _ in range(number):
            connection.execute("insert into pg_temp.item values (1, 1, 1, 'a', 'a', 1, 1)")
        database = Recorder(connection)
        (found,) = contributions(asked, [BOUNDS], database, kernel="arrays")
    assert any("dp.pack" in sql for sql in database.seen)
    assert any(sql.startswith("WITH") for sql in database.seen)
    (cells,) = found.groups.values()
    assert sum(amount for amount, _ in cells.values()) == number * int(value)


def test_a_repeated_key_is_left_to_sql(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute(DDL)
        connection.execute("alter table pg_temp.ord drop constraint ord_pkey")
        connection.execute("insert into pg_temp.ord values (1, 1, 1, 1), (1, 1, 1, 1)")
        connection.execute("insert into pg_temp.item values (1, 1, 1, 'a', 'a', 1, 1)")
        uses = {
            name: tuple(
                AttributeUse(NAMES.index(a), f"r{i}.{a}", a) for a in RELATIONS[name][0].split()
            )
            for i, name in enumerate(["item", "ord"])
        }
        occurrences = tuple(
            Occurrence(i, relation(100 + i, name), uses[name]) for i, name in enumerate(uses)
        )
        attributes = tuple(Attribute(n, type_, NAMES[n] in "kq") for n, type_ in enumerate(TYPES))
        query = JoinQuery(occurrences, attributes, (), (), 1)
        (found,) = contributions([query], [BOUNDS], SnapshotDatabase(connection), kernel="arrays")
    assert found.groups == {(): {1: (2, 1)}}


def test_a_planned_number_of_rows_is_the_planners(connection: psycopg.Connection[Any]) -> None:
    statement = "select 1 from pg_catalog.generate_series(1, 1234) as t"
    row = connection.execute("select dp.planned_rows(%s)", [statement]).fetchone()
    assert row == (1234.0,)
    for wrong in ("select 1; select 2", "create table t ()"):
        with pytest.raises(psycopg.Error), connection.transaction():
            connection.execute("select dp.planned_rows(%s)", [wrong])
