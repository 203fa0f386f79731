"""What units contribute to counts and sums, from one snapshot.

By the same plan and the same two executors as any count (`dpsql.statistics.counts`), with
identical results; sums and distinct values by SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.counted import Contributions
from dpsql.expression import Expr
from dpsql.model import JoinQuery, Occurrence
from dpsql.ports import Database
from dpsql.query.contribution_sql import contribution_sql, per_unit, read_contributions, together
from dpsql.query.elimination import Base, Plan, make_plan
from dpsql.query.flat_sql import is_flat
from dpsql.query.places import any_cut
from dpsql.query.source_sql import source_sql
from dpsql.sqltree import render, select
from dpsql.statistics.counts import (
    MEMORY_LIMIT,
    Kernel,
    in_arrays,
    prefer_arrays,
)
from dpsql.statistics.limits import COPIES
from dpsql.statistics.merged import Merged, merge
from dpsql.statistics.running import run
from dpsql.statistics.sizes import Facts, read_facts

# Milliseconds, measured on TPC-H at scale factor 1: of a result and each of its sums, of a row that
# is looked up or joined.
_SQL_RESULT = 3e-4
_SQL_WEIGHT = 1.5e-4
_SQL_PROBE = 3e-3
_SQL_ROW = 2e-4
_RESULT = 6e-5
_WEIGHT = 5e-5
_ROW = 9e-5
_STATEMENT = 1.0
_STATEMENTS = 8.0


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
        With a unit, and equal but for weights and filters (`alike`).
    bounds : sequence of sequences of int
        For each query the sizes of units that are told apart, ascending.
    database : Database
        Reads one snapshot.
    reach : int
        Of each unit the results in so many of its groups count; 0: in all.
    kernel : {'auto', 'sql', 'arrays'}
        Executor; ``arrays`` still falls back to SQL where it cannot be exact or fit.
    memory_limit : int
        Bytes that the array kernel may hold.
    """
    parts: dict[tuple[tuple[Expr, ...], ...], list[int]] = {}
    for j, query in enumerate(queries):
        parts.setdefault(tuple(o.filters for o in query.occurrences), []).append(j)
    if kernel == "auto" and len(queries[0].occurrences) == 1 and queries[0].one_per_unit:
        # one pass over one relation: there is nothing to choose
        kernel = "sql"
        facts = Facts({}, {}, {})
    else:
        # of relations and columns, in which the queries are alike
        facts = read_facts(queries[0], database)
    if kernel != "sql" and not reach:
        found = _by_keys(queries, bounds, len(parts), facts, database, kernel, memory_limit)
        if found is not None:
            return found
    known: dict[int, Contributions] = {}
    for numbers in parts.values():
        some, listed = [queries[j] for j in numbers], [bounds[j] for j in numbers]
        made = _by_plan(some, listed, facts, database, reach, kernel, memory_limit)
        known |= zip(numbers, made, strict=True)
    return [known[j] for j in range(len(queries))]


def alike(query: JoinQuery) -> JoinQuery:
    """Return what queries have in common that are read together."""
    occurrences = tuple(replace(o, filters=()) for o in query.occurrences)
    return replace(query, weights=(), rank=None, occurrences=occurrences)


def _by_plan(
    queries: Sequence[JoinQuery],
    bounds: Sequence[Sequence[int]],
    facts: Facts,
    database: Database,
    reach: int,
    kernel: Kernel,
    memory_limit: int,
) -> list[Contributions]:
    """Evaluate the plan of queries that differ in their weights only."""
    query = together(queries)
    grouped = per_unit(query)
    plan = make_plan(grouped, (), answer=True, sizes=facts.sizes(grouped), tick=database.tick)
    wanted = kernel == "arrays"
    if kernel == "auto" and not is_flat(grouped):
        wanted = prefer_arrays(plan, facts, memory_limit, workers=False)
    plain = not (query.weights or query.distinct or query.computed or reach)
    if wanted and plain and len(queries) == 1:
        found = _in_arrays(query, bounds[0], plan, facts, database, memory_limit)
        if found is not None:
            return [found]
    rows = run(
        plan.query,
        database,
        lambda numeric: contribution_sql(plan, queries, bounds, numeric=numeric, reach=reach),
    )
    return read_contributions(queries, bounds, rows)


def _by_keys(
    queries: Sequence[JoinQuery],
    bounds: Sequence[Sequence[int]],
    passes: int,
    facts: Facts,
    database: Database,
    kernel: Kernel,
    memory_limit: int,
) -> list[Contributions] | None:
    """Go through one relation that determines all others; ``None`` where there is none."""
    if any(query.distinct or query.computed or any_cut(query) for query in queries):
        return None
    merged = merge(queries)
    query = per_unit(merged.query)
    first = leading(query, facts)
    if first is None or (kernel == "auto" and passes == 1 and is_flat(query)):
        return None
    rows = expected_rows(query, first, database) if first.filters else None
    if kernel == "auto" and not (
        prefer_keys(query, first, rows, facts, passes)
        and expected_need(merged, first, rows, facts) <= memory_limit
    ):
        return None
    from dpsql.statistics.arrays import Memory
    from dpsql.statistics.keyed import evaluate

    plan = make_plan(query, (), answer=True, sizes=facts.sizes(query), tick=database.tick)
    memory = Memory(memory_limit)
    return evaluate(plan, merged, queries, bounds, first, rows, facts, database, memory)


def leading(query: JoinQuery, facts: Facts) -> Occurrence | None:
    """Return the occurrence whose rows determine all others; of several the largest."""
    found = [o for o in query.occurrences if query.determined_by(o.attributes, o)]
    return max(found, key=lambda o: facts.rows.get(o.relation.oid, 0.0), default=None)


def expected_rows(query: JoinQuery, occurrence: Occurrence, database: Database) -> float:
    """Ask the planner how many rows of an occurrence pass its filters."""
    base = Base(occurrence.index, (), (), grouped=False, unit=True, unique=False)
    _, source = source_sql(query, base)
    statement = render(select([], source))
    ((rows,),) = database.execute("SELECT dp.planned_rows($1) AS n", (("text", statement),))
    return float(str(rows))


def prefer_keys(
    query: JoinQuery, first: Occurrence, rows: float | None, facts: Facts, passes: int
) -> bool:
    """Guess whether reading all other relations whole, to look rows up, beats passes of SQL."""
    results = facts.rows.get(first.relation.oid, 0.0) if rows is None else rows
    weights = len(query.weights)
    sql = results * (_SQL_RESULT + _SQL_WEIGHT * weights)
    keyed = _STATEMENTS + results * (_RESULT + _WEIGHT * weights)
    for other in query.occurrences:
        if other is not first:
            size = facts.rows.get(other.relation.oid, 0.0)
            sql += min(results * _SQL_PROBE, size * _SQL_ROW)
            keyed += _STATEMENT + size * _ROW
    return keyed < sql * passes


def expected_need(merged: Merged, first: Occurrence, rows: float | None, facts: Facts) -> float:
    """Estimate the bytes that are held at once: the others whole, of the first some pages."""
    total = 0.0
    for occurrence, values in zip(merged.query.occurrences, merged.values, strict=True):
        size = facts.rows.get(occurrence.relation.oid, 0.0)
        leads = occurrence.index == first.index
        if leads and rows is not None:
            size = rows
        a_row = 4 * (len(occurrence.attributes) + len(values))
        if not leads:
            total += size * a_row
        elif not occurrence.relation.has_pages:
            total += size * a_row * COPIES
    return total


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
