"""The rows that a step of a random walk picks from, also of relations on other servers.

A step asks each server for the rows of its keys alone, which go there as an array: those of the
walks that are in its part, where parts are joined one by one, else those of all.  A first row is
drawn from the numbers of rows of all groups, which the servers count: no server sends its rows.
Walks are the same as where all rows are here, in law (docs/proofs/sampling.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from dpsql.model import JoinQuery
from dpsql.query.elimination import Base
from dpsql.query.part_sql import grouped_sql
from dpsql.query.places import is_cut
from dpsql.query.source_sql import named, of, source_sql, written
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    cast,
    column,
    cte,
    equal,
    number,
    select,
    sql,
    table,
    union_all,
)
from dpsql.statistics.chains import Step


def groups_of(query: JoinQuery, occurrence: int, attributes: Sequence[int]) -> exp.Query:
    """Write how many rows ``n`` have which ``attributes``, counted where they are."""
    base = Base(occurrence, tuple(attributes), (), grouped=True, unit=False, unique=True)
    return grouped_sql(query, base, "bigint")


def rows_sql(
    query: JoinQuery,
    occurrence: int,
    attributes: Iterable[int],
    more: Sequence[Tree] = (),
    sent: Sequence[Tree] = (),
) -> exp.Query:
    """Write the filtered rows of an occurrence.

    ``sent`` has a condition over rows ``r`` for each of its parts, if it has any; they are then
    asked at the same time (``dpsql.query.part_sql``).
    """
    own = tuple(n for n, p in enumerate(query.predicates) if p.occurrences <= {occurrence})
    base = Base(occurrence, tuple(attributes), own, grouped=False, unit=True, unique=False)
    found = []
    parts = range(len(query.occurrences[occurrence].relation.parts))
    query = written(query) if parts else query
    # part by part, so that the number of a part is a constant
    for part in parts or [None]:
        expressions, source = source_sql(query, base, part=part)
        rows = select([*named({a: expressions[a] for a in base.output}), *more], source)
        if sent and part is not None:
            rows = sql("SELECT r.* FROM :rows AS r WHERE :sent", rows=rows, sent=sent[part])
        found.append(rows)
    together = union_all(found)
    if sent:
        together.set("offset", exp.Offset(expression=number(0)))
    return together


def sent_sql(query: JoinQuery, step: Step, source: exp.Table, test: Tree) -> list[Tree]:
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
        here = all_of([test, *(equal(place, number(part + 1)) for place in of("", places))])
        tests = [
            sql(
                ":own = ANY (ARRAY(SELECT DISTINCT :key FROM :source WHERE :here))",
                own=column("r", f"a{a}"),
                key=column("", f"a{a}"),
                source=source,
                here=here,
            )
            for a in keys
        ]
        found.append(all_of(tests) or sql("true"))
    return found


def step_to_group(query: JoinQuery, step: Step, n: int, draw: Tree) -> list[exp.CTE]:
    """Write a step to any row of an occurrence on other servers, which is drawn by its group.

    The rows are numbered group by group; ``hi`` is the last number of one.  The group of the i-th
    row follows as many others as end before i, by one sort of numbers and ends.
    """
    drawn = sql(
        "SELECT w.*, :drawn FROM :walks AS w",
        drawn=aliased(sql("1 + :draw", draw=draw), f"i{n}"),
        walks=table(f"w{n - 1}"),
    )
    groups = sql(
        "SELECT u.*, row_number() OVER v AS j, sum(u.n) OVER v AS hi FROM :groups AS u"
        " WINDOW v AS (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
        groups=groups_of(query, step.occurrence, step.kept),
    )
    before = sql(
        "SELECT x.id, 1 + count(x.hi) OVER (ORDER BY x.place, x.id IS NULL"
        " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS j"
        " FROM (SELECT hi AS place, hi, NULL::bigint AS id FROM :groups"
        " UNION ALL SELECT :drawn, NULL, id FROM :walks) AS x",
        groups=table(f"g{n}"),
        drawn=column("", f"i{n}"),
        walks=table(f"i{n}"),
    )
    stepped = sql(
        "SELECT w.*, :alive, :picked FROM :walks AS w JOIN :before AS b ON b.id = w.id"
        " LEFT JOIN :groups AS g ON g.j = b.j",
        alive=aliased(sql("(g.j IS NOT NULL)::int::double precision"), f"q{n}"),
        picked=of("g", step.kept),
        walks=table(f"i{n}"),
        before=table(f"b{n}"),
        groups=table(f"g{n}"),
    )
    made = {"i": drawn, "g": groups, "b": before, "w": stepped}
    return [cte(f"{word}{n}", query, materialized=True) for word, query in made.items()]


def typed_starts(query: JoinQuery, source: str, attributes: Iterable[int]) -> list[Tree]:
    """Write attributes in their types, which a source has as texts ``s<i>``."""
    types = {a: query.attributes[a].type_name for a in attributes}
    return named({a: cast(column(source, f"s{a}"), type_) for a, type_ in types.items()})


def same_sql(left: str, right: str, attributes: Iterable[int]) -> Tree | None:
    """Write that two sources agree."""
    return all_of(equal(column(left, f"a{a}"), column(right, f"a{a}")) for a in attributes)
