"""What units contribute to counts and sums, from one snapshot.

By the same plan and the same two executors as any count (`dpsql.statistics.counts`), with
identical results; sums and distinct values by SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.counted import Contributions
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.contribution_sql import contribution_sql, per_unit, read_contributions, together
from dpsql.query.elimination import Plan, make_plan
from dpsql.query.flat_sql import is_flat
from dpsql.statistics.counts import (
    MEMORY_LIMIT,
    OUT_OF_RANGE,
    Kernel,
    in_arrays,
    prefer_arrays,
)
from dpsql.statistics.sizes import Facts, read_facts


def contributions(
    queries: Sequence[JoinQuery],
    bounds: Sequence[Sequence[int]],
    database: Database,
    *,
    reach: int = 0,
    kernel: Kernel = "auto",
    memory_limit: int = MEMORY_LIMIT,
) -> list[Contributions]:
    """Tell how many units contribute how much, exactly, by elimination and not by joining.

    Parameters
    ----------
    queries : sequence of JoinQuery
        With a unit, and equal but for their weights; or one that counts distinct values.
    bounds : sequence of sequences of int
        For each query the sizes of units that are told apart, ascending.
    database : Database
        Reads one snapshot, by one statement.
    reach : int
        Of each unit the results in so many of its groups count; 0: in all.
    kernel : {'auto', 'sql', 'arrays'}
        Executor; ``arrays`` still falls back to SQL where it cannot be exact or fit.
    memory_limit : int
        Bytes that the array kernel may hold.
    """
    query = together(queries)
    grouped = per_unit(query)
    facts = read_facts(grouped, database)
    plan = make_plan(grouped, (), answer=True, sizes=facts.sizes(grouped), tick=database.tick)
    wanted = kernel == "arrays"
    if kernel == "auto" and not is_flat(grouped):
        wanted = prefer_arrays(plan, facts, memory_limit, workers=False)
    if wanted and not (query.weights or query.distinct or query.computed or reach):
        found = _in_arrays(query, bounds[0], plan, facts, database, memory_limit)
        if found is not None:
            return [found]
    try:
        rows = database.execute(contribution_sql(plan, queries, bounds, reach=reach))
    except Exception as error:
        if getattr(error, "sqlstate", None) != OUT_OF_RANGE:
            raise
        rows = database.execute(contribution_sql(plan, queries, bounds, numeric=True, reach=reach))
    return read_contributions(queries, bounds, rows)


def _in_arrays(
    query: JoinQuery,
    bounds: Sequence[int],
    plan: Plan,
    facts: Facts,
    database: Database,
    memory_limit: int,
) -> Contributions | None:
    """Run the plan on arrays; ``None`` when it does not fit them."""
    from dpsql.statistics.codes import decode_keys
    from dpsql.statistics.kernel import evaluate_units

    if len(plan.answer or ()) != 1 or query.unit is None:
        return None
    unit = query.unit
    # the unit is no group here: nothing that names one is decoded
    shown = replace(plan, query=replace(plan.query, groups=query.groups))
    found = in_arrays(
        shown,
        facts,
        database,
        memory_limit,
        lambda coded, tables, memory: evaluate_units(
            coded, unit, bounds, tables, memory, database.tick
        ),
    )
    if found is None:
        return None
    return replace(found[0], groups=decode_keys(shown, found[1], found[0].groups))
