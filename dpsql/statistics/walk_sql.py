"""Random walks as SQL: one statement advances all walks by one relation after the other.

Step ``j`` is two MATERIALIZED CTEs: ``d<j>`` holds, for every key at which a live walk stands, the
number of matching rows and arrays of their attributes; ``w<j>`` lets every walk pick one of them.
The planner joins the keys by an index or by one pass of the relation, as it pays.  ``q<j>`` is the
number of matches as a share of the largest possible one: 0 where the walk dies, NULL after that.
Values travel as parameters, so that the text, and its plan, depend on the query alone.
Relations on other servers: ``walk_parts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql import sqltree
from dpsql.model import JoinQuery, Predicate
from dpsql.query.elimination import Base
from dpsql.query.ir import render
from dpsql.query.places import is_cut
from dpsql.query.source_sql import all_sql, source_text, written
from dpsql.statistics.chains import Chain, Stretch
from dpsql.statistics.walk_parts import groups_of, sent_sql, step_to_group

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
    starts = "".join(f", ${4 + k}::text[] AS s{a}" for k, a in enumerate(chain.start))
    parts = [
        "p AS MATERIALIZED (SELECT $1::bytea AS key, $2::bigint[] AS n, "
        f"$3::float8[] AS m{starts})",
        f"w0 AS MATERIALIZED ({_first(query, chain)})",
    ]
    for number in range(1, len(chain.steps) + 1):
        parts += _step(query, chain, number)
    tests = "".join(
        f", ({render(predicate.expression)}) IS TRUE AS t{n}"
        for n, predicate in enumerate(query.predicates)
        if any(_applies(predicate, stretch) for stretch in chain.stretches)
    )
    parts.append(f"w AS MATERIALIZED (SELECT *{tests} FROM w{len(chain.steps)})")
    reports = " UNION ALL ".join(_report(query, chain, n) for n in range(len(chain.stretches)))
    return f"WITH {', '.join(parts)} {reports}"


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


def forward_sql(query: JoinQuery, chain: Chain) -> str:
    """Write the statement that counts the largest group exactly among given starts.

    It follows *all* matches of the starts, summed up as early as possible; parameters are one
    ``text[]`` for each attribute of ``chain.start``; the only stretch is all of the chain.
    """
    boundary = chain.stretches[0].boundary
    starts = ", ".join(f"CAST(s.s{a} AS {_type(query, a)}) AS a{a}" for a in chain.start)
    arrays = ", ".join(f"${k + 1}::text[]" for k in range(len(chain.start)))
    names = ", ".join(f"s{a}" for a in chain.start)
    parts = [
        f"x0 AS (SELECT DISTINCT {starts}, 1::numeric AS n FROM unnest({arrays}) AS s({names}))"
    ]
    known = frozenset(chain.start)
    pending = [p for p in query.predicates if _applies(p, chain.stretches[0])]
    for number, step in enumerate(chain.steps, 1):
        own = query.occurrences[step.occurrence].attributes
        known |= own
        now = [p for p in pending if p.attributes <= known]
        pending = [p for p in pending if p not in now]
        needed = set(boundary.attributes).union(*(p.attributes for p in pending))
        for later in chain.steps[number:]:
            needed |= query.occurrences[later.occurrence].attributes
        sent = sent_sql(query, step, f"x{number - 1} AS x")
        rows = _rows(query, step.occurrence, sorted(own), sent=sent)
        on = " AND ".join(f"x.a{a} = r.a{a}" for a in step.fixed) or "true"
        columns = [f"x.a{a}" for a in sorted(known - own | frozenset(step.fixed))]
        columns += [f"r.a{a}" for a in sorted(own - frozenset(step.fixed))]
        joined = (
            f"SELECT {', '.join([*columns, 'x.n'])} FROM x{number - 1} AS x JOIN {rows} ON {on}"
        )
        meant = all_sql(now)
        tests = "" if meant is None else sqltree.render(meant)
        kept = "".join(f"a{a}, " for a in sorted(known & needed))
        known &= needed
        parts.append(
            f"x{number} AS (SELECT {kept}sum(n) AS n FROM ({joined}) AS j"
            + (f" WHERE {tests}" if tests else "")
            + (f" GROUP BY {kept[:-2]})" if kept else ")")
        )
    return f"WITH {', '.join(parts)} SELECT max(n)::text AS n FROM x{len(chain.steps)}"


def groups_sql(query: JoinQuery, chain: Chain) -> str:
    """Write the statement that lists the starts of most rows in the first relation.

    Parameters ``$1`` and ``$2``: only with more rows than this, and at most so many.
    """
    texts = ", ".join(f"a{a}::text" for a in chain.start)
    names = ", ".join(f"a{a}" for a in chain.start)
    first = chain.steps[0].occurrence
    rows, total = _rows(query, first, chain.start), "count(*)"
    if is_cut(query.occurrences[first]):
        rows, total = f"({groups_of(query, first, chain.start)}) AS r", "sum(n)::bigint"
    return (
        f"SELECT ARRAY[{texts}] AS keys, {total} AS n FROM {rows} GROUP BY {names} "
        f"HAVING {total} > $1::bigint ORDER BY {total} DESC LIMIT $2::bigint"
    )


def _type(query: JoinQuery, attribute: int) -> str:
    return query.attributes[attribute].type_name


def _applies(predicate: Predicate, stretch: Stretch) -> bool:
    """Whether a predicate over several occurrences belongs to a stretch."""
    inside = stretch.boundary.occurrences
    return len(predicate.occurrences) > 1 and predicate.occurrences <= inside


def _rows(
    query: JoinQuery,
    occurrence: int,
    attributes: Iterable[int],
    more: str = "",
    sent: Sequence[str] = (),
) -> str:
    """Write the filtered rows of an occurrence for a FROM clause, as ``r``.

    ``sent`` has a condition over ``r`` for each of its parts, if it has any; they are then asked
    at the same time (``dpsql.query.part_sql``).
    """
    own = tuple(n for n, p in enumerate(query.predicates) if p.occurrences <= {occurrence})
    base = Base(occurrence, tuple(attributes), own, grouped=False, unit=True, unique=False)
    found = []
    parts = range(len(query.occurrences[occurrence].relation.parts))
    query = written(query) if parts else query
    # part by part, so that the number of a part is a constant
    for part in parts or [None]:
        expressions, source = source_text(query, base, part=part)
        columns = [f"{expressions[a]} AS a{a}" for a in base.output]
        listed = ", ".join([*columns, more] if more else columns) or "1"
        text = f"SELECT {listed} FROM {source}"
        if sent and part is not None:
            text = f"SELECT r.* FROM ({text}) AS r WHERE {sent[part]}"
        found.append(text)
    return f"({' UNION ALL '.join(found)}{' OFFSET 0' if sent else ''}) AS r"


def _first(query: JoinQuery, chain: Chain) -> str:
    """Write the walks before their first step: ``n`` of each group."""
    walks = "generate_series(0, (SELECT p.n[2] FROM p) - 1) AS x(i)"
    if not chain.start:
        return f"SELECT p.n[1] + x.i AS id, 1::float8 AS q0 FROM p CROSS JOIN {walks}"
    arrays = ", ".join(f"p.s{a}" for a in chain.start)
    names = ", ".join(f"s{a}" for a in chain.start)
    values = ", ".join(f"CAST(g.s{a} AS {_type(query, a)}) AS a{a}" for a in chain.start)
    return (
        f"SELECT p.n[1] + (g.i - 1) * p.n[2] + x.i AS id, {values}, 1::float8 AS q0 "
        f"FROM p CROSS JOIN LATERAL unnest({arrays}) WITH ORDINALITY AS g({names}, i) "
        f"CROSS JOIN {walks}"
    )


def _step(query: JoinQuery, chain: Chain, number: int) -> list[str]:
    """Write one step."""
    step = chain.steps[number - 1]
    draw = f"dp.draw((SELECT p.key FROM p), w.id, {number}, {{}})"
    if not step.fixed:
        draw = draw.format(f"(SELECT p.m[{number}] FROM p)::bigint")
        if is_cut(query.occurrences[step.occurrence]):
            return step_to_group(query, step, number, draw)
        rows = _rows(query, step.occurrence, step.kept, "row_number() OVER () AS i")
        picked = "".join(f", r.a{a}" for a in step.kept)
        return [
            f"w{number} AS MATERIALIZED (SELECT w.*, (r.i IS NOT NULL)::int::float8 AS q{number}"
            f"{picked} FROM (SELECT w.*, 1 + {draw} AS i{number} FROM w{number - 1} AS w) AS w "
            f"LEFT JOIN {rows} ON r.i = w.i{number})"
        ]
    sent = sent_sql(query, step, f"w{number - 1}", f"q{number - 1} > 0")
    rows = _rows(query, step.occurrence, sorted({*step.fixed, *step.kept}), sent=sent)
    keys = ", ".join(f"a{a}" for a in step.fixed)
    here = " AND ".join(f"k.a{a} = r.a{a}" for a in step.fixed)
    there = " AND ".join(f"w.a{a} = d.a{a}" for a in step.fixed)
    own = ", ".join(f"k.a{a}" for a in step.fixed)
    arrays = "".join(f", array_agg(r.a{a}) AS x{a}" for a in step.kept)
    picked = "".join(f", d.x{a}[1 + c.i] AS a{a}" for a in step.kept)
    choice = f" LEFT JOIN LATERAL (SELECT {draw.format('d.n')} AS i OFFSET 0) AS c ON true"
    return [
        f"d{number} AS MATERIALIZED (SELECT {own}, count(*) AS n{arrays} FROM "
        f"(SELECT DISTINCT {keys} FROM w{number - 1} WHERE q{number - 1} > 0) AS k "
        f"JOIN {rows} ON {here} GROUP BY {own})",
        f"w{number} AS MATERIALIZED (SELECT w.*, CASE WHEN w.q{number - 1} > 0 THEN "
        f"coalesce(d.n / (SELECT p.m[{number}] FROM p), 0) END AS q{number}{picked} "
        f"FROM w{number - 1} AS w LEFT JOIN d{number} AS d ON {there}"
        f"{choice if step.kept else ''})",
    ]


def _report(query: JoinQuery, chain: Chain, number: int) -> str:
    """Sum up one stretch by group and keep the groups of the largest means."""
    stretch = chain.stretches[number]
    first, last = stretch.first + 1, stretch.last + 1
    factors = [f"coalesce(q{j}, 0)" for j in range(first, last + 1)]
    factors += [f"t{n}::int" for n, p in enumerate(query.predicates) if _applies(p, stretch)]
    names = ", ".join(f"a{a}" for a in sorted(stretch.boundary.attributes))
    texts = ", ".join(f"a{a}::text" for a in sorted(stretch.boundary.attributes))
    entered = f"SELECT {names}, {' * '.join(factors)} AS x FROM w WHERE q{first - 1} > 0"
    sums = (
        f"SELECT {names}, count(*) AS n, sum(x) AS s, sum(x * x) AS ss "
        f"FROM ({entered}) AS e GROUP BY {names}"
    )
    if stretch.rest:
        # a walk that died before it found the rest still entered with the fixed part
        by = ", ".join(f"a{a}" for a in stretch.fixed)
        window = f"PARTITION BY {by}" if by else ""
        sums = f"SELECT {names}, sum(n) OVER ({window}) AS n, s, ss FROM ({sums}) AS g"
        sums = f"SELECT * FROM ({sums}) AS g WHERE s > 0"
    return (
        f"(SELECT {number} AS label, ARRAY[{texts}] AS keys, n::bigint AS n, s, ss, "
        f"sum(s / n::float8) OVER () AS total FROM ({sums}) AS g "
        "ORDER BY s / n::float8 DESC LIMIT (SELECT p.n[3] FROM p))"
    )
