"""How many children the parents of a foreign key have: a histogram of degrees, in one statement.

Exact and secret (PRIVACY.md section 2).  What a privacy unit changes is bounded by cutting off
before anything is counted (sections 5 and 8), so the histogram needs no d_max to be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.contribution_sql import per_unit
from dpsql.query.elimination import make_plan
from dpsql.query.flat_sql import answering
from dpsql.statistics.sizes import read_facts
from dpsql.statistics.tabulation_sql import Levels, bounded, level_code, text_of

Ints = NDArray[np.int64]


def degree_histogram(
    query: JoinQuery,
    starts: Sequence[int],
    bound: int,
    database: Database,
    *,
    whole: bool,
) -> Ints:
    """Count parents by their number of children; parents without children are not seen.

    Parameters
    ----------
    query : JoinQuery
        Counts children by the columns that reference their parents, none of them NULL; or by
        nothing, where each unit is one parent.
    starts : sequence of int
        The least degree of each bin, ascending, from 1.
    bound : int
        What one privacy unit may have: parents with ``whole``, else children.
    database : Database
        Reads by one statement in one snapshot.
    whole : bool
        Whether parents belong to units with all their children.

    Returns
    -------
    array of int64, shape (bins,)
        Add/remove neighbours differ by at most `sensitivity` in L1.
    """
    writer, answer = _per_parent(query, database)
    keys = ", ".join(f"d.a{a}" for a in query.groups)
    if query.unit is None or not query.groups:
        parents = f"SELECT d.n FROM ({answer}) AS d"
    elif whole:
        parents = _first_parents(answer, query, bound)
    else:
        kept = bounded(answer, query, bound)
        parents = f"SELECT sum(d.n) AS n FROM ({kept}) AS d GROUP BY {keys}"
    array = ",".join(map(str, starts))
    found = database.execute(
        f"{writer.head()}SELECT pg_catalog.width_bucket(p.n::numeric, '{{{array}}}'::numeric[])"
        f" AS bin, pg_catalog.count(*)::text AS parents FROM ({parents}) AS p WHERE p.n > 0"
        " GROUP BY 1"
    )
    result: Ints = np.zeros(len(starts), dtype=np.int64)
    for bin_, number in found:
        result[int(str(bin_)) - 1] = int(str(number))
    return result


def degree_profile(
    query: JoinQuery,
    levels: Sequence[Levels],
    starts: Sequence[int],
    bound: int,
    database: Database,
    *,
    keys: int,
) -> list[Ints]:
    """Count parents by each of their attributes and by groups of their numbers of children.

    Parameters
    ----------
    query : JoinQuery
        Counts children by their parents' keys and, after these, attributes.
    levels : sequence of Levels
        The attributes, by places in the groups of the query.
    starts : sequence of int
        The least degree of each group, ascending, from 1.
    bound : int
        How many parents of one privacy unit count; they belong to it with all their children.
    database : Database
        Reads by one statement in one snapshot.
    keys : int
        How many of the query's groups are keys of the parents; 0 where each unit is one parent.

    Returns
    -------
    list of array of int64, shape (levels, groups)
        Add/remove neighbours differ by at most ``bound`` in L1 in each, so in L2 too: a unit takes
        its parents with it, each from one cell.  Values that are no level are left out.
    """
    writer, answer = _per_parent(query, database)
    parents = _first_parents(answer, query, bound) if keys else answer
    codes = ", ".join(f"{level_code(level, query)} AS c{i}" for i, level in enumerate(levels))
    columns = [f"c{i}" for i in range(len(levels))]
    array = ",".join(map(str, starts))
    sets = ", ".join(f"(bin, {column})" for column in columns)
    which = " ".join(f"WHEN GROUPING({column}) = 0 THEN {i}" for i, column in enumerate(columns))
    found = database.execute(
        f"{writer.head()}SELECT CASE {which} END AS which, bin, coalesce({', '.join(columns)})"
        f" AS code, pg_catalog.count(*)::text AS parents FROM (SELECT pg_catalog.width_bucket("
        f"f.n::numeric, '{{{array}}}'::numeric[]) AS bin, {codes} FROM ({parents}) AS f"
        f" WHERE f.n > 0) AS p GROUP BY GROUPING SETS ({sets})"
    )
    result: list[Ints] = [
        np.zeros((len(level.values), len(starts)), dtype=np.int64) for level in levels
    ]
    for place, bin_, code, number in found:
        if code is not None:
            result[int(str(place))][int(str(code)), int(str(bin_)) - 1] = int(str(number))
    return result


def _per_parent(query: JoinQuery, database: Database) -> tuple[Any, str]:
    """Write what counts the children of every parent, or of a unit's with each parent."""
    counted = per_unit(query) if query.unit is not None else query
    sizes = read_facts(counted, database).sizes(counted)
    plan = make_plan(counted, (), answer=True, sizes=sizes, tick=database.tick)
    writer = answering(plan, numeric=True)
    return writer, f"SELECT * FROM ({writer.answer(tuple(dict.fromkeys(counted.groups)))}) AS w"


def sensitivity(query: JoinQuery, bound: int, *, whole: bool) -> int:
    """Bound what neighbours change of the histogram, in L1.

    A unit takes its at most ``bound`` parents with it, or moves each of the at most ``bound``
    parents of its children from one bin to another; a row moves one (PRIVACY.md section 1).
    """
    if query.unit is None:
        return 2
    return bound if whole else 2 * bound


def _first_parents(answer: str, query: JoinQuery, bound: int) -> str:
    """Keep at most ``bound`` parents of each unit: the first by a hash of their keys.

    Children of a parent that belong to another unit count as another parent: a unit takes with it
    what is its own, and nothing else changes.
    """
    unit = text_of(f"d.a{query.unit}")
    keys = " || ".join(text_of(f"d.a{a}") for a in query.groups)
    order = f"ORDER BY pg_catalog.hashtextextended({unit} || {keys}, 0), {keys}"
    place = f"pg_catalog.row_number() OVER (PARTITION BY d.a{query.unit} {order})"
    placed = f"SELECT d.*, {place} AS place FROM ({answer}) AS d"
    return f"SELECT k.* FROM ({placed}) AS k WHERE k.place <= {bound}"
