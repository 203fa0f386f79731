"""Stale statistics: LS <= S and S(H) <= exp(beta) S(H') on all neighbours of small histories.

A history is a set of *lives*.  A life has a key, versions of its row, and may be born after the
statistics were taken and dead before the answer; neighbours have one life more or less.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from dpsql.core import sensitivity, stale

sys.path.insert(0, str(Path(__file__).parent))
from joins import QUERIES, Instance, Query, Row


@dataclass(frozen=True)
class Life:
    relation: str
    key: int
    versions: tuple[Row, ...]
    born: bool
    dead: bool


History = tuple[Life, ...]


def old(query: Query, history: History) -> Instance:
    """The data when the statistics were taken."""
    return {
        r: tuple(x.versions[0] for x in history if x.relation == r and not x.born)
        for r in query.relations()
    }


def new(query: Query, history: History) -> Instance:
    """The data when the answer is computed."""
    return {
        r: tuple(x.versions[-1] for x in history if x.relation == r and not x.dead)
        for r in query.relations()
    }


def valid(query: Query, history: History, keys: bool) -> bool:
    for at_once in ("born", "dead"):
        here = [(x.relation, x.key) for x in history if not getattr(x, at_once)]
        if len(here) != len(set(here)):
            return False
    return not keys or (query.valid(old(query, history)) and query.valid(new(query, history)))


def lives(query: Query, relation: str, key: int, most: int) -> Iterator[Life]:
    rows = list(product(range(query.domain), repeat=query.arity(relation)))
    for length in range(1, most + 1):
        for versions in product(rows, repeat=length):
            for born, dead in product((False, True), repeat=2):
                yield Life(relation, key, versions, born, dead)


def neighbours(query: Query, history: History, keys: bool) -> Iterator[History]:
    private = [r for r in query.relations() if r not in query.public]
    for i, life in enumerate(history):
        if life.relation in private:
            yield history[:i] + history[i + 1 :]
    for relation in private:
        most = 2 if query.domain ** query.arity(relation) <= 4 else 1
        for life in lives(query, relation, 99, most):
            if valid(query, (*history, life), keys):
                yield (*history, life)


def sample(query: Query, generator: random.Random, keys: bool) -> History:
    history: History = ()
    for _ in range(generator.randrange(3, 9)):
        relation = generator.choice(query.relations())
        versions = tuple(
            tuple(generator.randrange(query.domain) for _ in range(query.arity(relation)))
            for _ in range(generator.randrange(1, 4))
        )
        key = generator.randrange(4)
        life = Life(relation, key, versions, *(generator.random() < 0.4 for _ in "ab"))
        if valid(query, (*history, life), keys):
            history = (*history, life)
    return history


def shift(history: History, relation: str) -> int:
    own = [x for x in history if x.relation == relation]
    updated = {x.key for x in own if len(x.versions) > 1}
    return stale.shift(sum(x.born for x in own), len(updated))


def operations(history: History, relation: str) -> int:
    """Count inserts and updates one by one: what a mutant does."""
    own = [x for x in history if x.relation == relation]
    return sum(x.born + len(x.versions) - 1 for x in own)


class Bound:
    """``max(S, 1)`` of a history, remembered by what it is computed from."""

    def __init__(
        self,
        query: Query,
        method: str = "residual",
        keys: bool = False,
        beta: float = 0.6,
        count: Callable[[History, str], int] = shift,
        share: float = 1,
        refresh_at: float = math.inf,
    ) -> None:
        self.query, self.method, self.keys, self.beta = query, method, keys, beta
        self.count, self.share, self.refresh_at = count, share, refresh_at
        self.shape = query.shape()
        names: dict[str, int] = {}
        order = sorted(range(len(query.occurrences)), key=lambda i: self.shape.physical[i] is None)
        for i in order:
            names.setdefault(query.occurrences[i][0], len(names))
        self.names = names
        self.numbers = tuple(names[r] for r, _ in query.occurrences)
        self.needs = sorted(
            stale.required(self.shape, self.numbers, method, keys),
            key=lambda b: (sorted(b.occurrences), sorted(b.attributes)),
        )
        self.known: dict[object, float] = {}

    def __call__(self, history: History) -> float:
        shifts = tuple(self.count(history, r) for r in self.names)
        data = old(self.query, history)
        if sum(shifts) > self.refresh_at:
            data, shifts = new(self.query, history), (0,) * len(shifts)
        values = tuple(self.query.boundary(data, b) for b in self.needs)
        if (values, shifts) not in self.known:
            measured = dict(zip(self.needs, values, strict=True))
            found = stale.bound(
                self.shape,
                self.numbers,
                measured,
                shifts,
                self.beta * self.share,
                self.method,
                self.keys,
            )
            self.known[values, shifts] = max(found.value, 1.0)
        return self.known[values, shifts]


def broken(bound: Bound, history: History) -> str | None:
    """Tell which promise fails between a history and its neighbours."""
    query = bound.query
    here, count = bound(history), query.count(new(query, history))
    for other in neighbours(query, history, bound.keys):
        there = bound(other)
        if abs(query.count(new(query, other)) - count) > min(here, there):
            return "bound"
        if abs(math.log(here / there)) > bound.beta + 2e-9:
            return "smooth"
    return None


CASES = [
    (query, method, keys)
    for query in QUERIES
    for method, keys in (("residual", False), ("residual", True), ("elastic", False))
    if (query.keys or not keys) and not sensitivity.is_public(query.shape(), method, keys)
]


@pytest.mark.parametrize(("query", "method", "keys"), CASES, ids=lambda v: getattr(v, "name", v))
@pytest.mark.parametrize("beta", [0.6, 2.0])
def test_bound_covers_the_answer_and_is_smooth_in_histories(
    query: Query, method: str, keys: bool, beta: float
) -> None:
    generator = random.Random(f"{query.name} {method} {keys}")
    bound = Bound(query, method, keys, beta)
    for _ in range(8):
        history = sample(query, generator, keys)
        assert broken(bound, history) is None, history


TWO = next(q for q in QUERIES if q.name == "two")
TRIANGLE = replace(next(q for q in QUERIES if q.name == "self_triangle"), domain=1)

MUTANTS = {
    "changes forgotten": (Bound(TWO, beta=3.0, count=lambda h, r: 0), "bound"),
    "updates forgotten": (
        Bound(TWO, beta=3.0, count=lambda h, r: sum(x.born for x in h if x.relation == r)),
        "bound",
    ),
    "inserts forgotten": (
        Bound(
            TWO,
            beta=3.0,
            count=lambda h, r: len({x.key for x in h if x.relation == r and len(x.versions) > 1}),
        ),
        "bound",
    ),
    "beta not divided": (Bound(TRIANGLE, beta=0.3, share=stale.FACTOR), "smooth"),
    "operations counted": (Bound(TRIANGLE, beta=0.3, count=operations), "smooth"),
    "refreshed by the amount of change": (Bound(TWO, beta=0.3, refresh_at=4), "smooth"),
}


def adversarial(name: str) -> Iterator[History]:
    """Histories on which a mutant should fail; the real thing must not."""
    if name.startswith("refreshed"):
        gone = tuple(Life("s", i, ((0,),), False, True) for i in range(40))
        some = tuple(Life("r", i, ((0,),), True, True) for i in range(4))
        yield gone + some
    elif name in ("beta not divided", "operations counted"):
        updates = 2 if name == "beta not divided" else 12
        rows = tuple(Life("r", i, ((0, 0),), False, False) for i in range(4))
        yield (*rows, Life("r", 50, ((0, 0),) * updates, False, False))
    else:
        moved = tuple(Life("s", i, ((i % 2,), (0,)), False, False) for i in range(9))
        born = tuple(Life("s", 10 + i, ((0,),), True, False) for i in range(9))
        yield moved if name == "updates forgotten" else born


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught_where_the_real_bound_holds(name: str) -> None:
    mutant, promise = MUTANTS[name]
    real = Bound(mutant.query, mutant.method, mutant.keys, mutant.beta)
    found = set()
    for history in adversarial(name):
        assert broken(real, history) is None, history
        found.add(broken(mutant, history))
    assert promise in found
