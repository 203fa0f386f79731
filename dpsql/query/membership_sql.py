"""Which results belong to which units, as one SQL statement that returns packed integers.

The plan counts or sums per value of the attributes that name the units; results whose units have
the same names are one row.  Units are numbered: integers are their own numbers, other names get the
number of their row in a list of all names of one protected relation, so no name leaves the
statement.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.errors import InternalError
from dpsql.model import JoinQuery
from dpsql.query.contribution_sql import integer_sql
from dpsql.query.counting_sql import Writer
from dpsql.query.elimination import Plan
from dpsql.relation import base

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
    ctes = [f"c AS MATERIALIZED ({writer.answer(plan.query.groups)})"]
    joins, numbers = [], []
    for root in dict.fromkeys(query.unit_roots):
        mine = [a for a, r in zip(query.units, query.unit_roots, strict=True) if r == root]
        if all(query.attributes[a].type_name in _INTEGERS for a in mine):
            continue
        names = " UNION ".join(f"SELECT DISTINCT {_name(query, a, 'c')} AS v FROM c" for a in mine)
        ctes.append(
            f"u{root} AS MATERIALIZED (SELECT v, row_number() OVER () AS i FROM ({names}) AS n)"
        )
    for k, (a, root) in enumerate(zip(query.units, query.unit_roots, strict=True)):
        if any(cte.startswith(f"u{root} ") for cte in ctes):
            joins.append(f" JOIN u{root} AS i{k} ON i{k}.v = {_name(query, a, 'c')}")
            numbers.append(f"i{k}.i")
        else:
            numbers.append(f"c.a{a}")
    value = f"least(c.n, {most})"
    if query.weights:
        value = f"least(greatest({integer_sql('c.w0', query)}, {-most}), {most})"
        joins.append(" WHERE c.w0 <> 0")
    columns = [f"{value}::bigint", *numbers]
    if not piece:
        packed = f"SELECT dp.pack({room}::bigint, {', '.join(columns)}) AS packed FROM c"
        return f"{writer.head(*ctes)}{packed}{''.join(joins)}"
    named = ", ".join(f"{column} AS v{k}" for k, column in enumerate(columns))
    values = ", ".join(f"p.v{k}" for k in range(len(columns)))
    # ORDER BY prevents a hash aggregate, which would hold all pieces in memory
    return (
        f"{writer.head(*ctes)}SELECT dp.pack({room}::bigint, {values} ORDER BY p.piece) AS packed "
        f"FROM (SELECT {named}, (row_number() OVER () - 1) / {piece} AS piece "
        f"FROM c{''.join(joins)}) AS p GROUP BY p.piece"
    )


def _name(query: JoinQuery, attribute: int, alias: str) -> str:
    """Write the name of a unit; names of one relation may come from columns of two collations."""
    collated = base(query.attributes[attribute].type_name) in _COLLATED
    return f"{alias}.a{attribute}" + (' COLLATE "C"' if collated else "")
