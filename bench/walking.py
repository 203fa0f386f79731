"""Random walks run from a client: the largest group of one residual query, and its estimates."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from dpsql.model import Attribute, AttributeUse, Boundary, JoinQuery, Occurrence
from dpsql.query.ir import column
from dpsql.relation import Column, Relation
from dpsql.statistics.counts import count
from dpsql.statistics.walks import estimate

Row = dict[str, Any]

#: ``select max(count) from (select edge2_from, count(*) from edge2, ... edge5 where edge2_to =
#: edge3_from and ... group by edge2_from)``: the query of the paper's figure 10.
EDGES = (2, 3, 4, 5)
BOUNDARY = Boundary(frozenset(range(len(EDGES))), frozenset({0}))
ETA = 1e-6


class Client:
    """The ports of the statistics over a client's connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        """Run one statement with ``$n`` for parameters."""
        cursor = psycopg.RawCursor(self._connection)
        return cursor.execute(sql, [value for _, value in parameters] or None).fetchall()

    def tick(self) -> None:
        """Do nothing: the client can be interrupted anyway."""


def path() -> JoinQuery:
    """Return the path of `EDGES`."""
    occurrences = []
    for i, number in enumerate(EDGES):
        names = (f"edge{number}_from", f"edge{number}_to")
        relation = Relation(
            *(i + 1, "public", f"edge{number}", True, i + 1),
            tuple(Column(name, 23, "integer", True) for name in names),
        )
        last = i + 1 == len(EDGES)
        uses = tuple(
            AttributeUse(a, column(i, name, "integer", "integer", not_null=False), name)
            for a, name in zip((i, i + 1), names[: 1 if last else 2], strict=False)
        )
        occurrences.append(Occurrence(i, relation, uses))
    return JoinQuery(
        tuple(occurrences), tuple(Attribute(a, "integer", True) for a in range(len(EDGES)))
    )


def largest(connection: psycopg.Connection[Any]) -> Row:
    """Count the largest group."""
    start = time.perf_counter()
    found = count(path(), [BOUNDARY], Client(connection), answer=False, kernel="sql")  # type: ignore[arg-type]
    ms = (time.perf_counter() - start) * 1e3
    return {"sensitivity": float(found.boundaries[BOUNDARY]), "ms": round(ms, 2)}


def estimated(connection: psycopg.Connection[Any], method: str, rate: float, filtered: bool) -> Row:
    """Estimate it by walks."""
    start = time.perf_counter()
    found = estimate(
        path(),
        [BOUNDARY],
        Client(connection),  # type: ignore[arg-type]
        key=secrets.token_bytes(16),
        rate=rate,
        eta=ETA,
        alpha=0.0,
        published=method != "sampling",
        filtered=filtered,
    )[BOUNDARY]
    ms = (time.perf_counter() - start) * 1e3
    value = found.centre if method == "sampling_estimate" else found.value
    return {"sensitivity": float(value), "ms": round(ms, 2), "walks": found.walks}
