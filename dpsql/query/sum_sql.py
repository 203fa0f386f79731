"""Sums and numbers of different values per group, as one SQL statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpsql.model import JoinQuery, Key
from dpsql.query.contribution_sql import integer_sql, together
from dpsql.query.elimination import Plan
from dpsql.query.flat_sql import answering
from dpsql.query.source_sql import of
from dpsql.sqltree import Tree, aliased, all_of, cast, column, render, sql, with_


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
    values = [
        integer_sql(column("c", f"w{query.weights.index(one.weights[0])}"), one)
        if one.weights
        else column("c", "n")
        for one in queries
    ]
    statement = sql(
        "SELECT :columns FROM :answer AS c",
        columns=[*_texts("v", values, 0), *_texts("k", of("c", query.groups), 1)],
        answer=writer.answer(tuple(dict.fromkeys(query.groups))),
    )
    return render(with_(writer.ctes(), statement))


def distinct_sql(plan: Plan, queries: Sequence[JoinQuery], *, numeric: bool = False) -> str:
    """Write the statement for different values; ``plan`` is of `per_value` of the query."""
    (query,) = queries
    writer = answering(plan, numeric=numeric)
    statement = sql(
        "SELECT count(*)::text AS v0, :columns FROM :answer AS c WHERE :present GROUP BY :keys",
        columns=_texts("k", of("c", query.groups), 1),
        answer=writer.answer(plan.query.groups),
        present=all_of(sql(":v IS NOT NULL", v=v) for v in of("c", query.distinct)),
        keys=of("c", dict.fromkeys(query.groups)),
    )
    return render(with_(writer.ctes(), statement))


def _texts(word: str, values: Sequence[Tree], first: int) -> list[Tree]:
    """Write values as texts, and number their columns."""
    return [aliased(cast(v, "text"), f"{word}{i}") for i, v in enumerate(values, first)]


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
