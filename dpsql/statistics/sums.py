"""Exact sums and numbers of different values per group, from one snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.model import JoinQuery, Key
from dpsql.ports import Database
from dpsql.query.contribution_sql import together
from dpsql.query.elimination import make_plan
from dpsql.query.sum_sql import distinct_sql, per_value, read_sums, sum_sql
from dpsql.statistics.running import run
from dpsql.statistics.sizes import read_facts


def sums(queries: Sequence[JoinQuery], database: Database) -> list[dict[Key, int]]:
    """Sum each of several weights per group, or count different values.

    Parameters
    ----------
    queries : sequence of JoinQuery
        Equal but for their weights, of which each has one; or one that counts distinct values; or
        counts by a computed attribute.
    database : Database
        Reads one snapshot, by one statement.

    Returns
    -------
    list of dict
        For each query the exact integers by group.
    """
    query = per_value(together(queries))
    sizes = read_facts(query, database).sizes(query)
    plan = make_plan(query, (), answer=True, sizes=sizes, tick=database.tick)
    write = distinct_sql if query.distinct else sum_sql
    rows = run(plan.query, database, lambda numeric: write(plan, queries, numeric=numeric))
    return read_sums(queries, rows)
