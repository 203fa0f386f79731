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

from sqlglot import exp

from dpsql.model import JoinQuery
from dpsql.query.elimination import Base, Placed
from dpsql.query.joined_sql import joined_sql, total_sql
from dpsql.query.late import Late, late
from dpsql.query.places import joined_parts
from dpsql.query.source_sql import all_sql, named, of, written
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    cast,
    column,
    cte,
    number,
    select,
    sql,
    subquery,
    union_all,
    with_,
)


def grouped_sql(query: JoinQuery, factor: Base | Placed, type_: str) -> exp.Query:
    """Write a factor: columns ``a<i>``, ``n`` and the sums."""
    sums = [f"w{i}" for i, w in enumerate(query.weights) if w.occurrences <= factor.occurrences]
    found = late(query, factor, type_)
    if found is not None:
        parts = _parts(found.sent, factor, found.keys, type_)
        source, tests = _late_rows(found, parts, sums)
        return _added(factor, source, tests, sums, type_)
    together = _together(_parts(query, factor, factor.output, type_))
    if _apart(query, factor):
        return together
    return _added(factor, subquery(together), None, sums, type_)


def largest_sql(query: JoinQuery, factor: Base | Placed, type_: str) -> exp.Query | None:
    """Write some rows of a factor with the largest count: one of each part.

    ``None`` where values may be in several parts, or are told here.
    """
    if not _apart(query, factor) or late(query, factor, type_) is not None:
        return None
    parts = _parts(query, factor, factor.output, type_)
    most = sql("SELECT 1 ORDER BY n DESC LIMIT 1").args
    return _together(
        type(part)(**part.args | {"order": most["order"], "limit": most["limit"]}) for part in parts
    )


def _together(parts: Iterable[exp.Query]) -> exp.Query:
    """Write what all parts have.

    Servers are asked at the same time where their columns come as they are.  OFFSET 0 keeps the
    planner from leaving some away, from sorting for a maximum, and from testing conditions on rows.
    """
    found = union_all([*parts])
    found.set("offset", exp.Offset(expression=number(0)))
    return found


def _apart(query: JoinQuery, factor: Base | Placed) -> bool:
    """Whether no value of the output is in several parts: the number of the part is in it."""
    if not any(query.attributes[a].place for a in factor.output):
        return False
    places = [place for place, _ in joined_parts(query, factor.occurrences)]
    return len(places) == len({*places})


def _parts(
    query: JoinQuery, factor: Base | Placed, keys: Sequence[int], type_: str
) -> list[exp.Query]:
    """Write the groups of each part."""
    by_steps = query.occurrences[min(factor.occurrences)].relation.by_steps
    own = [a for a in keys if query.attributes[a].place]
    others = [a for a in keys if a not in own]
    found: list[exp.Query] = []
    once = written(query)
    for place, parts in joined_parts(query, factor.occurrences):
        rows = joined_sql(once, factor.occurrences, others, type_, parts)
        if own:
            here = cast(number(place + 1), "integer")
            rows = select([*(aliased(here, f"a{a}") for a in own), *rows.expressions], rows)
            if not others:  # a value that is nowhere is no value
                rows.set("having", sql("SELECT 1 HAVING count(*) > 0").args["having"])
        if by_steps:
            # Citus takes it that a value of the distribution column is in one shard only
            stored = cte("p", rows, materialized=True)
            found.append(with_([stored], sql("SELECT * FROM p")))
        else:
            found.append(rows)
    return found


def _added(
    factor: Base | Placed, source: Tree, tests: Tree | None, sums: Sequence[str], type_: str
) -> exp.Select:
    """Add up what several groups ``v`` have of one value."""
    keys = of("v", factor.output)
    whole = not keys
    totals: dict[str, Tree] = {"n": cast(total_sql(column("v", "n"), whole=whole), type_)}
    totals |= {name: total_sql(column("v", name), whole=whole) for name in sums}
    added: exp.Select = sql(
        "SELECT :columns FROM :source AS v WHERE :tests GROUP BY :keys",
        columns=[*named(dict(zip(factor.output, keys, strict=True))), *named(totals)],
        source=source,
        tests=tests,
        keys=keys,
    )
    return added


def _late_rows(
    found: Late, parts: Sequence[exp.Query], sums: Sequence[str]
) -> tuple[Tree, Tree | None]:
    """Write the groups of all parts, with what is computed of them, and conditions on these."""
    kept = [name for name in sums if name not in {*found.weights, *found.spanning}]
    rows = sql(
        "SELECT :keys, :late, u.n, :weights, :kept FROM :parts AS u WHERE :filters",
        keys=of("u", found.keys),
        late=named(found.values),
        weights=[aliased(sql(":v * u.n", v=value), name) for name, value in found.weights.items()],
        kept=of("u", kept),
        parts=_together(parts),
        filters=all_of(found.filters),
    )
    tests = all_sql(found.predicates)
    if not found.spanning:
        return subquery(rows), tests
    more = [aliased(sql(":v * n", v=value), name) for name, value in found.spanning.items()]
    spread = sql(
        "SELECT v.*, :more FROM :rows AS v WHERE :tests", more=more, rows=rows, tests=tests
    )
    return subquery(spread), None
