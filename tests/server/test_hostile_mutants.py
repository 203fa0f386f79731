"""Mutants of the harness of hostile sessions: a limit that rows decide is noticed.

`test_hostile.py` tries the code as it is; here it is made worse, and twins must differ.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.client.layout import run
from tests.conftest import Database
from tests.server.hostile import shapes, world
from tests.server.hostile.questions import EXCESSIVE, EXCESSIVE_RELEASE, KINDS, Question
from tests.server.hostile.shapes import STACKS, STEPS
from tests.server.hostile.trying import Pair, Trial, boundary, deepest, difference

PAIRS = next(q for q in KINDS if q.name == "all pairs of units")
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
