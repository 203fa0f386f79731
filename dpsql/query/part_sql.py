"""Counting SQL for each part of a relation, in the form that postgres_fdw sends away whole.

It sends a grouping of one foreign table, or of a join of foreign tables of one server, and then
only groups come back; of a partitioned table it would fetch every row.  What parts say is added
up here: a value that is in several parts, whatever their bounds promise, is one value.  Where the
number of the part is among the values, no value is in several; of the largest count then each part
sends one row.

Of a relation that Citus keeps, which is one part, the groups are a step of their own: what they are
joined to and added up with is read on the coordinator (docs/citus.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.model import JoinQuery
from dpsql.query.elimination import Base, Placed
from dpsql.query.joined_sql import joined_sql
from dpsql.query.late import Late, late
from dpsql.query.places import joined_parts
from dpsql.query.source_sql import all_sql, written


def grouped_sql(query: JoinQuery, factor: Base | Placed, number: str) -> str:
    """Write a factor: columns ``a<i>``, ``n`` and the sums."""
    sums = [f"w{i}" for i, w in enumerate(query.weights) if w.occurrences <= factor.occurrences]
    found = late(query, factor, number)
    if found is not None:
        parts = _parts(found.sent, factor, found.keys, number)
        return _added(factor, _late_rows(found, parts, sums), sums, number)
    together = _together(_parts(query, factor, factor.output, number))
    if _apart(query, factor):
        return together
    return _added(factor, f"({together}) AS v", sums, number)


def largest_sql(query: JoinQuery, factor: Base | Placed, number: str) -> str | None:
    """Write for a FROM clause some rows of a factor with the largest count: one of each part.

    ``None`` where values may be in several parts, or are told here.
    """
    if not _apart(query, factor) or late(query, factor, number) is not None:
        return None
    parts = _parts(query, factor, factor.output, number)
    most = (f"({part} ORDER BY n DESC LIMIT 1)" for part in parts)
    return f"({_together(most)})"


def _together(parts: Iterable[str]) -> str:
    """Write what all parts have.

    Servers are asked at the same time where their columns come as they are.  OFFSET 0 keeps the
    planner from leaving some away, from sorting for a maximum, and from testing conditions on rows.
    """
    return f"{' UNION ALL '.join(parts)} OFFSET 0"


def _apart(query: JoinQuery, factor: Base | Placed) -> bool:
    """Whether no value of the output is in several parts: the number of the part is in it."""
    if not any(query.attributes[a].place for a in factor.output):
        return False
    places = [place for place, _ in joined_parts(query, factor.occurrences)]
    return len(places) == len({*places})


def _parts(query: JoinQuery, factor: Base | Placed, keys: Sequence[int], number: str) -> list[str]:
    """Write the groups of each part."""
    by_steps = query.occurrences[min(factor.occurrences)].relation.by_steps
    own = [a for a in keys if query.attributes[a].place]
    others = [a for a in keys if a not in own]
    found = []
    once = written(query)
    for place, parts in joined_parts(query, factor.occurrences):
        text = joined_sql(once, factor.occurrences, others, number, parts)
        if own:
            numbers = "".join(f"{place + 1}::integer AS a{a}, " for a in own)
            text = f"SELECT {numbers}{text.removeprefix('SELECT ')}"
            if not others:
                text += " HAVING count(*) > 0"  # a value that is nowhere is no value
        if by_steps:
            # Citus takes it that a value of the distribution column is in one shard only
            text = f"WITH p AS MATERIALIZED ({text}) SELECT * FROM p"
        found.append(text)
    return found


def _added(factor: Base | Placed, source: str, sums: Sequence[str], number: str) -> str:
    """Add up what several groups ``v`` have of one value."""
    keys = ", ".join(f"v.a{a}" for a in factor.output)
    columns = [f"v.a{a} AS a{a}" for a in factor.output]
    if keys:
        columns += [f"sum(v.n)::{number} AS n", *(f"sum(v.{name}) AS {name}" for name in sums)]
    else:
        columns.append(f"coalesce(sum(v.n), 0)::{number} AS n")
        columns += [f"coalesce(sum(v.{name}), 0) AS {name}" for name in sums]
    grouped = f" GROUP BY {keys}" if keys else ""
    return f"SELECT {', '.join(columns)} FROM {source}{grouped}"


def _late_rows(found: Late, parts: Sequence[str], sums: Sequence[str]) -> str:
    """Write the groups of all parts, with what is computed of them."""
    columns = [f"u.a{a}" for a in found.keys]
    columns += [f"{sql} AS a{a}" for a, sql in found.values.items()]
    columns += ["u.n"]
    columns += [f"({sql}) * u.n AS {name}" for name, sql in found.weights.items()]
    kept = [name for name in sums if name not in {*found.weights, *found.spanning}]
    columns += [f"u.{name}" for name in kept]
    where = f" WHERE {' AND '.join(found.filters)}" if found.filters else ""
    rows = f"(SELECT {', '.join(columns)} FROM ({_together(parts)}) AS u{where}) AS v"
    tests = f" WHERE {all_sql(found.predicates)}" if found.predicates else ""
    if found.spanning:
        more = ", ".join(f"({sql}) * n AS {name}" for name, sql in found.spanning.items())
        return f"(SELECT v.*, {more} FROM {rows}{tests}) AS v"
    return rows + tests
