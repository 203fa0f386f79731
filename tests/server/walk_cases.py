"""Queries, data and runs for the tests of sampled boundaries: what walks decide, and how often.

Tables are tiny and stay for many runs; what a run reads without drawing is kept, so that a run
costs little more than its walks.  Seeds are printed.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from dpsql.core.residual import required
from dpsql.core.sampling import Estimate
from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence
from dpsql.relation import Column, Relation
from dpsql.statistics import certified, walks
from dpsql.statistics.chains import walkable
from dpsql.statistics.counts import count
from dpsql.statistics.walks import Runner, estimate
from tests.expressions import parsed
from tests.property.random_joins import SnapshotDatabase

Edges = list[tuple[int | None, int | None]]
Data = Callable[[random.Random, str], list[Edges]]
TABLES = 5
#: Runs between two draws of the data.
KEPT = 10
#: Boundaries that a run wants, at most.
ASKED = 3


def join(joins: list[tuple[int, int]], names: list[str]) -> JoinQuery:
    """Join edge tables, the i-th on attributes ``joins[i]``; -1 is no attribute."""
    columns = (Column("a", 23, "integer", False), Column("b", 23, "integer", False))
    occurrences = tuple(
        Occurrence(
            i,
            Relation(i + 1, "public", name, True, i + 1, columns),
            tuple(
                AttributeUse(x, parsed(f"r{i}.{column}"), column)
                for x, column in zip(pair, "ab", strict=True)
                if x >= 0
            ),
        )
        for i, (pair, name) in enumerate(zip(joins, names, strict=True))
    )
    number = 1 + max(max(pair) for pair in joins)
    return JoinQuery(occurrences, tuple(Attribute(a, "integer", True) for a in range(number)))


def path(length: int) -> JoinQuery:
    pairs = [(i - 1, i if i < length - 1 else -1) for i in range(length)]
    return join(pairs, [f"e{i}" for i in range(1, length + 1)])


def cycle(length: int) -> JoinQuery:
    pairs = [(i, (i + 1) % length) for i in range(length)]
    return join(pairs, [f"e{i}" for i in range(1, length + 1)])


QUERIES = {"Q4": path(TABLES), "Q5": cycle(3), "Q6": cycle(4), "Q7": cycle(5)}


def zipf(generator: random.Random, exponent: float, values: int, rows: int) -> list[int]:
    weights = [1 / (k + 1) ** exponent for k in range(values)]
    return generator.choices(range(values), weights, k=rows)


def rivals(
    name: str, parallel: Sequence[int], dead: Sequence[int], generator: random.Random
) -> list[Edges]:
    """Parallel edges from each node to itself, and edges to and from its own dead ends.

    Node v has ``parallel[v]`` and ``dead[v]`` of them, so that k relations give it
    ``parallel[v] ** k`` results and no other node any.  At the two ends of a path dead ends would
    be results: there are none in those tables.
    """
    numbers = list(range(len(parallel)))
    generator.shuffle(numbers)
    core: Edges = [(v, v) for v, n in zip(numbers, parallel, strict=True) for _ in range(n)]
    lost = [v for v, n in zip(numbers, dead, strict=True) for _ in range(n)]
    middle: Edges = [*core, *((v, 1000 + i) for i, v in enumerate(lost))]
    middle += [(5000 + i, v) for i, v in enumerate(lost)]
    ends = (0, TABLES - 1) if name == "Q4" else ()
    return [core if table in ends else middle for table in range(TABLES)]


def hub(generator: random.Random, name: str) -> list[Edges]:
    """One node with many edges that lead nowhere and, by a hair, the most results.

    The first look hardly sees them; what it finds is the rival without dead ends.
    """
    return rivals(name, [40, *[39] * 3, *[20] * 4], [60, *[0] * 3, *[20] * 4], generator)


def lost(generator: random.Random, name: str) -> list[Edges]:
    """One node with most edges, nearly all of which lead nowhere; the results are elsewhere."""
    return rivals(name, [10, 30, 29, 29, *[15] * 4], [60, 10, *[15] * 6], generator)


def even(generator: random.Random, _name: str) -> list[Edges]:
    """Groups of nearly one size."""

    def chance() -> Edges:
        return [(generator.randrange(6), generator.randrange(6)) for _ in range(60)]

    return [chance() for _ in range(TABLES)]


def plateau(generator: random.Random, name: str) -> list[Edges]:
    """Groups of one size, hard to leave behind, below one that few of its rows lead to."""
    return rivals(name, [20, *[19] * 4, *[12] * 4], [30, *[0] * 4, *[8] * 4], generator)


def skewed(generator: random.Random, name: str) -> list[Edges]:
    """Zipf's law at 1.5 behind three leaders; dead ends make all degrees the same."""
    parallel = [30, 29, 29, *(round(30 / rank**1.5) for rank in range(2, 7))]
    return rivals(name, parallel, [45 - n for n in parallel], generator)


def network(generator: random.Random, _name: str) -> list[Edges]:
    """Friends of friends: a few circles and some chance."""

    def circles() -> Edges:
        chosen = [generator.randrange(6) for _ in range(300)]
        return [
            (10 * c + generator.randrange(3 + 2 * c), 10 * c + generator.randrange(3 + 2 * c))
            for c in chosen
        ]

    return [circles() for _ in range(TABLES)]


def empty(generator: random.Random, _name: str) -> list[Edges]:
    """Edges that never meet: all longer paths have no result."""

    def apart() -> Edges:
        return [(generator.randrange(50), 100 + generator.randrange(50)) for _ in range(200)]

    return [apart() for _ in range(TABLES)]


DATA: dict[str, Data] = {f.__name__: f for f in (hub, lost, plateau, even, skewed, network)}


@contextmanager
def open_session(server: Any) -> Iterator[psycopg.Connection[Any]]:
    """Open a session on a database with the tables."""
    database = server.create_database()
    with database.connect() as connection:
        for i in range(1, TABLES + 1):
            connection.execute(f"create table e{i} (a integer, b integer)")
        yield connection
    server.drop_database(database)


def fill(session: psycopg.Connection[Any], edges: list[Edges]) -> None:
    for i, rows in enumerate(edges, 1):
        session.execute(f"truncate e{i}")
        with session.cursor().copy(f"copy e{i} from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        session.execute(f"analyze e{i}")


def walk(
    session: psycopg.Connection[Any], query: JoinQuery, wanted: frozenset[Boundary], **options: Any
) -> dict[Boundary, Estimate]:
    arguments = {"rate": 1.0, "eta": 0.05, "alpha": 0.7, "key": secrets.token_bytes(16)} | options
    print(f"key {arguments['key'].hex()}")  # noqa: T201
    return estimate(query, wanted, SnapshotDatabase(session), **arguments)


def holds(true: dict[Boundary, int], found: dict[Boundary, Estimate], alpha: float) -> bool:
    """Whether every value lies between its boundary and what alpha allows above it."""
    return all(
        true[b] <= e.value <= (true[b] if e.exact else math.exp(alpha) * max(true[b], 1))
        for b, e in found.items()
    )


class Remembering(SnapshotDatabase):
    """Answers a statement that does not draw from memory: the data stay as they are."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self.known: dict[tuple[str, str], list[tuple[object, ...]]] = {}

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        if any(kind == "bytea" for kind, _ in parameters):
            return super().execute(sql, parameters)
        question = sql, repr(parameters)
        if question not in self.known:
            self.known[question] = super().execute(sql, parameters)
        return self.known[question]


@dataclass(slots=True)
class Outcome:
    """What became of some runs.

    A search is ``settled`` by walks when it ended, in a value, after walks had refuted starts or
    given both ends; in ``between`` the value rests on both ends.  The ``others`` were counted.
    """

    runs: int = 0
    failed: int = 0
    rounds: int = 0
    refuted: int = 0
    settled: int = 0
    between: int = 0
    others: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        names = self.__slots__
        return Outcome(*(getattr(self, n) + getattr(other, n) for n in names))


def watch(monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> None:
    """Count what searches do."""
    run, walk_round = certified._Search.run, certified._Search._round

    def watched_round(self: Any, live: Any, *arguments: Any) -> Any:
        found = walk_round(self, live, *arguments)
        outcome.rounds += 1
        outcome.refuted += len(live) - len(found[0])
        return found

    def watched_run(self: Any, *arguments: Any) -> Estimate | None:
        before = outcome.refuted
        found = run(self, *arguments)
        outcome.between += (between := found is not None and not found.exact)
        settled = between or (found is not None and outcome.refuted > before)
        outcome.settled += settled
        outcome.others += not settled
        return found

    monkeypatch.setattr(certified._Search, "_round", watched_round)
    monkeypatch.setattr(certified._Search, "run", watched_run)


def let_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let starts walk that would be counted: a short first look, few counts, enough walks."""
    monkeypatch.setattr(certified, "_FEW", 4)
    monkeypatch.setattr(certified, "_LEADERS", 1)
    monkeypatch.setattr(walks, "PILOT", 48)
    monkeypatch.setattr(certified, "PILOT", 48)
    monkeypatch.setattr(Runner, "allowance", lambda *_: 12_000)


def try_out(
    session: psycopg.Connection[Any],
    name: str,
    data: Data,
    runs: int,
    *,
    eta: float,
    alpha: float,
    asked: int = ASKED,
    enough: int | None = None,
    prepare: Callable[[pytest.MonkeyPatch], None] = let_walk,
) -> Outcome:
    """Run a query on data that are drawn every ``KEPT`` runs, and watch.

    Each run wants ``asked`` boundaries, drawn from those that walks can estimate.
    With ``enough`` it stops at more failures than that.
    """
    seed = secrets.randbits(32)
    print(f"{name} {data.__name__} seed {seed}")  # noqa: T201
    generator = random.Random(seed)
    query = QUERIES[name]
    choice = sorted((b for b in required(query.shape()) if walkable(query, b)), key=repr)
    outcome = Outcome()
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch)
        watch(patch, outcome)
        for run in range(runs):
            if run % KEPT == 0:
                fill(session, data(generator, name))
                database = Remembering(session)
                true = count(query, choice, database, answer=False).boundaries
            wanted = frozenset(generator.sample(choice, min(asked, len(choice))))
            key = generator.randbytes(16)
            found = estimate(query, wanted, database, key=key, rate=1.0, eta=eta, alpha=alpha)
            assert set(found) == set(wanted)
            outcome.runs += 1
            outcome.failed += not holds(true, found, alpha)
            if enough is not None and outcome.failed > enough:
                break
    print(outcome)  # noqa: T201
    return outcome
