"""Occurrences joined row by row, then grouped: for the planner to order, or to send away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from dpsql.model import JoinQuery
from dpsql.query.elimination import Base
from dpsql.query.source_sql import all_sql, named, of, source_sql, weight_sql
from dpsql.sqltree import Tree, all_of, cast, column, equal, from_, select, sql, subquery


def joined_sql(
    query: JoinQuery,
    occurrences: frozenset[int],
    attributes: Sequence[int],
    number: str,
    parts: Mapping[int, int] | None = None,
) -> exp.Select:
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
    sources: list[Tree] = []
    conditions: list[Tree] = []
    origin: dict[int, Tree] = {}
    values: dict[str, Tree] = {}
    for index in sorted(occurrences):
        here = tuple(n for n, p in enumerate(query.predicates) if p.occurrences <= {index})
        weights = {
            f"w{i}": weight_sql(weight, number)
            for i, weight in enumerate(query.weights)
            if weight.occurrences == {index}
        }
        base = Base(index, (), here, grouped=False, unit=True, unique=False)
        expressions, source = source_sql(query, base, (), weights, parts[index] if parts else None)
        alias = f"s{index}"
        sources.append(subquery(select([*named(expressions), *named(weights)], source), alias))
        for a in expressions:
            if parts and query.attributes[a].place:
                continue
            place = column(alias, f"a{a}")
            if a in origin:
                conditions.append(equal(origin[a], place))
            else:
                origin[a] = place
        values |= {name: column(alias, name) for name in weights}
    spanning = [
        p for p in query.predicates if len(p.occurrences) > 1 and p.occurrences <= occurrences
    ]
    rows = select([*named(origin), *named(values)], from_(sources, all_of(conditions)))
    totals: dict[str, Tree] = {"n": cast(sql("count(*)"), number)}
    for i, weight in enumerate(query.weights):
        if not weight.occurrences <= occurrences:
            continue
        value = column("j", f"w{i}") if f"w{i}" in values else weight_sql(weight, number)
        # postgres_fdw sends no COALESCE; where parts are added up, their NULLs are
        whole = not attributes and parts is None
        totals[f"w{i}"] = total_sql(value, whole=whole)
    keys = of("j", attributes)
    found: exp.Select = sql(
        "SELECT :columns FROM :rows AS j WHERE :tests GROUP BY :keys",
        columns=[*named(dict(zip(attributes, keys, strict=True))), *named(totals)],
        rows=rows,
        tests=all_sql(spanning),
        keys=keys,
    )
    return found


def total_sql(value: Tree, *, whole: bool = False) -> Tree:
    """Write a sum; ``whole``: of a statement without groups, where a sum of nothing is 0."""
    total: Tree = sql("sum(:v)", v=value)
    return sql("coalesce(:total, 0)", total=total) if whole else total
