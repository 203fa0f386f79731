"""What units contribute to a grouped count, as one SQL statement that returns a histogram.

The plan counts per group *and* unit; nothing that names a unit leaves the statement, only how
many units have which counts.  These are few: units of ``d`` different counts have at least
``d (d + 1) / 2`` results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpsql.errors import InternalError
from dpsql.model import Contributions, JoinQuery, Key
from dpsql.query.counting_sql import Writer
from dpsql.query.elimination import Plan


def per_unit(query: JoinQuery) -> JoinQuery:
    """Return the count per group and unit."""
    if query.unit is None:
        raise InternalError("the count has no privacy unit")
    return replace(query, groups=tuple(dict.fromkeys((*query.groups, query.unit))))


def contribution_sql(plan: Plan, query: JoinQuery, *, numeric: bool = False) -> str:
    """Write the statement.

    Parameters
    ----------
    plan : Plan
        Of `per_unit` of the query.
    query : JoinQuery
        The question; ``query.unit`` is not ``None``.
    numeric : bool
        Count in ``numeric`` rather than in ``bigint`` that fails with 22003.

    Returns
    -------
    str
        A statement with columns ``label, total, amount, units, k1 ... kg``, all but the label
        text.  Rows labelled 0 count the units with ``total`` results in all groups, rows labelled
        1 those with ``amount`` of ``total`` in the group.
    """
    writer = Writer(plan, "numeric" if numeric else "bigint")
    answer = writer.answer(plan.query.groups)
    if not query.groups:
        return (
            f"{writer.head()}SELECT 0 AS label, n::text AS total, n::text AS amount, "
            f"count(*)::text AS units FROM ({answer}) AS c GROUP BY n"
        )
    unit = f"a{query.unit}"
    nothing = "".join(f", NULL::text AS k{i + 1}" for i in range(len(query.groups)))
    keys = "".join(f", c.a{a}::text AS k{i + 1}" for i, a in enumerate(query.groups))
    columns = ", ".join(f"c.a{a}" for a in dict.fromkeys(query.groups))
    head = writer.head(
        f"c AS MATERIALIZED ({answer})",
        f"t AS MATERIALIZED (SELECT {unit}, sum(n) AS total FROM c GROUP BY {unit})",
    )
    return (
        f"{head}SELECT 0 AS label, total::text AS total, NULL::text AS amount, "
        f"count(*)::text AS units{nothing} FROM t GROUP BY t.total "
        f"UNION ALL SELECT 1 AS label, t.total::text AS total, c.n::text AS amount, "
        f"count(*)::text AS units{keys} FROM c JOIN t ON c.{unit} = t.{unit} "
        f"GROUP BY t.total, c.n, {columns}"
    )


def read_contributions(query: JoinQuery, rows: Iterable[Sequence[object]]) -> Contributions:
    """Assemble the histogram from the rows of `contribution_sql`."""
    units: dict[int, int] = {}
    groups: dict[Key, dict[tuple[int, int], int]] = {}
    for label, total, amount, count, *texts in rows:
        results, number = int(str(total)), int(str(count))
        if label == 0:
            units[results] = units.get(results, 0) + number
        if results and (label == 1 or not query.groups):
            key = tuple(None if k is None else str(k) for k in texts)
            cell = groups.setdefault(key, {})
            place = results, int(str(amount))
            cell[place] = cell.get(place, 0) + number
    return Contributions(units, groups)
