"""The largest joins that are allowed stay cheap to plan, and planning can be cancelled."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest

from dpsql.core import residual, sensitivity
from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.query.elimination import make_plan
from dpsql.query.flatten import MAX_OCCURRENCES
from dpsql.query.pipeline import MAX_PRIVATE_OCCURRENCES
from dpsql.relation import Column, Relation
from tests.expressions import parsed

CPU_SECONDS = 5.0  # measured: 2 s
GAP_SECONDS = 0.2  # measured: 0.03 s
#: A machine that stops for a moment, or is slow for some seconds, is asked again.
MORE_TRIES = 9


def edges(kind: str, n: int) -> list[tuple[int, ...]]:
    every: dict[str, list[tuple[int, ...]]] = {
        "cross": [],
        "chain": [(i, i + 1) for i in range(n - 1)],
        "cycle": [(i, (i + 1) % n) for i in range(n)],
        "star": [(0, i) for i in range(1, n)],
        "clique": list(combinations(range(n), 2)),
        "one": [tuple(range(n))],
    }
    return every[kind]


def largest(kind: str, *, private: int, total: int, alike: bool, keys: bool) -> JoinQuery:
    """Join ``total`` occurrences, the last ``private`` of them protected."""
    attributes = edges(kind, total)
    columns = tuple(Column(f"c{a}", 23, "integer", True) for a in range(len(attributes)))
    occurrences = []
    for i in range(total):
        mine = [a for a, where in enumerate(attributes) if i in where]
        protected = i >= total - private
        oid = 1 if alike and protected else i + 2
        key = ((f"c{mine[0]}",),) if keys and mine else ()
        root = oid if protected else 0
        relation = Relation(oid, "public", f"t{oid}", protected, root, columns, key)
        uses = tuple(AttributeUse(a, parsed(f'r{i}."c{a}"'), f"c{a}") for a in mine)
        occurrences.append(Occurrence(i, relation, uses))
    numbered = tuple(Attribute(a, "integer", True) for a in range(len(attributes)))
    return JoinQuery(tuple(occurrences), numbered)


@pytest.fixture(autouse=True)
def _others_garbage() -> Iterator[None]:
    """Keep what a whole run has left in memory out of the collector's pauses (0.2 s)."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("kind", ["cross", "chain", "cycle", "star", "clique", "one"])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("total", [MAX_PRIVATE_OCCURRENCES, MAX_OCCURRENCES])
def test_the_largest_joins_are_planned_soon_and_can_be_cancelled(
    kind: str, alike: bool, total: int
) -> None:
    """Each piece of the work counts as in the fastest try: none is as slow by itself in all."""
    query = largest(kind, private=MAX_PRIVATE_OCCURRENCES, total=total, alike=alike, keys=alike)
    gaps = planning(query)
    for _ in range(MORE_TRIES):
        if sum(gaps) < CPU_SECONDS and max(gaps) < GAP_SECONDS:
            break
        gaps = [min(pair) for pair in zip(gaps, planning(query), strict=True)]
    assert sum(gaps) < CPU_SECONDS
    assert max(gaps) < GAP_SECONDS


def planning(query: JoinQuery) -> list[float]:
    """Plan, with nothing known from before; return the processor's seconds between two ticks."""
    residual._known_needs.clear()
    residual._known_sums.clear()
    shape = query.shape()
    moments = [time.process_time()]

    def tick() -> None:
        moments.append(time.process_time())

    public = sensitivity.is_public(shape, tick=tick)
    needed = sensitivity.required(shape, tick=tick)
    make_plan(query, needed, tick=tick)
    if not public and len(query.occurrences) == MAX_PRIVATE_OCCURRENCES:
        values = {b: 1000 ** len(b.occurrences) for b in needed}
        sensitivity.bound(shape, values, 0.02, tick=tick)
    tick()
    return [after - before for before, after in pairwise(moments)]
