"""Which results belong to which units, as one SQL statement that returns packed integers.

The plan counts or sums per value of the attributes that name the units; results whose units have
the same names are one row.  Units are numbered: integers are their own numbers, other names get the
number of their row in a list of all names of one protected relation, so no name leaves the
statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from dpsql.errors import InternalError
from dpsql.model import JoinQuery
from dpsql.query.contribution_sql import integer_sql
from dpsql.query.counting_sql import Writer
from dpsql.query.elimination import Plan
from dpsql.relation import base
from dpsql.sqltree import (
    Tree,
    aliased,
    cast,
    column,
    cte,
    equal,
    from_,
    joined,
    number,
    render,
    select,
    sql,
    table,
    with_,
)

_INTEGERS = frozenset({"smallint", "integer", "bigint"})
_COLLATED = frozenset({"text", "character varying", "bpchar"})


def per_units(query: JoinQuery) -> JoinQuery:
    """Return the count or sum per combination of units."""
    if not query.units:
        raise InternalError("the results of the question belong to one privacy unit")
    return replace(query, groups=tuple(dict.fromkeys((*query.groups, *query.units))))


def membership_sql(
    plan: Plan, query: JoinQuery, most: int, room: int, piece: int = 0, *, numeric: bool = False
) -> str:
    """Write the statement.

    Parameters
    ----------
    plan : Plan
        Of `per_units` of the query.
    query : JoinQuery
        The question; ``query.units`` is not empty, ``query.groups`` is.
    most : int
        Higher counts are read as this one, and sums of a greater magnitude as it or its negative.
    room : int
        Bytes of values that may be packed, above which PostgreSQL raises 54000.
    piece : int
        Rows in each packed value; 0: all rows in one.
    numeric : bool
        Count in ``numeric`` rather than in ``bigint`` that fails with 22003.

    Returns
    -------
    str
        A statement with one column: a ``dp.pack`` of the count, or the sum unless it is 0, and the
        number of the unit by each of ``query.units``.  Numbers are of one protected relation.
        Without results NULL, or no row.
    """
    writer = Writer(plan, "numeric" if numeric else "bigint")
    ctes = [*writer.ctes(), cte("c", writer.answer(plan.query.groups), materialized=True)]
    listed = set()
    for root in dict.fromkeys(query.unit_roots):
        mine = [a for a, r in zip(query.units, query.unit_roots, strict=True) if r == root]
        if all(query.attributes[a].type_name in _INTEGERS for a in mine):
            continue
        listed.add(root)
        names = _union([sql("SELECT DISTINCT :v AS v FROM c", v=_name(query, a)) for a in mine])
        numbered = sql("SELECT v, row_number() OVER () AS i FROM :names AS n", names=names)
        ctes.append(cte(f"u{root}", numbered, materialized=True))
    sources: list[Tree] = [table("c")]
    numbers: list[Tree] = []
    for k, (a, root) in enumerate(zip(query.units, query.unit_roots, strict=True)):
        if root in listed:
            same = equal(column(f"i{k}", "v"), _name(query, a))
            sources.append(joined(table(f"u{root}", f"i{k}"), same))
            numbers.append(column(f"i{k}", "i"))
        else:
            numbers.append(column("c", f"a{a}"))
    value, kept = sql("least(c.n, :most)", most=number(most)), None
    if query.weights:
        value = sql(
            "least(greatest(:sum, :least), :most)",
            sum=integer_sql(column("c", "w0"), query),
            least=number(-most),
            most=number(most),
        )
        kept = sql("c.w0 <> 0")
    columns = [cast(value, "bigint"), *numbers]
    source, limit = from_(sources, kept), cast(number(room), "bigint")
    if not piece:
        packed = sql("dp.pack(:limit, :columns)", limit=limit, columns=columns)
        return render(with_(ctes, select([aliased(packed, "packed")], source)))
    pieces = sql("(row_number() OVER () - 1) / :piece", piece=number(piece))
    named = [aliased(made, f"v{k}") for k, made in enumerate(columns)]
    *values, last = (column("p", f"v{k}") for k in range(len(columns)))
    # ORDER BY prevents a hash aggregate, which would hold all pieces in memory
    statement = sql(
        "SELECT dp.pack(:limit, :columns, :last ORDER BY p.piece) AS packed"
        " FROM :rows AS p GROUP BY p.piece",
        limit=limit,
        columns=values,
        last=last,
        rows=select([*named, aliased(pieces, "piece")], source),
    )
    return render(with_(ctes, statement))


def _union(queries: Sequence[exp.Query]) -> exp.Query:
    """Return the different rows of queries."""
    return reduce(lambda one, other: exp.Union(this=one, expression=other, distinct=True), queries)


def _name(query: JoinQuery, attribute: int) -> Tree:
    """Write the name of a unit; names of one relation may come from columns of two collations."""
    name = column("c", f"a{attribute}")
    collated = base(query.attributes[attribute].type_name) in _COLLATED
    return sql(':name COLLATE "C"', name=name) if collated else name
