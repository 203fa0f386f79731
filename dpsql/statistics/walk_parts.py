"""Random walks through relations on other servers.

A step asks each server for the rows of its keys alone, which go there as an array: those of the
walks that are in its part, where parts are joined one by one, else those of all.  A first row is
drawn from the numbers of rows of all groups, which the servers count: no server sends its rows.
Walks are the same as where all rows are here, in law (docs/proofs/sampling.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.model import JoinQuery
from dpsql.query.elimination import Base
from dpsql.query.part_sql import grouped_sql
from dpsql.query.places import is_cut
from dpsql.sqltree import render
from dpsql.statistics.chains import Step


def groups_of(query: JoinQuery, occurrence: int, attributes: Sequence[int]) -> str:
    """Write how many rows ``n`` have which ``attributes``, counted where they are."""
    base = Base(occurrence, tuple(attributes), (), grouped=True, unit=False, unique=True)
    return render(grouped_sql(query, base, "bigint"))


def sent_sql(query: JoinQuery, step: Step, source: str, test: str = "true") -> list[str]:
    """Write for each part that its rows ``r`` have keys of a source: postgres_fdw sends these.

    Where the keys say in which part their rows are, each part gets its own.  Else every one gets
    all: of the bounds of parts on other servers nobody vouches.
    """
    if not is_cut(query.occurrences[step.occurrence]):
        return []
    keys = [a for a in step.fixed if not query.attributes[a].place]
    places = [a for a in step.fixed if query.attributes[a].place]
    found = []
    for part in range(len(query.occurrences[step.occurrence].relation.parts)):
        where = " AND ".join([test, *(f"a{a} = {part + 1}" for a in places)])
        lists = (f"SELECT DISTINCT a{a} FROM {source} WHERE {where}" for a in keys)
        tests = (f"r.a{a} = ANY (ARRAY({one}))" for a, one in zip(keys, lists, strict=True))
        found.append(" AND ".join(tests) or "true")
    return found


def step_to_group(query: JoinQuery, step: Step, number: int, draw: str) -> list[str]:
    """Write a step to any row of an occurrence on other servers, which is drawn by its group.

    The rows are numbered group by group; ``hi`` is the last number of one.  The group of the i-th
    row follows as many others as end before i, by one sort of numbers and ends.
    """
    picked = "".join(f", g.a{a}" for a in step.kept)
    return [
        f"i{number} AS MATERIALIZED (SELECT w.*, 1 + {draw} AS i{number} FROM w{number - 1} AS w)",
        f"g{number} AS MATERIALIZED (SELECT u.*, row_number() OVER v AS j, sum(u.n) OVER v AS hi "
        f"FROM ({groups_of(query, step.occurrence, step.kept)}) AS u "
        "WINDOW v AS (ROWS UNBOUNDED PRECEDING))",
        f"b{number} AS MATERIALIZED (SELECT x.id, 1 + count(x.hi) OVER (ORDER BY x.place, "
        "x.id IS NULL ROWS UNBOUNDED PRECEDING) AS j FROM (SELECT hi AS place, hi, NULL::bigint "
        f"AS id FROM g{number} UNION ALL SELECT i{number}, NULL, id FROM i{number}) AS x)",
        f"w{number} AS MATERIALIZED (SELECT w.*, (g.j IS NOT NULL)::int::float8 AS q{number}"
        f"{picked} FROM i{number} AS w JOIN b{number} AS b ON b.id = w.id "
        f"LEFT JOIN g{number} AS g ON g.j = b.j)",
    ]
