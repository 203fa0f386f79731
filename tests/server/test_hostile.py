"""Hostile sessions show the same on twin databases of which only one has an expensive row.

If the stack, locks, files, buffers or connections are nearly used up, or if there are thousands of
cursors, each question ends on both twins with the same SQLSTATE, texts, notices and charges.  This
selection is fixed; `test_hostile_random.py` draws one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.hostile import shapes, world
from tests.server.hostile.questions import (
    EXCESSIVE,
    FEW,
    HEAVY_ROWS,
    KINDS,
    SYNTHESES,
    Question,
)
from tests.server.hostile.shapes import SHAPES, STACKS, STEPS, Shape
from tests.server.hostile.trying import Pair, Trial, boundary, compare, deepest, difference
from tests.server.hostile.ways import WAYS, Way

ALL = (*KINDS, *HEAVY_ROWS)
ROWS_ALONE = next(q for q in KINDS if q.name == "rows")
RELEASE = next(q for q in HEAVY_ROWS if q.name == "a pattern in a release")
NOTHING = Question("nothing", ("select 1",), reads=False)


@pytest.fixture(scope="module")
def made(small: Any) -> Iterator[Pair]:
    with world.twins(small) as twins:
        pair = Pair(twins)
        yield pair
        pair.close()


@pytest.fixture
def pair(made: Pair) -> Pair:
    """Return the twins before `dp.lockdown()`."""
    made.lock(False)
    return made


@pytest.fixture(scope="module", params=["open", "locked"])
def lockdown(request: Any) -> bool:
    return bool(request.param == "locked")


@pytest.fixture
def either(made: Pair, lockdown: bool) -> Pair:
    """Return the twins, before and after `dp.lockdown()`."""
    made.lock(lockdown)
    return made


# --- the sessions are hostile -------------------------------------------------------------------


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.holds], ids=lambda s: s.name)
def test_a_session_holds_what_its_shape_says(pair: Pair, shape: Shape) -> None:
    counts = []
    for step in (0, STEPS):
        seen = pair.alone(Trial(((shape, step),), (Question("held", (shape.holds,)),)))
        counts.append(seen.number)
    assert counts[0] < counts[1]
    assert counts[1] >= shape.least


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.beyond], ids=lambda s: s.name)
def test_a_session_has_no_room_left(pair: Pair, shape: Shape) -> None:
    beyond = Question("beyond", (shape.beyond,))
    states = [pair.alone(Trial(((shape, step),), (beyond,))).states() for step in (0, STEPS)]
    assert states == [[""], [shape.fails]]


@pytest.mark.parametrize("shape", STACKS, ids=lambda s: s.name)
def test_the_deepest_stack_bears_nothing_more(pair: Pair, shape: Shape) -> None:
    most = deepest(pair, shape)
    assert most > 300
    states = [pair.alone(Trial(((shape, most + n),), (NOTHING,))).states() for n in (0, 1)]
    assert states == [[""], ["54001"]]


def test_without_connections_nothing_is_charged(pair: Pair) -> None:
    seen = pair.alone(Trial(((shapes.CONNECTIONS, STEPS),), (ROWS_ALONE,)))
    assert seen.states() == ["PD050"]
    assert seen.charged == []


# --- twins show the same ------------------------------------------------------------------------


def test_every_question_is_answered_where_nothing_is_hostile(either: Pair) -> None:
    """Otherwise the tests below would compare refusals only."""
    trial = Trial((), (*ALL, *SYNTHESES))
    first, second = either.run(trial)
    failed = [each.short() for each in (*first.asked, *second.asked) if each.state]
    assert not failed, "\n".join(failed)
    assert len(first.charged) >= sum(question.reads for question in trial.questions)
    assert (found := compare(trial, first, second)) is None, found
    asked = dict(zip((question.name for question in trial.questions), first.asked, strict=True))
    assert any("answered from the release" in n for n in asked["an answer from a release"].notices)
    methods = {str(row[3]) for row in first.charged}
    assert methods >= {"sampling", "sampling_published", "elastic", "residual", "sketch_published"}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_no_shape_makes_a_question_tell(either: Pair, shape: Shape) -> None:
    trial = Trial(((shape, STEPS),), (*FEW, *HEAVY_ROWS[::3]))
    assert (found := difference(either, trial)) is None, found


def test_no_depth_of_the_stack_tells(either: Pair, lockdown: bool) -> None:
    """Each of the depths, by turns before and after lockdown."""
    for step in range(lockdown, STEPS + 1, 2):
        shape, heavy = STACKS[step % len(STACKS)], HEAVY_ROWS[step % len(HEAVY_ROWS)]
        level = deepest(either, shape) * step // STEPS
        trial = Trial(((shape, level),), (heavy, EXCESSIVE))
        assert (found := difference(either, trial)) is None, found


@pytest.mark.parametrize("shape", STACKS, ids=lambda s: s.name)
def test_from_the_same_depth_on_a_release_is_refused_at_no_cost(either: Pair, shape: Shape) -> None:
    def at(level: int) -> Trial:
        return Trial(((shape, level),), (RELEASE,))

    refused, found = boundary(either, at, 0, deepest(either, shape))
    assert found is None, found
    assert 0 < refused < deepest(either, shape)
    seen = either.alone(at(refused))
    assert (seen.states(), seen.charged) == (["PD011"], [])


@pytest.mark.parametrize("shape", STACKS, ids=lambda s: s.name)
def test_at_any_depth_a_question_is_answered(either: Pair, shape: Shape) -> None:
    """It is read on the stack of the service session, so that the asker needs little of his own."""
    most = deepest(either, shape)
    for level in (0, most // 2, most * 9 // 10):
        seen = either.alone(Trial(((shape, level),), (HEAVY_ROWS[0],)))
        assert (seen.states(), len(seen.charged)) == ([""], 1)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.name)
def test_no_way_of_asking_tells(either: Pair, lockdown: bool, way: Way) -> None:
    """Before lockdown one half of the questions, after it the other."""
    hostile = ((shapes.LEAST_MEMORY, STEPS), (shapes.PREPARED, 1), (shapes.SETTINGS, 1))
    half = (WAYS.index(way) + lockdown) % 2
    trial = Trial(hostile, (*FEW[half::2], HEAVY_ROWS[WAYS.index(way) % len(HEAVY_ROWS)]), way)
    assert (found := difference(either, trial)) is None, found


@pytest.mark.parametrize("question", FEW[::3], ids=lambda q: q.name)
def test_where_locks_run_out_is_the_same(either: Pair, question: Question) -> None:
    """A question takes locks by relations, not by rows."""
    at, found = boundary(
        either, lambda n: Trial(((shapes.LOCKS, n / 5),), (question,)), 0, 5 * STEPS
    )
    assert 0 < at < 5 * STEPS
    assert found is None, found


def test_temporary_schemas_of_earlier_sessions_make_no_difference(pair: Pair) -> None:
    """Locks run out at the same place on both twins if only one still has these schemas."""
    drop = (
        "do $$ declare name text; begin for name in select nspname from pg_namespace"
        " where nspname ~ '^pg_(toast_)?temp_' loop execute format('drop schema %I cascade', name);"
        " end loop; end $$"
    )
    states = set()
    for free in range(40):
        trial = Trial(((shapes.LOCKS, STEPS - free / 5), (shapes.TEMP_TABLES, 0.1)), (NOTHING,))
        pair.admins[1].execute(drop)
        first, second = pair.run(trial)
        assert (found := compare(trial, first, second)) is None, found
        states.update(told.state for told in first.told if "many" in told.statement)
    assert states == {"53200", ""}
