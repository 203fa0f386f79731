"""Which sets a bound may count by their core: the growth that its proof needs, and mutants.

docs/proofs/residual.md, "Few rows": of any core that determines the rest and any sets that are
counted by it, closed downwards, ``L^s(I) <= L^(s + e)(I')`` for neighbours that satisfy the keys.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import ClassVar

import pytest

from dpsql.core import far, residual
from dpsql.core.chase import attributes, determined
from dpsql.core.polynomial import evaluate

sys.path.insert(0, str(Path(__file__).parent))
from joins import Instance, Query


class AnyNarrowing(far.Narrowing):
    """Any core that the proof allows, and any sets that are counted by theirs."""

    source: ClassVar[random.Random]
    #: Mutants: subsets of what is counted by its core are not; a core that determines nothing.
    closed: ClassVar[bool] = True
    keyed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        order = self.source.sample(sorted(self.rest), len(self.rest))
        self.core = self.rest
        for i in order:
            others = self.core - {i}
            told = determined(
                self.shape, self.rest - others, self.fixed | attributes(self.shape, others)
            )
            allowed = told == self.rest - others or not self.keyed
            if allowed and self.source.random() < 0.7:
                self.core = others
        self._known = {}

    def _heavy(self, occurrences: frozenset[int]) -> bool:
        return occurrences != self.rest and self.source.random() < 0.4

    def narrowed(self, occurrences: frozenset[int]) -> bool:
        if self.closed or occurrences in self._known:
            return far.Narrowing.narrowed(self, occurrences)
        self._known[occurrences] = self.core != self.rest and self._heavy(occurrences)
        return self._known[occurrences]


def grows(query: Query, instance: Instance, other: Instance, seed: int) -> str:
    """Say where the bound of a neighbour, one step farther, is less than the bound here."""
    shape = query.shape()
    numbers = [
        name
        for name, p in zip((n for n, _ in query.occurrences), shape.physical, strict=True)
        if p is not None
    ]
    moved = next(name for name in other if other[name] != instance[name])
    number = list(dict.fromkeys(numbers)).index(moved)
    for relation in range(shape.private_count):
        found = []
        # the bound of one relation's rows alone: it is made the first
        change = {relation: 0, 0: relation}
        alone = replace(
            shape, physical=tuple(None if p is None else change.get(p, p) for p in shape.physical)
        )
        for i in (instance, other):
            AnyNarrowing.source = random.Random(seed)
            look = partial(query.boundary, i)
            found.append(residual._candidate(alone, residual.NARROW, look, lambda: None, 1))
        step = change.get(number, number)
        for point in product(range(3), repeat=shape.private_count):
            farther = tuple(s + (k == step) for k, s in enumerate(point))
            for near, there in (found, found[::-1]):
                a = max(evaluate(p, point) for p in near)
                b = max(evaluate(p, farther) for p in there)
                if a > b:
                    return f"{relation} at {point}: {a} and not {b}"
    return ""


#: Without ``s`` nothing tells which row of ``y`` is the one; ``r`` is a component of its own.
APART = Query(
    "apart",
    (("x", (0, 2)), ("s", (0, 1)), ("y", (1,)), ("r", (2,))),
    frozenset({"s"}),
    (("s", (0,)), ("y", (0,))),
)


def keyed_query(generator: random.Random) -> Query:
    """Draw relations with keys, of which one residual at least has something to leave out."""
    while True:
        count, width = generator.randrange(4, 6), generator.randrange(3, 6)
        names = [f"r{i}" for i in range(count)]
        occurrences = []
        for name in names:
            columns = generator.sample(range(width), min(width, generator.choice((1, 2, 2, 3))))
            occurrences.append((name, tuple(columns)))
        keys = tuple((n, (0,)) for n in names if generator.random() < 0.6)
        public = frozenset(names) - set(generator.sample(names, 3))
        query = Query("random", tuple(occurrences), public, keys)
        shape = query.shape()
        everything = frozenset(range(count))
        for i in (n for n in everything if shape.physical[n] is not None):
            rest, fixed = everything - {i}, shape.boundary(everything - {i})
            if any(
                determined(shape, frozenset({j}), fixed | attributes(shape, rest - {j}))
                for j in rest
            ):
                return query


def some(query: Query, generator: random.Random) -> Instance:
    """Draw more rows than `Query.sample` does, and now and then no row."""
    instance: Instance = dict.fromkeys(query.relations(), ())
    for name in query.relations():
        for _ in range(generator.choice((0, 2, 4, 8))):
            row = tuple(generator.randrange(2) for _ in range(query.arity(name)))
            more = {**instance, name: (*instance[name], row)}
            if query.valid(more):
                instance = more
    return instance


def disagreements(seed: int, number: int) -> Iterator[str]:
    """Say what random queries and instances contradict of the proof."""
    generator = random.Random(seed)
    for _ in range(number):
        query = APART if generator.random() < 0.3 else keyed_query(generator)
        instance = some(query, generator)
        near = [*query.neighbours(instance, True)]
        for other in generator.sample(near, min(len(near), 6)):
            wrong = grows(query, instance, other, generator.randrange(2**32))
            if wrong:
                yield f"{query} {instance} {other}: {wrong}"


@pytest.fixture(autouse=True)
def any_narrowing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow in any way, and peel nothing before."""
    monkeypatch.setattr(residual, "Narrowing", AnyNarrowing)
    monkeypatch.setattr(residual, "peel", lambda shape, rest, fixed: rest)


def test_the_bound_of_a_neighbour_one_step_farther_is_at_least_as_large() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    assert not [*disagreements(seed, 600)]


@pytest.mark.parametrize("mutant", ["keyed", "closed", "least", "sure", "edge"])
def test_mutants_are_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one condition of the proof, left out."""
    if mutant in ("keyed", "closed"):
        monkeypatch.setattr(AnyNarrowing, mutant, False)
    elif mutant == "least":  # an empty core is 0 where what it stands for was 1
        counted = residual._Residual.counted
        monkeypatch.setattr(
            residual._Residual, "counted", lambda self, left: (counted(self, left)[0], 0)
        )
    elif mutant == "sure":  # what only left out occurrences determine is capped
        found = residual._residual

        def uncut(*given: object) -> residual._Residual:
            r = found(*given)
            return replace(r, sure=determined(given[0], r.rest, r.fixed)) if r.narrowing else r

        monkeypatch.setattr(residual, "_residual", uncut)
    else:  # what is left out is taken to be fixed
        text = inspect.getsource(residual._count_terms)
        changed = text.replace("rest - left)\n", "rest - residual.counted(left)[0])\n")
        assert changed != text
        space = dict(vars(residual))
        exec(changed, space)
        monkeypatch.setattr(residual, "_count_terms", space["_count_terms"])
    assert any(disagreements(1, 600))
