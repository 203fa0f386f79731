"""Occurrences joined row by row, then grouped: for the planner to order, or to send away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsql.model import JoinQuery
from dpsql.query.elimination import Base
from dpsql.query.source_sql import all_sql, source_sql, weight_sql


def joined_sql(
    query: JoinQuery,
    occurrences: frozenset[int],
    attributes: Sequence[int],
    number: str,
    parts: Mapping[int, int] | None = None,
) -> str:
    """Write rows of ``attributes``, in their types, the count ``n`` and sums ``w0, w1, ...``.

    Parameters
    ----------
    query : JoinQuery
        The query.
    occurrences : frozenset of int
        Those that are joined; predicates apply that need no others.
    attributes : sequence of int
        What is grouped by.
    number : str
        The type that counts in.
    parts : mapping, optional
        The part of each occurrence whose rows are joined; what numbers their place is left out.
    """
    sources: list[str] = []
    conditions: list[str] = []
    origin: dict[int, str] = {}
    values: dict[str, str] = {}
    for index in sorted(occurrences):
        here = tuple(n for n, p in enumerate(query.predicates) if p.occurrences <= {index})
        weights = {
            f"w{i}": weight_sql(weight, number)
            for i, weight in enumerate(query.weights)
            if weight.occurrences == {index}
        }
        base = Base(index, (), here, grouped=False, unit=True, unique=False)
        expressions, source = source_sql(query, base, (), weights, parts[index] if parts else None)
        columns = [f"{sql} AS a{a}" for a, sql in expressions.items()]
        columns += [f"{sql} AS {name}" for name, sql in weights.items()]
        alias = f"s{index}"
        sources.append(f"(SELECT {', '.join(columns) or '1'} FROM {source}) AS {alias}")
        for a in expressions:
            if parts and query.attributes[a].place:
                continue
            place = f"{alias}.a{a}"
            if a in origin:
                conditions.append(f"{origin[a]} = {place}")
            else:
                origin[a] = place
        values |= {name: f"{alias}.{name}" for name in weights}
    spanning = [
        p for p in query.predicates if len(p.occurrences) > 1 and p.occurrences <= occurrences
    ]
    columns = [f"{place} AS a{a}" for a, place in origin.items()]
    columns += [f"{place} AS {name}" for name, place in values.items()]
    joined = f"SELECT {', '.join(columns) or '1'} FROM {', '.join(sources)}"
    if conditions:
        joined += f" WHERE {' AND '.join(conditions)}"
    keys = [f"j.a{a} AS a{a}" for a in attributes]
    totals = [f"count(*)::{number} AS n"]
    for i, weight in enumerate(query.weights):
        if not weight.occurrences <= occurrences:
            continue
        value = f"j.w{i}" if f"w{i}" in values else weight_sql(weight, number)
        total = f"sum({value})"
        # postgres_fdw sends no COALESCE; where parts are added up, their NULLs are
        whole = not attributes and parts is None
        totals.append(f"{f'coalesce({total}, 0)' if whole else total} AS w{i}")
    text = f"SELECT {', '.join([*keys, *totals])} FROM ({joined}) AS j"
    if spanning:
        text += f" WHERE {all_sql(spanning)}"
    if attributes:
        text += f" GROUP BY {', '.join(f'j.a{a}' for a in attributes)}"
    return text
