"""Sums and numbers of different values per group, as one SQL statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpsql.model import JoinQuery, Key
from dpsql.query.contribution_sql import integer_sql, together
from dpsql.query.elimination import Plan
from dpsql.query.flat_sql import answering


def per_value(query: JoinQuery) -> JoinQuery:
    """Return the query per group and distinct value."""
    return replace(query, groups=tuple(dict.fromkeys((*query.groups, *query.distinct))))


def sum_sql(plan: Plan, queries: Sequence[JoinQuery], *, numeric: bool = False) -> str:
    """Write the statement: columns ``v0, v1, ..., k1, ..., kg``, all text.

    Parameters
    ----------
    plan : Plan
        Of `together` of the queries.
    queries : sequence of JoinQuery
        Each with one weight, or counts.
    numeric : bool
        Count in ``numeric`` rather than in ``bigint`` that fails with 22003.
    """
    query = together(queries)
    writer = answering(plan, numeric=numeric)
    answer = writer.answer(tuple(dict.fromkeys(query.groups)))
    values = [
        f"{integer_sql(f'c.w{query.weights.index(one.weights[0])}', one)}::text AS v{j}"
        if one.weights
        else f"c.n::text AS v{j}"
        for j, one in enumerate(queries)
    ]
    return f"{writer.head()}SELECT {', '.join([*values, *_keys(query)])} FROM ({answer}) AS c"


def distinct_sql(plan: Plan, queries: Sequence[JoinQuery], *, numeric: bool = False) -> str:
    """Write the statement for different values; ``plan`` is of `per_value` of the query."""
    (query,) = queries
    writer = answering(plan, numeric=numeric)
    answer = writer.answer(plan.query.groups)
    present = " AND ".join(f"c.a{a} IS NOT NULL" for a in query.distinct)
    groups = ", ".join(f"c.a{a}" for a in dict.fromkeys(query.groups))
    grouped = f" GROUP BY {groups}" if groups else ""
    columns = ", ".join(["count(*)::text AS v0", *_keys(query)])
    return f"{writer.head()}SELECT {columns} FROM ({answer}) AS c WHERE {present}{grouped}"


def _keys(query: JoinQuery) -> list[str]:
    return [f"c.a{a}::text AS k{i + 1}" for i, a in enumerate(query.groups)]


def read_sums(
    queries: Sequence[JoinQuery], rows: Iterable[Sequence[object]]
) -> list[dict[Key, int]]:
    """Assemble the sums by group from the rows of the statements above."""
    found: list[dict[Key, int]] = [{} for _ in queries]
    for row in rows:
        key = tuple(None if k is None else str(k) for k in row[len(queries) :])
        for groups, value in zip(found, row, strict=False):
            groups[key] = groups.get(key, 0) + int(str(value))
    return found
