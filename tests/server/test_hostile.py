"""Hostile sessions show the same on twin databases of which only one has an expensive row.

If the stack, locks, files, buffers or connections are nearly used up, or if there are thousands of
cursors, each question ends on both twins with the same SQLSTATE, texts, notices and charges.  `make test`
tries a fixed selection; ``HOSTILE_SECONDS=3600`` tries random combinations for an hour, as ``make
hunt`` does, and ``HOSTILE_SEED=n`` repeats a run.
"""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.client.layout import run
from tests.conftest import Database, start_server
from tests.server.hostile import shapes, world
from tests.server.hostile.questions import (
    EXCESSIVE,
    EXCESSIVE_RELEASE,
    FEW,
    HEAVY_ROWS,
    KINDS,
    SYNTHESES,
    Question,
)
from tests.server.hostile.randomly import Hunter
from tests.server.hostile.shapes import SHAPES, STACKS, STEPS, Shape
from tests.server.hostile.trying import Pair, Trial, boundary, compare, deepest, difference
from tests.server.hostile.ways import WAYS, Way

ALL = (*KINDS, *HEAVY_ROWS)
ROWS_ALONE = next(q for q in KINDS if q.name == "rows")
RELEASE = next(q for q in HEAVY_ROWS if q.name == "a pattern in a release")
PAIRS = next(q for q in KINDS if q.name == "all pairs of units")
NOTHING = Question("nothing", ("select 1",), reads=False)
#: Random trials of `make test`, and the seconds of `make hunt`.
TRIALS = 12
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "0"))
SEED = os.environ.get("HOSTILE_SEED", "2026")


@pytest.fixture(scope="module")
def small(installation: None) -> Iterator[Any]:
    """A server of small limits."""
    server = start_server(**world.LIMITS)
    yield server
    server.remove()


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


def test_no_depth_of_the_stack_tells(either: Pair) -> None:
    for step in range(STEPS + 1):
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


# --- random sessions ----------------------------------------------------------------------------


def test_random_sessions_tell_nothing(small: Any) -> None:
    seed = random.SystemRandom().randrange(10**9) if SEED == "random" else int(SEED)
    print(f"HOSTILE_SEED={seed}")  # noqa: T201
    end = time.monotonic() + SECONDS
    with Hunter(small, seed, world.DIFFERENCES if SECONDS else world.DIFFERENCES[1::2]) as hunter:
        while time.monotonic() < end if SECONDS else hunter.tried < TRIALS:
            hunter.hunt()
        print(hunter.summary())  # noqa: T201
        assert not hunter.found, f"HOSTILE_SEED={seed}\n" + "\n\n".join(hunter.found[:20])
        assert hunter.answered > hunter.tried / 4


# --- mutants are caught ------------------------------------------------------------------------

#: A mutant: a limit on the bytes of the rows that were read.
ROWS_DECIDE = """
import sys
import dpsql.statistics.reading as reading
fetch = reading.fetch
def limited(*args, **named):
    found = fetch(*args, **named)
    if found is not None and len(found) > {limit}:
        raise MemoryError
    return found
for module in list(sys.modules.values()):
    if getattr(module, "fetch", None) is fetch:
        module.fetch = limited
"""


_TEXTS = " = ".join(f"{x}.c_note || {x}.c_note || {x}.c_id::text" for x in "xy")
_JOINED = f"from call as x join call as y on {_TEXTS}"
SPILLS = Question("a join on texts", (f"select dp_count(*) {_JOINED}",))
SPILLS_RELEASE = Question("a join on texts in a release", (f"select dp.release('r{{n}}', $$ select x.c_kind, dp_count(*) {_JOINED} group by 1 $$, 0.01, 1e-12)",))  # fmt: skip


@pytest.fixture(scope="module")
def unlimited(small: Any) -> Iterator[Pair]:
    """Twins whose owners allow a thousand failures, so that a mutant can be run repeatedly."""
    with world.twins(small) as twins:
        for database in twins:
            database.sql(UNLIMITED, user="owner1")
        made = Pair(twins)
        yield made
        made.close()


def at_limit(limit: int) -> Trial:
    """Return a question of the mutant."""
    return Trial((), (PAIRS,), patch=ROWS_DECIDE.format(limit=limit))


def test_a_limit_that_rows_decide_is_noticed(unlimited: Pair) -> None:
    limit, found = boundary(unlimited, at_limit, 0, 1 << 20)
    assert 0 < limit < 1 << 20
    assert found is not None
    assert "PD900" in found.what


UNLIMITED = "select dp.set_failure_limit(r, 1000) from unnest('{person,shop}'::regclass[]) as r"
#: A mutant: a function of the library returns at its first instruction.
WITHOUT = """
import ctypes
(first, *_) = [line.split() for line in open("/proc/self/maps") if "/dpsql.so" in line]
place = int(first[0].split("-")[0], 16) + {offset}
libc, page = ctypes.CDLL(None, use_errno=True), place & ~4095
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
assert libc.mprotect(page, 8192, 7) == 0
code = bytes.fromhex({code!r})
ctypes.memmove(place, code, len(code))
"""
ANY_PATTERN = "import dpsql.query.constants as constants\nconstants.MAX_WILDCARDS = 10**6\n"
RETURN = {"x86_64": "c3", "aarch64": "c0035fd6"}


def without(server: Any, function: str) -> str:
    """Return the patch that removes a function of the library from a backend."""
    (library,) = Database(server.cluster, "postgres").sql("select setting from pg_config where name = 'PKGLIBDIR'")[0]  # fmt: skip
    symbols = run(["nm", f"{library}/dpsql.so"]).splitlines()
    (offset,) = (int(line.split()[0], 16) for line in symbols if line.endswith(f" {function}"))
    return WITHOUT.format(offset=offset, code=RETURN[platform.machine()])


def exhausting(pair: Pair, small: Any, question: Question) -> Iterator[Trial]:
    """Yield trials without the check of the stack, with less and less of it in use."""
    (shape, *_) = STACKS
    most, patch = deepest(pair, shape), ANY_PATTERN + without(small, "require_stack")
    for step in range(STEPS - 1, 0, -1):
        yield Trial(((shape, most * step // STEPS),), (question,), patch=patch)


def test_nothing_of_a_session_can_be_exhausted_by_rows(unlimited: Pair, small: Any) -> None:
    """Rows are read in the service session: without its checks, the asker's shows nothing either."""
    files = ((shapes.LEAST_MEMORY, STEPS), (shapes.FILES, STEPS))
    questions = list(exhausting(unlimited, small, EXCESSIVE))[::4]
    questions.append(Trial(files, (SPILLS,)))
    releases = list(exhausting(unlimited, small, EXCESSIVE_RELEASE))[::4]
    releases.append(Trial(files, (SPILLS_RELEASE,)))
    for trial in (*questions, *releases):
        assert (found := difference(unlimited, trial)) is None, found
    for trial in questions:
        assert unlimited.alone(trial).states() == [""]


def test_failures_that_nothing_ends_are_noticed(unlimited: Pair, small: Any) -> None:
    """If rows can reach a limit, three failures show it; without the limit on failures, each one does."""
    limit, _ = boundary(unlimited, at_limit, 0, 1 << 20)
    telling = next(t for t in map(at_limit, (limit, limit - 1)) if difference(unlimited, t))
    states = [unlimited.run(telling)[1].states() for _ in range(6)]
    assert states == [["PD900"]] * 6
    with world.twins(small) as twins:
        ended = Pair(twins)
        states = [ended.run(telling)[1].states() for _ in range(6)]
        ended.close()
    assert states == [["PD900"]] * 3 + [["PD003"]] * 3
