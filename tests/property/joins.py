"""A brute-force join counter over tiny instances: the yardstick of the sensitivity tests."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from dpsql.model import Boundary, Shape

Row = tuple[int, ...]
Instance = dict[str, tuple[Row, ...]]


@dataclass(frozen=True)
class Query:
    """Occurrences as (relation name, attribute per column); keys as column positions."""

    name: str
    occurrences: tuple[tuple[str, tuple[int, ...]], ...]
    public: frozenset[str] = frozenset()
    keys: tuple[tuple[str, tuple[int, ...]], ...] = ()
    domain: int = 2

    def shape(self) -> Shape:
        numbers: dict[str, int] = {}
        physical: list[int | None] = []
        for relation, _ in self.occurrences:
            if relation in self.public:
                physical.append(None)
            else:
                physical.append(numbers.setdefault(relation, len(numbers)))
        return Shape(
            tuple(frozenset(columns) for _, columns in self.occurrences),
            tuple(physical),
            tuple(
                tuple(frozenset(columns[c] for c in key) for r, key in self.keys if r == relation)
                for relation, columns in self.occurrences
            ),
        )

    def arity(self, relation: str) -> int:
        return next(len(columns) for r, columns in self.occurrences if r == relation)

    def relations(self) -> list[str]:
        return sorted({r for r, _ in self.occurrences})

    def valid(self, instance: Instance) -> bool:
        for relation, key in self.keys:
            seen = [tuple(row[c] for c in key) for row in instance[relation]]
            if len(seen) != len(set(seen)):
                return False
        return True

    def results(self, instance: Instance, occurrences: list[int]) -> Iterator[dict[int, int]]:
        found: list[dict[int, int]] = [{}]
        for i in occurrences:
            relation, columns = self.occurrences[i]
            grown = []
            for binding in found:
                for row in instance[relation]:
                    new = dict(binding)
                    if all(new.setdefault(a, v) == v for a, v in zip(columns, row, strict=True)):
                        grown.append(new)
            found = grown
        yield from found

    def count(self, instance: Instance) -> int:
        return sum(1 for _ in self.results(instance, list(range(len(self.occurrences)))))

    def boundary(self, instance: Instance, wanted: Boundary) -> int:
        attributes = sorted(wanted.attributes)
        groups = Counter(
            tuple(binding[a] for a in attributes)
            for binding in self.results(instance, sorted(wanted.occurrences))
        )
        return max(groups.values(), default=0)

    def neighbours(self, instance: Instance, with_keys: bool) -> Iterator[Instance]:
        for relation in self.relations():
            if relation in self.public:
                continue
            rows = instance[relation]
            for row in sorted(set(rows)):
                at = rows.index(row)
                yield {**instance, relation: rows[:at] + rows[at + 1 :]}
            for row in product(range(self.domain), repeat=self.arity(relation)):
                new = {**instance, relation: (*rows, row)}
                if not with_keys or self.valid(new):
                    yield new

    def sample(self, generator: random.Random, with_keys: bool) -> Instance:
        instance: Instance = {}
        for relation in self.relations():
            instance[relation] = ()
            for _ in range(generator.randrange(6)):
                row = tuple(generator.randrange(self.domain) for _ in range(self.arity(relation)))
                new = {**instance, relation: (*instance[relation], row)}
                full = {r: new.get(r, ()) for r in self.relations()}
                if not with_keys or self.valid(full):
                    instance = new
        return instance


QUERIES = (
    Query("two", (("r", (0,)), ("s", (0,)))),
    Query("path", (("r", (0,)), ("s", (0, 1)), ("t", (1,)))),
    Query("triangle", (("r", (0, 1)), ("s", (1, 2)), ("t", (2, 0)))),
    Query("triangle_public", (("r", (0, 1)), ("s", (1, 2)), ("t", (2, 0))), frozenset("s")),
    Query("self_path", (("r", (0, 1)), ("r", (1, 2)))),
    Query("self_triangle", (("r", (0, 1)), ("r", (1, 2)), ("r", (2, 0)))),
    Query("self_mixed", (("r", (0, 1)), ("s", (1, 2)), ("r", (2, 3)), ("t", (3,)))),
    Query("cross", (("r", (0,)), ("s", (0,)), ("t", (1,)), ("u", (1,)))),
    Query("keyed_two", (("r", (0,)), ("s", (0,))), keys=(("r", (0,)),), domain=3),
    Query(
        "keyed_path",
        (("n", (0,)), ("c", (0, 1)), ("o", (1, 2)), ("l", (2, 3)), ("s", (3,))),
        frozenset("n"),
        (("n", (0,)), ("c", (1,)), ("o", (1,)), ("s", (0,))),
    ),
    Query(
        "keyed_star",
        (("f", (0, 1)), ("a", (0,)), ("b", (1, 2)), ("c", (2,))),
        keys=(("a", (0,)), ("b", (0,)), ("c", (0,))),
    ),
    Query("keyed_pair", (("f", (0, 1, 2)), ("p", (0, 1)), ("s", (1,))), keys=(("p", (0, 1)),)),
    Query(
        "keyed_cycle",
        (("s", (0, 3)), ("l", (0, 1)), ("o", (1, 2)), ("c", (2, 3))),
        keys=(("s", (0,)), ("o", (0,)), ("c", (0,))),
    ),
    Query(
        "keyed_self",
        (("e", (0, 1)), ("e", (1, 2)), ("t", (2,))),
        keys=(("e", (0,)),),
        domain=3,
    ),
)
