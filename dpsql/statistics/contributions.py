"""What units contribute to a count, from one snapshot.

By the same plan and the same two executors as any count (`dpsql.statistics.counts`), with
identical results.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.model import Contributions, JoinQuery
from dpsql.ports import Database
from dpsql.query.contribution_sql import contribution_sql, per_unit, read_contributions
from dpsql.query.elimination import Plan, make_plan
from dpsql.statistics.counts import (
    MEMORY_LIMIT,
    OUT_OF_RANGE,
    Kernel,
    in_arrays,
    prefer_arrays,
)
from dpsql.statistics.sizes import Facts, read_facts


def contributions(
    query: JoinQuery,
    database: Database,
    *,
    kernel: Kernel = "auto",
    memory_limit: int = MEMORY_LIMIT,
) -> Contributions:
    """Count how many units contribute how much, exactly, by elimination and not by joining.

    Parameters
    ----------
    query : JoinQuery
        With a unit.
    database : Database
        Reads one snapshot.
    kernel : {'auto', 'sql', 'arrays'}
        Executor; ``arrays`` still falls back to SQL where it cannot be exact or fit.
    memory_limit : int
        Bytes that the array kernel may hold.
    """
    grouped = per_unit(query)
    facts = read_facts(grouped, database)
    plan = make_plan(grouped, (), answer=True, sizes=facts.sizes(grouped), tick=database.tick)
    if kernel == "arrays" or (kernel == "auto" and prefer_arrays(plan, facts, memory_limit)):
        found = _in_arrays(query, plan, facts, database, memory_limit)
        if found is not None:
            return found
    try:
        rows = database.execute(contribution_sql(plan, query))
    except Exception as error:
        if getattr(error, "sqlstate", None) != OUT_OF_RANGE:
            raise
        rows = database.execute(contribution_sql(plan, query, numeric=True))
    return read_contributions(query, rows)


def _in_arrays(
    query: JoinQuery, plan: Plan, facts: Facts, database: Database, memory_limit: int
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
        lambda coded, tables, memory: evaluate_units(coded, unit, tables, memory, database.tick),
    )
    if found is None:
        return None
    return replace(found[0], groups=decode_keys(shown, found[1], found[0].groups))
