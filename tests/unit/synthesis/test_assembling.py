"""Keys, links and uniqueness of assembled tables, over random schemas and rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.synthesis.assembled import Assembled, Base
from dpsql.synthesis.assembling import assemble
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.keys import NoKey, made_up
from dpsql.synthesis.schema import (
    Attribute,
    Column,
    ForeignKey,
    Plan,
    Planned,
    Reference,
    Table,
    Unique,
    Use,
)
from dpsql.synthesis.values import MISSING, is_missing

INTEGER = Base("int4", "integer", -1)


def table(
    oid: int,
    uses: dict[str, Use],
    uniques: list[tuple[str, ...]],
    keys: list[tuple[tuple[str, ...], int, tuple[str, ...], bool]] = (),  # type: ignore[assignment]
) -> Planned:
    """Plan one table of integers; a key is its columns, parent, the parent's columns, nullable."""
    nullable = {c for columns, _, _, n in keys if n for c in columns}
    columns = tuple(Column(c, n, "integer", c not in nullable) for n, c in enumerate(uses, 1))
    found = [ForeignKey(f"k{n}", c, p, pc) for n, (c, p, pc, _) in enumerate(keys)]
    return Planned(
        Table(
            oid,
            "s",
            f"t{oid}",
            columns,
            tuple(Unique(f"u{n}", c) for n, c in enumerate(uniques)),
            tuple(found),
        ),
        tuple(uses.items()),
        tuple(Attribute(c, c) for c, use in uses.items() if use is Use.ATTRIBUTE),
        tuple(
            Reference(k, k.parent, n, False) for k, (_, _, _, n) in zip(found, keys, strict=True)
        ),
    )


def assembled(plan: Plan, generated: list[Generated | None], seed: int = 1) -> list[Assembled]:
    bases = {n: {c.name: INTEGER for c in t.table.columns} for n, t in enumerate(plan.tables)}
    return assemble(plan, generated, bases, seed, lambda: None)


def written(found: Assembled, kinds: bool = False) -> dict[str, list[Any]]:
    """Return the values of all columns; levels as texts, None for NULL."""
    result = {}
    for name, source in found.columns.items():
        numbers = source.at(np.arange(found.rows))
        missing = is_missing(numbers)
        levels = source.kind.levels
        result[name] = [
            None if gone else levels[int(n)] if levels else n
            for n, gone in zip(numbers.tolist(), missing.tolist(), strict=True)
        ]
    return result


def check(plan: Plan, found: list[Assembled]) -> None:
    """Every foreign key finds its parent, and every unique constraint holds."""
    rows = [written(t) for t in found]
    for place, planned in enumerate(plan.tables):
        own = rows[place]
        assert all(len(values) == found[place].rows for values in own.values())
        for reference in planned.references:
            key = reference.key
            parents = set(
                zip(*(rows[reference.parent][c] for c in key.parent_columns), strict=True)
            )
            for values in zip(*(own[c] for c in key.columns), strict=True):
                assert None in values or values in parents
                assert reference.nullable or None not in values
        for unique in planned.table.uniques:
            values = list(zip(*(own[c] for c in unique.columns), strict=True))
            full = [v for v in values if None not in v]
            assert len(set(full)) == len(full), unique


@st.composite
def schemas(draw: Any) -> tuple[Plan, list[Generated | None], int]:
    """A parent, a child within it, a link table, a tree; rows with collisions of all kinds."""
    sizes = [draw(st.integers(0, 30)) for _ in range(4)]
    levels = draw(st.integers(1, 12))
    nullable = draw(st.booleans())
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    plan = Plan(
        (
            table(
                0, {"id": Use.KEY, "a": Use.ATTRIBUTE, "b": Use.ATTRIBUTE}, [("id",), ("a", "b")]
            ),
            table(
                1,
                {"p": Use.REFERENCE, "n": Use.KEY},
                [("p", "n")],
                [(("p",), 0, ("id",), False)],
            ),
            table(
                2,
                {"p": Use.REFERENCE, "n": Use.REFERENCE, "q": Use.REFERENCE, "w": Use.ATTRIBUTE},
                [("p", "n", "q"), ("q", "w")] if draw(st.booleans()) else [("p", "n", "q")],
                [(("p", "n"), 1, ("p", "n"), False), (("q",), 0, ("id",), nullable)],
            ),
            table(
                3,
                {"p": Use.REFERENCE, "i": Use.KEY, "up": Use.REFERENCE},
                [("p", "i")],
                [(("p",), 0, ("id",), False), (("p", "up"), 3, ("p", "i"), True)],
            ),
        )
    )

    def links(rows: int, parents: int, none: bool = False) -> Any:
        if not parents:
            return np.full(rows, -1)
        found = rng.integers(0, parents, rows)
        return np.where(rng.random(rows) < 0.2, -1, found) if none else found

    texts = tuple(map(str, range(levels)))
    two = (*texts, None)
    given_rows: list[Generated | None] = [
        Generated(sizes[0], rng.integers(0, levels, (sizes[0], 2)), (texts, texts)),
        Generated(sizes[1], np.zeros((sizes[1], 0), int), (), (links(sizes[1], sizes[0]),)),
        Generated(
            sizes[2],
            rng.integers(0, len(two), (sizes[2], 1)),
            (two,),
            (links(sizes[2], sizes[1]), links(sizes[2], sizes[0], nullable)),
        ),
        Generated(
            sizes[3],
            np.zeros((sizes[3], 0), int),
            (),
            (links(sizes[3], sizes[0]), links(sizes[3], sizes[3], True)),
        ),
    ]
    return plan, given_rows, seed


@settings(max_examples=150, deadline=None)
@given(schemas())
def test_constraints_hold_whatever_was_generated(schema: Any) -> None:
    plan, generated, seed = schema
    found = assembled(plan, generated, seed)
    check(plan, found)
    again = assembled(plan, generated, seed)
    assert [written(t) for t in found] == [written(t) for t in again]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 60), st.integers(0, 1000))
def test_no_row_is_lost_where_there_is_room(a: int, b: int, rows: int, seed: int) -> None:
    """A link table of at most a quarter of all pairs, and as many levels as rows."""
    rows = min(rows, a * b // 4)
    rng = np.random.default_rng(seed)
    plan = Plan(
        (
            table(0, {"id": Use.KEY, "x": Use.ATTRIBUTE}, [("id",), ("x",)]),
            table(1, {"id": Use.KEY}, [("id",)]),
            table(
                2,
                {"a": Use.REFERENCE, "b": Use.REFERENCE},
                [("a", "b")],
                [(("a",), 0, ("id",), False), (("b",), 1, ("id",), False)],
            ),
        )
    )
    generated: list[Generated | None] = [
        Generated(a, rng.integers(0, a, (a, 1)), (tuple(map(str, range(a))),)),
        Generated(b, np.zeros((b, 0), int), ()),
        Generated(
            rows,
            np.zeros((rows, 0), int),
            (),
            (rng.integers(0, a, rows), rng.integers(0, b, rows)),
        ),
    ]
    found = assembled(plan, generated, seed)
    check(plan, found)
    # after every second of 60 rounds a row that repeats another is at a random pair, taken with a
    # probability of a quarter: a row is lost with 4**-30, one of all examples with 1e-14
    assert [t.rows for t in found] == [a, b, rows]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 9), st.integers(0, 1000))
def test_parents_have_no_more_children_than_a_range_numbers(
    parents: int, most: int, first: int, seed: int
) -> None:
    """Half of the room is asked for, with all children at a tenth of the parents at first."""
    rng = np.random.default_rng(seed)
    rows = parents * most // 2
    child = table(
        1,
        {"p": Use.REFERENCE, "slot": Use.KEY},
        [("p", "slot")],
        [(("p",), 0, ("id",), False)],
    )
    span = (first, first + most - 1)
    columns = tuple(
        replace(c, span=span if c.name == "slot" else None) for c in child.table.columns
    )
    child = replace(child, table=replace(child.table, columns=columns))
    plan = Plan((table(0, {"id": Use.KEY}, [("id",)]), child))
    generated: list[Generated | None] = [
        Generated(parents, np.zeros((parents, 0), int), ()),
        Generated(
            rows,
            np.zeros((rows, 0), int),
            (),
            (rng.integers(0, max(1, parents // 10), rows),),
        ),
    ]
    found = assembled(plan, generated, seed)
    check(plan, found)
    # each of 60 rounds moves a row to a parent that has room with a probability of a half
    assert found[1].rows == rows
    slots = written(found[1])["slot"]
    assert all(span[0] <= slot <= span[1] for slot in slots)


@pytest.mark.parametrize("nullable", [True, False])
def test_rows_without_a_parent_of_their_own_table_fill_no_bound(nullable: bool) -> None:
    """Many rows refer to none: a bound counts those that refer to one."""
    parents = np.array([-1] * 50 + [0, 0, 1, 1, 2, 2])
    own = table(
        0,
        {"id": Use.KEY, "up": Use.REFERENCE, "slot": Use.KEY},
        [("id",), ("up", "slot")],
        [(("up",), 0, ("id",), nullable)],
    )
    columns = tuple(
        replace(c, span=(1, 3) if c.name == "slot" else None) for c in own.table.columns
    )
    own = replace(own, table=replace(own.table, columns=columns))
    plan = Plan((own,))
    found = assembled(plan, [Generated(56, np.zeros((56, 0), int), (), (parents,))])
    check(plan, found)
    alone = [None] * 50 if nullable else list(range(1, 51))
    assert written(found[0])["up"] == [*alone, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("slots", [True, False])
def test_rows_without_a_parent_in_their_own_table_repeat_none(slots: bool) -> None:
    uses = {"id": Use.KEY, "up": Use.REFERENCE} | ({"slot": Use.KEY} if slots else {})
    key = ("up", "slot") if slots else ("up",)
    staff = table(0, uses, [("id",), key], [(("up",), 0, ("id",), True)])
    columns = tuple(
        replace(c, span=(1, 2) if c.name == "slot" else None) for c in staff.table.columns
    )
    staff = replace(staff, table=replace(staff.table, columns=columns))
    up = np.concatenate([np.full(30, -1), np.arange(10)])
    rows = Generated(40, np.zeros((40, 0), int), (), (up,))
    found = assembled(Plan((staff,)), [rows])
    check(Plan((staff,)), found)
    assert found[0].rows == 40, found[0].notes
    assert written(found[0])["up"].count(None) == 30


def test_rows_that_repeat_none_are_as_they_were_generated() -> None:
    plan = Plan((table(0, {"id": Use.KEY, "a": Use.ATTRIBUTE}, [("id",), ("a",)]),))
    codes = np.array([[3], [1], [3], [0]])
    found = assembled(plan, [Generated(4, codes, (tuple("abcd"),))])
    values = written(found[0])
    assert values["id"] == [1, 2, 3, 4]
    assert values["a"] == ["d", "b", "c", "a"]


def test_children_of_rows_that_are_left_out_get_other_parents() -> None:
    plan = Plan(
        (
            table(0, {"id": Use.KEY, "a": Use.ATTRIBUTE}, [("id",), ("a",)]),
            table(1, {"p": Use.REFERENCE}, [], [(("p",), 0, ("id",), False)]),
        )
    )
    generated: list[Generated | None] = [
        Generated(3, np.array([[0], [0], [1]]), (("x", "y"),)),
        Generated(6, np.zeros((6, 0), int), (), (np.array([0, 1, 1, 2, 2, 0]),)),
    ]
    found = assembled(plan, generated)
    assert [t.rows for t in found] == [2, 6]
    assert "1 rows of t0 are left out" in found[0].notes[0]
    p = written(found[1])["p"]
    assert (p[0], p[3], p[4], p[5]) == (1, 2, 2, 1)
    assert set(p) <= {1, 2}


def test_a_row_without_a_parent_is_its_own_where_it_must_have_one() -> None:
    plan = Plan(
        (table(0, {"id": Use.KEY, "up": Use.REFERENCE}, [("id",)], [(("up",), 0, ("id",), False)]),)
    )
    found = assembled(plan, [Generated(2, np.zeros((2, 0), int), (), (np.array([-1, 0]),))])
    assert written(found[0])["up"] == [1, 1]


@pytest.mark.parametrize(
    ("base", "modifier", "rows"),
    [
        ("int2", -1, 40_000),
        ("varchar", 4 + 2, 100),
        ("numeric", (3 << 16 | 2) + 4, 10),
        ("bool", -1, 1),
    ],
)
def test_types_that_are_too_small_have_no_keys(base: str, modifier: int, rows: int) -> None:
    with pytest.raises(NoKey):
        made_up(base, modifier, "t", rows, 1)


@pytest.mark.parametrize(
    ("base", "modifier", "number"),
    [
        ("int2", -1, 2**15 - 1),
        ("bpchar", 4 + 1, 9),
        ("numeric", (3 << 16 | 2) + 4, 9),
        ("date", -1, 2_000_000),
    ],
)
def test_values_that_may_repeat_begin_again_where_a_type_is_small(
    base: str, modifier: int, number: int
) -> None:
    plan = Plan((table(0, {"id": Use.KEY, "filled": Use.KEY}, [("id",)]),))
    rows = number + 5
    (found,) = assemble(
        plan,
        [Generated(rows, np.zeros((rows, 0), int), (), ())],
        {0: {"id": INTEGER, "filled": Base(base, base, modifier)}},
        1,
        lambda: None,
    )
    last = np.arange(number - 1, rows)
    assert found.columns["filled"].at(last).tolist() == [number, 1, 2, 3, 4, 5]
    assert found.columns["id"].at(last).tolist() == list(range(number, rows + 1))
    made_up(base, modifier, "t", number, 1)


def test_missing_is_no_number_that_is_made() -> None:
    assert is_missing(np.array([MISSING, 0, -1])).tolist() == [True, False, False]
