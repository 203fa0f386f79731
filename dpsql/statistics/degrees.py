"""How many children the parents of a foreign key have: a histogram of degrees, in one statement.

Exact and secret (PRIVACY.md section 2).  What a privacy unit changes is bounded by cutting off
before anything is counted (sections 5 and 8), so the histogram needs no d_max to be true.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.contribution_sql import per_unit
from dpsql.query.elimination import make_plan
from dpsql.query.flat_sql import answering
from dpsql.query.source_sql import of
from dpsql.sqltree import Tree, aliased, cast, column, constant, number, render, sql, with_
from dpsql.statistics.sizes import read_facts
from dpsql.statistics.tabulation_sql import Levels, bounded, level_code, texts_of, which_of

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
    ctes, answer = _per_parent(query, database)
    if query.unit is None or not query.groups:
        parents = sql("SELECT d.n FROM :answer AS d", answer=answer)
    elif whole:
        parents = _first_parents(answer, query, bound)
    else:
        parents = sql(
            "SELECT sum(d.n) AS n FROM :kept AS d GROUP BY :keys",
            kept=bounded(answer, query, bound),
            keys=of("d", query.groups),
        )
    statement = sql(
        "SELECT pg_catalog.width_bucket(p.n::numeric, :starts) AS bin,"
        " pg_catalog.count(*)::text AS parents FROM :parents AS p WHERE p.n > 0 GROUP BY 1",
        starts=_array(starts),
        parents=parents,
    )
    found = database.execute(render(with_(ctes, statement)))
    result: Ints = np.zeros(len(starts), dtype=np.int64)
    for bin_, many in found:
        result[int(str(bin_)) - 1] = int(str(many))
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
    ctes, answer = _per_parent(query, database)
    parents = _first_parents(answer, query, bound) if keys else answer
    columns = [column("", f"c{i}") for i in range(len(levels))]
    statement = sql(
        "SELECT :which AS which, bin, coalesce(:columns) AS code,"
        " pg_catalog.count(*)::text AS parents FROM"
        " (SELECT pg_catalog.width_bucket(f.n::numeric, :starts) AS bin, :codes FROM :parents AS f"
        " WHERE f.n > 0) AS p GROUP BY GROUPING SETS (:sets)",
        which=which_of(columns),
        columns=columns,
        starts=_array(starts),
        codes=[aliased(level_code(level, query), f"c{i}") for i, level in enumerate(levels)],
        parents=parents,
        sets=[exp.Tuple(expressions=[column("", "bin"), one]) for one in columns],
    )
    found = database.execute(render(with_(ctes, statement)))
    result: list[Ints] = [
        np.zeros((len(level.values), len(starts)), dtype=np.int64) for level in levels
    ]
    for place, bin_, code, many in found:
        if code is not None:
            result[int(str(place))][int(str(code)), int(str(bin_)) - 1] = int(str(many))
    return result


def _per_parent(query: JoinQuery, database: Database) -> tuple[list[exp.CTE], exp.Select]:
    """Write what counts the children of every parent, or of a unit's with each parent."""
    counted = per_unit(query) if query.unit is not None else query
    sizes = read_facts(counted, database).sizes(counted)
    plan = make_plan(counted, (), answer=True, sizes=sizes, tick=database.tick)
    writer = answering(plan, numeric=True)
    rows = writer.answer(tuple(dict.fromkeys(counted.groups)))
    return writer.ctes(), sql("SELECT * FROM :rows AS w", rows=rows)


def _array(starts: Sequence[int]) -> Tree:
    return cast(constant("{" + ",".join(map(str, starts)) + "}"), "numeric[]")


def sensitivity(query: JoinQuery, bound: int, *, whole: bool) -> int:
    """Bound what neighbours change of the histogram, in L1.

    A unit takes its at most ``bound`` parents with it, or moves each of the at most ``bound``
    parents of its children from one bin to another; a row moves one (PRIVACY.md section 1).
    """
    if query.unit is None:
        return 2
    return bound if whole else 2 * bound


def _first_parents(answer: exp.Select, query: JoinQuery, bound: int) -> exp.Select:
    """Keep at most ``bound`` parents of each unit: the first by a hash of their keys.

    Children of a parent that belong to another unit count as another parent: a unit takes with it
    what is its own, and nothing else changes.
    """
    unit = column("d", f"a{query.unit}")
    keys = of("d", query.groups)
    first: exp.Select = sql(
        "SELECT k.* FROM (SELECT d.*, pg_catalog.row_number() OVER (PARTITION BY :unit"
        " ORDER BY pg_catalog.hashtextextended(:whole, 0), :texts) AS place FROM :answer AS d) AS k"
        " WHERE k.place <= :bound",
        unit=unit,
        whole=texts_of([unit, *keys]),
        texts=texts_of(keys),
        answer=answer,
        bound=number(bound),
    )
    return first
