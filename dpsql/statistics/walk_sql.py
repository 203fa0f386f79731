"""Random walks as SQL: one statement advances all walks by one relation after the other.

Step ``j`` is two MATERIALIZED CTEs: ``d<j>`` holds, for every key at which a live walk stands, the
number of matching rows and arrays of their attributes; ``w<j>`` lets every walk pick one of them.
The planner joins the keys by an index or by one pass of the relation, as it pays.  ``q<j>`` is the
number of matches as a share of the largest possible one: 0 where the walk dies, NULL after that.
Values travel as parameters, so that the text, and its plan, depend on the query alone.
Relations on other servers: ``walk_parts``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.model import JoinQuery
from dpsql.query.ir import tree
from dpsql.query.places import is_cut
from dpsql.query.source_sql import of
from dpsql.sqltree import (
    Tree,
    aliased,
    cast,
    column,
    cte,
    join_all,
    name,
    number,
    parameter,
    render,
    sql,
    table,
    union_all,
    with_,
)
from dpsql.statistics.chains import Chain
from dpsql.statistics.walk_parts import rows_sql, same_sql, sent_sql, step_to_group, typed_starts

Parameters = list[tuple[str, object]]
Key = tuple[str, ...]


def walk_sql(query: JoinQuery, chain: Chain) -> str:
    """Write the statement that walks.

    Parameters
    ----------
    query : JoinQuery
        The query.
    chain : Chain
        The steps.

    Returns
    -------
    str
        A statement with the parameters of ``walk_parameters``; its rows are, for the groups of
        each stretch that look largest: the number of the stretch, the group as texts, how many
        walks entered the stretch with (the fixed part of) this group, the sums of their weights
        and of the squares, the sum of the mean weights of all groups.
    """
    given = sql(
        "SELECT $1::bytea AS key, $2::bigint[] AS n, $3::double precision[] AS m, :starts",
        starts=[
            aliased(cast(parameter(4 + k), "text[]"), f"s{a}") for k, a in enumerate(chain.start)
        ],
    )
    parts = [
        cte("p", given, materialized=True),
        cte("w0", _first(query, chain), materialized=True),
    ]
    for step in range(1, len(chain.steps) + 1):
        parts += _step(query, chain, step)
    tests = [
        aliased(sql(":test IS TRUE", test=tree(predicate.expression)), f"t{n}")
        for n, predicate in enumerate(query.predicates)
        if any(stretch.applies(predicate) for stretch in chain.stretches)
    ]
    walked = sql("SELECT *, :tests FROM :walks", tests=tests, walks=table(f"w{len(chain.steps)}"))
    parts.append(cte("w", walked, materialized=True))
    reports = [_report(query, chain, n) for n in range(len(chain.stretches))]
    return render(with_(parts, union_all(reports)))


def walk_parameters(
    chain: Chain,
    *,
    key: bytes,
    first: int,
    walks: int,
    most: int,
    largest: Sequence[int],
    groups: Sequence[Key] = (),
) -> Parameters:
    """Give the parameters of a ``walk_sql``.

    Parameters
    ----------
    chain : Chain
        The steps.
    key : bytes
        16 secret bytes.
    first : int
        The first number of a walk; numbers that were used under this key must not come again.
    walks : int
        Walks a group (or all, without a start).
    most : int
        Groups that a stretch reports, at most.
    largest : sequence of int
        The largest number of matches of each step.
    groups : sequence of tuple of str
        Values of ``chain.start``.
    """
    columns = [[group[k] for group in groups] for k in range(len(chain.start))]
    return [
        ("bytea", key),
        ("bigint[]", [first, walks, most]),
        ("float8[]", [float(m) for m in largest]),
        *(("text[]", column) for column in columns),
    ]


def _first(query: JoinQuery, chain: Chain) -> exp.Query:
    """Write the walks before their first step: ``n`` of each group."""
    found: exp.Query
    if not chain.start:
        found = sql(
            "SELECT p.n[1] + x.i AS id, 1::double precision AS q0 FROM p"
            " CROSS JOIN generate_series(0, (SELECT p.n[2] FROM p) - 1) AS x(i)"
        )
        return found
    names = [f"s{a}" for a in chain.start]
    found = sql(
        "SELECT p.n[1] + (g.i - 1) * p.n[2] + x.i AS id, :starts, 1::double precision AS q0"
        " FROM p CROSS JOIN LATERAL unnest(:arrays) WITH ORDINALITY AS g(:names, i)"
        " CROSS JOIN generate_series(0, (SELECT p.n[2] FROM p) - 1) AS x(i)",
        starts=typed_starts(query, "g", chain.start),
        arrays=of("p", names),
        names=[*map(name, names)],
    )
    return found


def _step(query: JoinQuery, chain: Chain, n: int) -> list[exp.CTE]:
    """Write one step."""
    step = chain.steps[n - 1]
    largest = sql("(SELECT p.m[:n] FROM p)", n=number(n))
    if not step.fixed:
        draw = _draw(n, cast(largest, "bigint"))
        if is_cut(query.occurrences[step.occurrence]):
            return step_to_group(query, step, n, draw)
        stepped = sql(
            "SELECT w.*, :alive, :picked FROM (SELECT w.*, :drawn FROM :walks AS w) AS w"
            " LEFT JOIN :rows AS r ON r.i = :here",
            alive=aliased(sql("(r.i IS NOT NULL)::int::double precision"), f"q{n}"),
            picked=of("r", step.kept),
            drawn=aliased(sql("1 + :draw", draw=draw), f"i{n}"),
            walks=table(f"w{n - 1}"),
            rows=rows_sql(query, step.occurrence, step.kept, [sql("row_number() OVER () AS i")]),
            here=column("w", f"i{n}"),
        )
        return [cte(f"w{n}", stepped, materialized=True)]
    walks = table(f"w{n - 1}")
    alive = sql(":q > 0", q=column("", f"q{n - 1}"))
    own = of("k", step.fixed)
    matches = sql(
        "SELECT :own, count(*) AS n, :arrays FROM (SELECT DISTINCT :keys FROM :walks WHERE :alive)"
        " AS k JOIN :rows AS r ON :same GROUP BY :own",
        own=own,
        arrays=[aliased(sql("array_agg(:v)", v=column("r", f"a{a}")), f"x{a}") for a in step.kept],
        keys=of("", step.fixed),
        walks=walks,
        alive=alive,
        rows=rows_sql(
            query,
            step.occurrence,
            sorted({*step.fixed, *step.kept}),
            sent=sent_sql(query, step, walks, alive),
        ),
        same=same_sql("k", "r", step.fixed),
    )
    share = sql(
        "CASE WHEN :q > 0 THEN coalesce(d.n / :largest, 0) END",
        q=column("w", f"q{n - 1}"),
        largest=largest,
    )
    stepped = sql(
        "SELECT w.*, :share, :picked FROM :walks AS w LEFT JOIN :matches AS d ON :same"
        " LEFT JOIN LATERAL (SELECT :draw AS i OFFSET 0) AS c ON true",
        share=aliased(share, f"q{n}"),
        picked=[
            aliased(sql(":rows[1 + c.i]", rows=column("d", f"x{a}")), f"a{a}") for a in step.kept
        ],
        walks=walks,
        matches=table(f"d{n}"),
        same=same_sql("w", "d", step.fixed),
        draw=_draw(n, column("d", "n")),
    )
    if not step.kept:  # which row it is does not matter
        stepped.set("joins", stepped.args["joins"][:1])
    return [cte(f"d{n}", matches, materialized=True), cte(f"w{n}", stepped, materialized=True)]


def _draw(step: int, matches: Tree) -> Tree:
    """Write a number below ``matches`` that a walk draws in a step."""
    drawn: Tree = sql(
        "dp.draw((SELECT p.key FROM p), w.id, :step, :matches)", step=number(step), matches=matches
    )
    return drawn


def _report(query: JoinQuery, chain: Chain, label: int) -> exp.Query:
    """Sum up one stretch by group and keep the groups of the largest means."""
    stretch = chain.stretches[label]
    first, last = stretch.first + 1, stretch.last + 1
    factors = [sql("coalesce(:q, 0)", q=column("", f"q{j}")) for j in range(first, last + 1)]
    factors += [
        cast(column("", f"t{n}"), "int")
        for n, p in enumerate(query.predicates)
        if stretch.applies(p)
    ]
    names = of("", sorted(stretch.boundary.attributes))
    sums = sql(
        "SELECT :names, count(*) AS n, sum(x) AS s, sum(x * x) AS ss"
        " FROM (SELECT :names, :weight AS x FROM w WHERE :entered > 0) AS e GROUP BY :names",
        names=names,
        weight=join_all(exp.Mul, factors),
        entered=column("", f"q{first - 1}"),
    )
    if stretch.rest:
        # a walk that died before it found the rest still entered with the fixed part
        sums = sql(
            "SELECT * FROM (SELECT :names, sum(n) OVER (PARTITION BY :fixed) AS n, s, ss"
            " FROM :sums AS g) AS g WHERE s > 0",
            names=names,
            fixed=of("", stretch.fixed),
            sums=sums,
        )
    found: exp.Query = sql(
        "SELECT :label AS label, ARRAY[:texts] AS keys, n::bigint AS n, s, ss,"
        " sum(s / n::double precision) OVER () AS total FROM :sums AS g"
        " ORDER BY s / n::double precision DESC LIMIT (SELECT p.n[3] FROM p)",
        label=number(label),
        texts=[cast(key, "text") for key in names],
        sums=sums,
    )
    return found
