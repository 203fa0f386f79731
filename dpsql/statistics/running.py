"""Run a counting statement: in bigint and, when a number does not fit, in numeric.

Over relations of which each reading may show another state: in numeric, once; of what Citus keeps
under settings that the caller cannot choose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from dpsql.errors import InternalError
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.sqltree import Tree, aliased, constant, render, sql

T = TypeVar("T")
OUT_OF_RANGE = "22003"
#: A name, or a string as `dpsql.query.ir.literal` writes it.
_QUOTED = re.compile(r'("(?:[^"]|"")*")' r"|'(?:[^'\\]|''|\\.)*'")


#: What the caller could set so that Citus counts wrongly, fails by the number of rows, or shows its
#: statements, and what some joins of tables need.
CITUS = {
    "citus.enable_repartition_joins": "on",
    "citus.limit_clause_row_fetch_count": "-1",
    "citus.count_distinct_error_rate": "0",
    "citus.coordinator_aggregation_strategy": "row-gather",
    "citus.subquery_pushdown": "off",
    "citus.max_intermediate_result_size": "-1",
    "citus.propagate_set_commands": "none",
    "citus.log_remote_commands": "off",
    "citus.multi_task_query_log_level": "off",
    "citus.log_multi_join_order": "off",
    "citus.local_table_join_policy": "auto",
    "citus.enable_local_execution": "on",
    "citus.enable_router_execution": "on",
    "citus.enable_fast_path_router_planner": "on",
    "citus.task_assignment_policy": "greedy",
}


def by_steps(query: JoinQuery) -> bool:
    """Tell whether each reading of a relation may show another state, so that none is repeated.

    Whether numbers of one state fit must not decide that those of another are taken.
    """
    return any(o.relation.by_steps for o in query.occurrences)


def run(
    query: JoinQuery, database: Database, write: Callable[[bool], str]
) -> list[tuple[object, ...]]:
    """Run what ``write`` returns; it is told whether to count in numeric."""
    if by_steps(query):
        return _by_steps(query, database, write(True))
    return in_either(query, lambda numeric: database.execute(write(numeric)))


def in_either(query: JoinQuery, read: Callable[[bool], T]) -> T:
    """Read; told to count in numeric at once where nothing is read twice, else if it must be."""
    if by_steps(query):
        return read(True)
    try:
        return read(False)
    except Exception as error:
        if getattr(error, "sqlstate", None) != OUT_OF_RANGE:
            raise
    return read(True)


def _by_steps(query: JoinQuery, database: Database, text: str) -> list[tuple[object, ...]]:
    """Run a statement of which each step is read at a moment of its own, and only once.

    In numeric at once.  Each occurrence is read in one place (docs/citus.md, theorem), which is
    looked at here.
    """
    read = (o.relation for o in query.occurrences if o.relation.by_steps)
    names = (name for r in read for name in {r.sql, *(part.sql for part in r.parts)})
    read_here = _without_strings(text)
    for name, most in Counter(map(_without_strings, names)).items():
        if read_here.count(name) > most:
            raise InternalError("a relation would be read twice, of two states")
    before = _set(database, CITUS)
    rows = database.execute(text)
    _set(database, before)
    return rows


def _without_strings(text: str) -> str:
    """Empty the strings of a statement."""
    return _QUOTED.sub(lambda m: m[1] or "''", text)


def _set(database: Database, settings: dict[str, str]) -> dict[str, str]:
    """Set those of some parameters that exist, for this transaction; return what they were."""
    names: Sequence[str] = [*settings]
    shown = [sql("pg_catalog.current_setting(:name, true)", name=constant(n)) for n in names]
    (found,) = database.execute(_selecting(shown))
    before = {n: str(value) for n, value in zip(names, found, strict=True) if value is not None}
    changed = [
        sql(
            "pg_catalog.set_config(:name, :setting, true)",
            name=constant(name),
            setting=constant(settings[name]),
        )
        for name in before
    ]
    if changed:
        database.execute(_selecting(changed))
    return before


def _selecting(values: Sequence[Tree]) -> str:
    """Write a statement that returns values."""
    return render(sql("SELECT :listed", listed=[aliased(v, f"v{i}") for i, v in enumerate(values)]))
