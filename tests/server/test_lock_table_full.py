"""Whoever fills the lock table while a question is computed makes no question fail (sql/hook/locks.c).

Another session fills the table as soon as the charge is committed, and the caches of the service
session are emptied.  All locks that reading and storing need are held by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.hostile import world
from tests.server.hostile.questions import FEW, HEAVY_ROWS, KINDS, SYNTHESES, Question
from tests.server.hostile.shapes import Shape
from tests.server.hostile.trying import Pair, Trial, compare

#: The sessions of both twins share the lock table.
TURNS = Shape("the lock table is full from the charge on", shared=True)
FULL = """
import ctypes, psycopg
from dpsql.server.own_transactions import OwnTransactions
def filled():
    filler, held = psycopg.connect("CONNINFO", autocommit=True), 0
    for size in (1000, 100, 10, 1):
        try:
            while True:
                filler.execute(f"select pg_advisory_lock(n) from generate_series({held + 1}, {held + size}) as n")
                held += size
        except psycopg.Error as error:
            assert error.sqlstate == "53200", error
            held += size
    return filler
def around(run):
    def call(self, name, *rest):
        found = run(self, name, *rest)
        if name == "open" and found[0][0] == "charged":
            ctypes.PyDLL(None).ResetCatalogCaches()
            GD["filler"] = filled()
        elif name == "finish":
            GD["filler"].execute("select pg_advisory_unlock_all()")
            GD.pop("filler").close()
        return found
    return call
OwnTransactions.call = around(OwnTransactions.call)
"""
#: With the planted unit the count does not fit into bigint, so that it is counted again in numeric.
TWICE = Question(
    "a count that is counted again",
    (
        f"select dp_count(*) from {', '.join(f'call as c{n}' for n in range(8))}"
        f" where c0.person = {world.HEAVY} and {' and '.join(f'c{n}.person = c0.person' for n in range(1, 8))}",
    ),
)
MANY = f"""insert into call select 20000 + i, {world.HEAVY}, 'a', 7, 'b' from generate_series(1, 300) as i;"""
NEW = [TWICE, *(q for q in (*FEW, *SYNTHESES) if q.reads)]


@pytest.fixture(scope="module")
def pair(small: Any) -> Iterator[Pair]:
    with world.twins(small, world.PLANTED + MANY) as twins:
        for twin in twins:
            for relation in ("person", "shop", "reading", "edge", "road"):
                twin.sql(f"select dp.set_failure_limit('{relation}', 1000)", user="owner1")
        pair = Pair(twins)
        yield pair
        pair.close()


def answered(pair: Pair, *questions: Question) -> None:
    patch = FULL.replace("CONNINFO", pair.twins[0].cluster.conninfo())
    trial = Trial(((TURNS, 0),), questions, patch=patch)
    first, second = pair.run(trial)
    assert {*first.states(), *second.states()} == {""}, [
        t.short() for t in (*first.asked, *second.asked) if t.state
    ]
    assert len(first.charged) >= len(questions)
    assert (found := compare(trial, first, second)) is None, found


@pytest.mark.parametrize("question", NEW, ids=lambda q: q.name)
def test_the_first_question_of_a_session_does_not_fail(pair: Pair, question: Question) -> None:
    answered(pair, question)


def test_no_question_of_a_session_fails(pair: Pair) -> None:
    answered(pair, *(q for q in (*KINDS, *HEAVY_ROWS, *SYNTHESES) if q.reads))
