"""CHECK constraints over links: rows get links that satisfy them, and keep what else holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.synthesis.assembled import Assembled, Base
from dpsql.synthesis.assembling import assemble
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.satisfying import Check, Checks
from dpsql.synthesis.schema import Plan, Use
from dpsql.synthesis.values import MISSING
from tests.unit.synthesis.test_assembling import check, table, written

INTEGER = Base("int4", "integer", -1)
Holds = Callable[..., Any]


def checks(**named: tuple[tuple[str, ...], Holds]) -> Checks:
    """Constraints by name: their columns, and what tells of these whether they hold."""
    found = list(named.items())

    def broken(values: Any, which: Any) -> Any:
        result = np.zeros(next(iter(values.values()))[1].size, dtype=bool)
        for n in which:
            columns, holds = found[n][1]
            result |= ~holds(*(values[c][1] for c in columns))
        return result

    return Checks([Check(name, frozenset(columns)) for name, (columns, _) in found], broken)


def pairs(unique: bool, nullable: bool) -> Plan:
    """People, and a table with two references to them and a kind."""
    keys = [(("a",), 0, ("id",), False), (("b",), 0, ("id",), nullable)]
    uses = {"a": Use.REFERENCE, "b": Use.REFERENCE, "kind": Use.ATTRIBUTE}
    return Plan(
        (
            table(0, {"id": Use.KEY}, [("id",)]),
            table(1, uses, [("a", "b")] if unique else [], keys),
        )
    )


def copied(
    plan: Plan, people: int, rows: int, checks: Checks, seed: int, none: float
) -> list[Assembled]:
    rng = np.random.default_rng(seed)
    b = rng.integers(0, people, rows)
    rows_of = [
        Generated(people, np.zeros((people, 0), int), ()),
        Generated(
            rows,
            rng.integers(0, 2, (rows, 1)),
            (("x", "y"),),
            (rng.integers(0, people, rows), np.where(rng.random(rows) < none, -1, b)),
        ),
    ]
    bases = {n: {c.name: INTEGER for c in t.table.columns} for n, t in enumerate(plan.tables)}
    return assemble(plan, rows_of, bases, seed, lambda: None, {1: checks})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_pairs_that_must_be_in_order_are(seed: int, unique: bool) -> None:
    """Each of the last 60 rounds fails for a row with probability below 0.6: all do below 1e-13."""
    plan = pairs(unique, nullable=False)
    ordered = checks(ordered=(("a", "b"), lambda a, b: a < b))
    found = copied(plan, 40, 60, ordered, seed, 0.0)
    check(plan, found)
    own = written(found[1])
    assert found[1].rows == 60, found[1].notes
    assert all(a < b for a, b in zip(own["a"], own["b"], strict=True))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 1.0]))
def test_links_that_attributes_ask_for_are_there(seed: int, none: float) -> None:
    """Of kind x, which is level 0, a row has no b; of kind y it has one, wherever they began.

    Each of the last 60 rounds fails for a row with probability one half: all do below 1e-18.
    """
    plan = pairs(unique=False, nullable=True)
    asked = checks(asked=(("kind", "b"), lambda kind, b: (kind == 0) == (b == MISSING)))
    found = copied(plan, 10, 50, asked, seed, none)
    check(plan, found)
    own = written(found[1])
    assert found[1].rows == 50
    assert all((k == "x") == (b is None) for k, b in zip(own["kind"], own["b"], strict=True))


def test_rows_that_satisfy_a_constraint_keep_their_links() -> None:
    plan = pairs(unique=False, nullable=False)
    ordered = checks(ordered=(("a", "b"), lambda a, b: a < b))
    plain = written(copied(plan, 20, 200, checks(), 3, 0.0)[1])
    mended = written(copied(plan, 20, 200, ordered, 3, 0.0)[1])
    kept = [n for n in range(200) if plain["a"][n] < plain["b"][n]]
    assert 0 < len(kept) < 200
    assert [(mended["a"][n], mended["b"][n]) for n in kept] == [
        (plain["a"][n], plain["b"][n]) for n in kept
    ]


@pytest.mark.parametrize("people", [1, 3])
def test_rows_that_no_links_satisfy_are_left_out_and_told(people: int) -> None:
    plan = pairs(unique=True, nullable=False)
    ordered = checks(ordered=(("a", "b"), lambda a, b: a < b))
    found = copied(plan, people, 30, ordered, 1, 0.0)
    check(plan, found)
    own = written(found[1])
    assert all(a < b for a, b in zip(own["a"], own["b"], strict=True))
    assert found[1].rows <= people * (people - 1) // 2
    assert any("left out, because ordered would not let them in" in n for n in found[1].notes)


def test_rows_that_other_attributes_may_satisfy_stay_as_they_were() -> None:
    plan = pairs(unique=False, nullable=False)
    never = checks(never=(("kind", "a"), lambda kind, a: kind > 1))
    assert written(copied(plan, 5, 30, never, 2, 0.0)[1]) == written(
        copied(plan, 5, 30, checks(), 2, 0.0)[1]
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 60), st.booleans())
def test_rows_come_after_those_that_they_refer_to(seed: int, rows: int, chain: bool) -> None:
    """A CHECK asks for it; children of the rows, and who refers to whom, stay the same."""
    rng = np.random.default_rng(seed)
    uses = {"id": Use.KEY, "up": Use.REFERENCE, "kind": Use.ATTRIBUTE}
    plan = Plan(
        (
            table(0, uses, [("id",)], [(("up",), 0, ("id",), True)]),
            table(1, {"of": Use.REFERENCE}, [], [(("of",), 0, ("id",), False)]),
        )
    )
    names = rng.permutation(rows)  # row names[n] refers to one named earlier, or the one before
    up = np.full(rows, -1)
    for n in range(1, rows):
        up[names[n]] = names[n - 1] if chain else names[rng.integers(0, n)]
    levels = tuple(map(str, range(rows)))
    of = rng.integers(0, rows, 80)
    given_rows = [
        Generated(rows, np.arange(rows).reshape(rows, 1), (levels,), (up,)),
        Generated(80, np.zeros((80, 0), int), (), (of,)),
    ]
    bases = {n: {c.name: INTEGER for c in t.table.columns} for n, t in enumerate(plan.tables)}
    later = checks(later=(("id", "up"), lambda own, up: up < own))
    found = assemble(plan, given_rows, bases, 1, lambda: None, {0: later})
    check(plan, found)
    own = written(found[0])
    assert all(u is None or u < i for i, u in zip(own["id"], own["up"], strict=True))
    kinds = dict(zip(own["id"], own["kind"], strict=True))
    assert {
        (int(k), -1 if u is None else int(kinds[u]))
        for k, u in zip(own["kind"], own["up"], strict=True)
    } == set(enumerate(up.tolist()))
    assert [int(kinds[i]) for i in written(found[1])["of"]] == of.tolist()
