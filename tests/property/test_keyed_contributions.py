"""Contributions that are added up by keys, in arrays, are those that SQL finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from dpsql.counted import Contributions
from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate, Weight
from dpsql.relation import Column, Relation
from dpsql.statistics import accumulate, keyed, limits, lookup
from dpsql.statistics.contributions import contributions
from dpsql.statistics.merged import Amount
from dpsql.steps import clamped, constant, leaf, plus, times
from tests.expressions import parsed
from tests.property.random_joins import SnapshotDatabase, connection, relaxed
from tests.property.test_contributions_match_the_counts import Recorder

# what fails is shown whole, however long it is
pytestmark = [
    pytest.mark.server,
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]
__all__ = ["connection"]

BOUNDS = (1, 2, 3, 5, 8, 20, 400, 10**20)
#: Columns of an item, its order (by k), the order's customer (by c) and a part at a place (by p, q).
DDL = """
create table pg_temp.item (k int, p int not null, q smallint not null, g text not null,
    l char(2) not null, x int, y numeric(9, 2) not null);
create table pg_temp.ord (k int primary key, c text not null, q smallint not null, z int not null);
create table pg_temp.customer (c text primary key, u bigint not null, h int not null);
create table pg_temp.part (p int, q smallint, s int not null, primary key (p, q));
"""
#: Attributes of the query, by name; k, c, p and q join.
NAMES = ["k", "c", "p", "q", "g", "l", "u", "h", "s", "z"]
TYPES = [
    "integer",
    "text",
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
    Weight(parsed("coalesce(r0.x, 0)"), frozenset({0}), 0, -50, 50, True),
    Weight(parsed("r0.y"), frozenset({0}), 2, -(10**9), 10**9, False),
    Weight(parsed("r1.z"), frozenset({1}), 0, -50, 50, True),
    Weight(
        parsed("r0.y * (2 - r0.q)"),
        frozenset({0}),
        2,
        -(10**11),
        10**11,
        False,
        steps=times(
            leaf(parsed("dp.steps(r0.y, 2)"), 10**9),
            plus(constant(2), times(constant(-1), leaf(parsed("r0.q::bigint"), 2**15))),
        ),
    ),
    Weight(
        parsed("least(greatest(r1.z * r1.z, 3), 40)"),
        frozenset({1}),
        0,
        0,
        40,
        True,
        steps=clamped(
            times(leaf(parsed("r1.z::bigint"), 50), leaf(parsed("r1.z::bigint"), 50)), 3, 40
        ),
    ),
    Weight(parsed("7"), frozenset({1}), 0, 7, 7, True, steps=constant(7)),
)


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
            filters.append(parsed(f"r0.l = ANY (ARRAY[{', '.join(LISTED)}])"))
        if draw(st.booleans()):
            filtered_by = {"item": "p", "ord": "z", "customer": "h", "part": "s"}[name]
            filters.append(parsed(f"r{i}.{filtered_by} < 3"))
        uses = tuple(
            AttributeUse(NAMES.index(a), parsed(f"r{i}.{a}"), a)
            for a in RELATIONS[name][0].split()
            if a != "k" or names != "item"  # it may be NULL where it joins
        )
        occurrences.append(Occurrence(i, relation(100 + i, name), uses, tuple(filters)))
    attributes = tuple(
        Attribute(
            n,
            type_,
            sum(n in o.attributes for o in occurrences) > 1,
            tuple(map(parsed, LISTED)) if name == "l" and listed else (),
        )
        for n, (name, type_) in enumerate(zip(NAMES, TYPES, strict=True))
    )
    there = sorted(set().union(*(o.attributes for o in occurrences)))
    groups = draw(st.lists(st.sampled_from(there), max_size=2))
    unit = draw(st.sampled_from([a for a in there if NAMES[a] not in "gl"]))
    predicates = draw(
        st.sampled_from([(), (Predicate(parsed("a2 <> 1"), frozenset({2}), frozenset({0})),)])
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
            replace(o, filters=(*o.filters, parsed(more[o.index]))) if draw(st.booleans()) else o
            for o in query.occurrences
        ),
    )


def rows(source: random.Random, far: int) -> list[str]:
    """Fill the tables; most rows find what they refer to."""
    keys = range(4)
    quarters = [source.choice([0, 0, 1]) for _ in keys]
    found = []
    for c in keys:
        u, h = source.randint(-2, 2) * far, source.randint(0, 3)
        if source.random() < 0.8:
            found.append(f"insert into pg_temp.customer values ('key {c}', {u}, {h})")
    for k in keys:
        c, z = source.choice(keys), source.randint(-3, 3)
        if source.random() < 0.8:
            found.append(f"insert into pg_temp.ord values ({k}, 'key {c}', {quarters[k]}, {z})")
    for p in keys:
        for q in (0, 1):
            if source.random() < 0.8:
                row = f"({p}, {q}, {source.randint(0, 3)})"
                found.append(f"insert into pg_temp.part values {row}")
    for _ in range(source.randint(0, 20)):
        k = source.choice(keys)
        q = quarters[k] if source.random() < 0.8 else source.randint(0, 1)
        shown = "null" if source.random() < 0.1 else k
        g, listed = (source.choice(["a", "b{", "zz", "other"]) for _ in range(2))
        x = source.choice(["null", source.randint(-50, 50)])
        y = f"{source.randint(-(10**8), 10**8)}e-2"
        values = f"{shown}, {source.choice(keys)}, {q}, '{g}', '{listed[:2]}', {x}, {y}"
        found.append(f"insert into pg_temp.item values ({values})")
    return found


seeds = st.integers(0, 2**32)


def compare(
    connection: psycopg.Connection[Any],
    asked: list[JoinQuery],
    seed: int,
    far: int,
    patch: Callable[[pytest.MonkeyPatch], None],
) -> tuple[Recorder, list[Contributions], list[Contributions]]:
    """Find the same by keys and by SQL; four of five cases have results."""
    bounds = [BOUNDS] * len(asked)
    with connection.transaction(force_rollback=True):
        connection.execute(DDL)
        for statement in rows(random.Random(seed), far):
            connection.execute(statement)
        expected = contributions(asked, bounds, SnapshotDatabase(connection), kernel="sql")
        assume(seed % 5 == 0 or any(one.groups for one in expected))
        database = Recorder(connection)
        with pytest.MonkeyPatch.context() as patches:
            patch(patches)
            found = contributions(asked, bounds, database, kernel="arrays")
    return database, found, expected


@pytest.mark.parametrize("far", [1, 2**60])
@settings(relaxed, max_examples=120)
@given(asked=queries(), seed=seeds)
def test_sums_by_keys_are_those_of_sql(
    connection: psycopg.Connection[Any], far: int, asked: list[JoinQuery], seed: int
) -> None:
    database, found, expected = compare(connection, asked, seed, far, lambda _: None)
    wide = far > 1 and "u" in {NAMES[a] for a in asked[0].groups}
    assert any("dp.pack" in sql for sql in database.seen)
    assert wide or not any(sql.startswith("WITH") for sql in database.seen)
    assert found == expected


@settings(relaxed, max_examples=60)
@given(asked=queries(), seed=seeds)
def test_pieces_and_sorted_keys_change_nothing(
    connection: psycopg.Connection[Any], asked: list[JoinQuery], seed: int
) -> None:
    add = accumulate.Cells.add

    def by_row(self: Any, columns: Any, weights: Any, tick: Any) -> None:
        for i in range(len(columns[0])):
            part = slice(i, i + 1)
            add(self, [c[part] for c in columns], [w[part] for w in weights], tick)

    def patch(patches: pytest.MonkeyPatch) -> None:
        patches.setattr(lookup, "_SMALL", 0)
        patches.setattr(lookup, "_SPARSE", 0)
        patches.setattr(limits, "PIECE", 1)
        patches.setattr(accumulate.Cells, "add", by_row)

    _, found, expected = compare(connection, asked, seed, 1, patch)
    assert found == expected


MUTANTS = {
    "all columns the same": ("_looked_up", lambda right: lambda *given: dict.fromkeys(
        (r := right(*given)), next(iter(r.values())) * 0)),
    "unlike rows kept": ("_kept", lambda right: lambda columns, rows: columns),
    "flags forgotten": ("_product", lambda right: lambda columns, amount: right(
        columns, Amount((), amount.weight)) if amount.weight else columns[amount.flags[0]] * 0 + 1),
    "empty groups kept": ("_where", lambda right: lambda codes, amount, counts: right(
        codes, amount, None)),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(connection: psycopg.Connection[Any], mutant: str) -> None:
    """One of six cases shows each (of 120 each at least 21), so that 300 miss it with a chance below 1e-15."""
    name, make = MUTANTS[mutant]

    @settings(relaxed, max_examples=300, phases=[Phase.generate], report_multiple_bugs=False)
    @given(asked=queries(), seed=seeds)
    def same(asked: list[JoinQuery], seed: int) -> None:
        def patch(patches: pytest.MonkeyPatch) -> None:
            patches.setattr(keyed, name, make(getattr(keyed, name)))

        _, found, expected = compare(connection, asked, seed, 1, patch)
        assert found == expected

    with pytest.raises((AssertionError, IndexError, ValueError)):
        same()


def test_units_that_are_groups_keep_their_names(connection: psycopg.Connection[Any]) -> None:
    names = ["item", "ord"]
    occurrences = tuple(
        Occurrence(
            i,
            relation(100 + i, name),
            tuple(AttributeUse(NAMES.index(a), parsed(f"r{i}.{a}"), a) for a in columns.split()),
        )
        for i, (name, columns) in enumerate(zip(names, ["k p", "k z"], strict=True))
    )
    attributes = tuple(Attribute(n, type_, NAMES[n] == "k") for n, type_ in enumerate(TYPES))
    query = JoinQuery(occurrences, attributes, (), (9,), 9)
    with connection.transaction(force_rollback=True):
        connection.execute(DDL)
        connection.execute(
            "insert into pg_temp.ord values (1, '', 0, 5), (2, '', 0, 1000000), (3, '', 0, 77777777)"
        )
        connection.execute(
            "insert into pg_temp.item select k, 1, 1, 'a', 'a', 1, 1 from generate_series(1, 3) k"
        )
        (found,) = contributions([query], [BOUNDS], SnapshotDatabase(connection), kernel="arrays")
    assert set(found.groups) == {("5",), ("1000000",), ("77777777",)}


def item_query() -> JoinQuery:
    uses = tuple(
        AttributeUse(NAMES.index(a), parsed(f"r0.{a}"), a) for a in RELATIONS["item"][0].split()
    )
    attributes = tuple(Attribute(n, type_, False) for n, type_ in enumerate(TYPES))
    return JoinQuery((Occurrence(0, relation(100, "item"), uses[1:]),), attributes, (), (), 2)


@pytest.mark.parametrize(
    ("value", "number"), [("9223372036854775807", 2), ("1" + "0" * 30, 1), ("4503599627370497", 2)]
)
def test_sums_past_the_machine_are_found_by_sql(
    connection: psycopg.Connection[Any], value: str, number: int
) -> None:
    weight = Weight(parsed(f"{value}::numeric"), frozenset({0}), 0, 0, 10**31, False)
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
                AttributeUse(NAMES.index(a), parsed(f"r{i}.{a}"), a)
                for a in RELATIONS[name][0].split()
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
