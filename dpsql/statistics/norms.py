"""Norms of the frequencies of now, for joins whose relations nobody can sketch beforehand.

Where rows are on other servers, changes are not counted, so that nothing that was stored could be
used (PRIVACY.md section 4, "Stale statistics").  The exact norms need no counters and no seeds:
they come from the numbers of rows of all join keys, which the servers count and send, in the
snapshot of the answer (docs/proofs/sketch.md, section 1).
"""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.core.sketching import Sketch, joining
from dpsql.errors import NotAnswerable
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.elimination import Base
from dpsql.query.joined_sql import joined_sql
from dpsql.query.part_sql import grouped_sql
from dpsql.query.places import is_cut
from dpsql.query.source_sql import of
from dpsql.sqltree import cte, number, render, sql, union_all, with_

#: Norms are counted for every set of columns that is held fixed; one column more numbers parts.
MAX_COLUMNS = 7


def count_norms(query: JoinQuery, database: Database) -> Sketch:
    """Count the norms of all occurrences, of the rows that their filters leave."""
    norms = []
    for index, attributes in enumerate(joining(query.shape())):
        rows = database.execute(norms_sql(query, index, attributes))
        ordered = sorted(attributes)
        norms.append(
            {
                frozenset(a for k, a in enumerate(ordered) if int(str(bits)) >> k & 1): int(str(n))
                for bits, n in rows
            }
        )
        database.tick()
    none = (0,) * len(norms)
    return Sketch(1, 1, totals=none, norms=tuple(norms), squares=none, moments=None)


def too_many(query: JoinQuery, index: int, columns: int) -> NotAnswerable:
    """Say that a relation is joined on too many columns."""
    return NotAnswerable(
        f"relation {query.occurrences[index].relation.shown} cannot be sketched",
        detail=f"It is joined on {columns} columns; at most {MAX_COLUMNS} are possible.",
        hint="Use another method.",
    )


def norms_sql(query: JoinQuery, index: int, attributes: Iterable[int]) -> str:
    """Write the largest sums of squares for each set of fixed attributes, by its bits."""
    output = tuple(sorted(attributes))
    if is_cut(query.occurrences[index]):
        base = Base(index, output, (), grouped=True, unit=False, unique=True)
        grouped = grouped_sql(query, base, "bigint")
    else:
        grouped = joined_sql(query, frozenset({index}), output, "bigint")
    sums = []
    for bits in range(1 << len(output)):
        each = sql(
            "SELECT sum(n::numeric * n) AS s FROM c GROUP BY :fixed",
            fixed=of("", [a for k, a in enumerate(output) if bits >> k & 1]),
        )
        sums.append(
            sql(
                "SELECT :bits AS fixed, coalesce(max(s), 0)::text AS n FROM :each AS t",
                bits=number(bits),
                each=each,
            )
        )
    return render(with_([cte("c", grouped, materialized=True)], union_all(sums)))
