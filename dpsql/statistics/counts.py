"""Exact counts of a join query: the answer and any boundaries, from one snapshot.

``count`` makes one plan and gives it to one of two executors with identical results: one
SQL statement (any types, any size, parallel, spills), or arrays (keys that are integers or
have integer codes, under a memory bound).  The choice looks at size facts of the catalogue
and changes time only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dpsql.counted import Counts
from dpsql.model import Boundary, JoinQuery
from dpsql.ports import Database
from dpsql.query.counting_sql import counting_sql, read_counts
from dpsql.query.elimination import Base, Plan, Product, make_plan
from dpsql.query.places import any_cut
from dpsql.statistics.running import run
from dpsql.statistics.sizes import Facts, read_facts

if TYPE_CHECKING:
    from dpsql.statistics.arrays import Memory

Tables = Mapping[int, tuple[dict[int, Any], int]]
Texts = dict[int, dict[str, str]]
Found = TypeVar("Found")
Kernel = Literal["auto", "sql", "arrays"]

#: What the array kernel may hold at any moment, in bytes.
MEMORY_LIMIT = 160 << 20

# Milliseconds, measured on TPC-H at scale factors 0.1 and 1 and on the ego network.  SQL scans
# and aggregates under workers; arrays are read by one process, through one statement a range.
_SQL_SCAN = 2e-4
_SQL_INPUT = 3e-4
_SQL_OUTPUT = 1e-3
_ARRAYS_READ = 3e-4
_ARRAYS_PRODUCT = 1e-4
_STATEMENT = 1.0
_IMPORT = 120.0


def count(
    query: JoinQuery,
    boundaries: Iterable[Boundary],
    database: Database,
    *,
    answer: bool = True,
    kernel: Kernel = "auto",
    memory_limit: int = MEMORY_LIMIT,
) -> Counts:
    """Count the wanted boundaries and the grouped answer of ``query``.

    Parameters
    ----------
    query : JoinQuery
        The counting query.
    boundaries : iterable of Boundary
        Wanted maxima.
    database : Database
        Reads one snapshot, whatever is executed.
    answer : bool
        Whether ``Counts.groups`` is wanted.
    kernel : {'auto', 'sql', 'arrays'}
        Executor; ``arrays`` still falls back to SQL where it cannot be exact or fit.
    memory_limit : int
        Bytes that the array kernel may hold.

    Returns
    -------
    Counts
        Exact; boundaries and groups without results count 0.
    """
    # of one relation there is nothing to order, and SQL groups it as well as arrays do
    one = kernel == "auto" and len(query.occurrences) == 1
    facts = Facts({}, {}, {}) if one else read_facts(query, database)
    sizes = facts.sizes(query)
    plan = make_plan(query, boundaries, answer=answer, sizes=sizes, tick=database.tick)
    if kernel == "arrays" or (kernel == "auto" and prefer_arrays(plan, facts, memory_limit)):
        counts = _count_in_arrays(plan, facts, database, memory_limit)
        if counts is not None:
            return counts
    return _count_in_sql(plan, database)


def _count_in_sql(plan: Plan, database: Database) -> Counts:
    """Run the plan as one statement, in bigint and, when a count does not fit, in numeric."""
    rows = run(plan.query, database, lambda numeric: counting_sql(plan, numeric=numeric))
    return read_counts(plan, rows)


def _count_in_arrays(
    plan: Plan, facts: Facts, database: Database, memory_limit: int
) -> Counts | None:
    """Run the plan on arrays; ``None`` when it does not fit them."""
    from dpsql.statistics.codes import decode
    from dpsql.statistics.kernel import evaluate

    def on_arrays(coded: Plan, tables: Tables, memory: Memory) -> Counts:
        return evaluate(coded, tables, memory, database.tick)

    found = in_arrays(plan, facts, database, memory_limit, on_arrays)
    return None if found is None else decode(plan, found[1], found[0])


def in_arrays(
    plan: Plan,
    facts: Facts,
    database: Database,
    memory_limit: int,
    run: Callable[[Plan, Tables, Memory], Found],
) -> tuple[Found, Texts] | None:
    """Read what a plan needs into arrays and run it there; ``None`` when it does not fit.

    Returns
    -------
    tuple or None
        What ``run`` returned of the coded plan, and the texts of coded group keys.
    """
    from dpsql.statistics.arrays import Memory, NotInArrays
    from dpsql.statistics.codes import coded_plan, read_texts
    from dpsql.statistics.reading import expected_bytes, needed, read_tables, readable

    if any_cut(plan.query):
        return None  # rows of other servers would be sent one by one
    read = frozenset[int]().union(*needed(plan).values())
    coded = coded_plan(plan, read)
    if coded is None or not readable(coded) or expected_bytes(plan, facts) > memory_limit:
        return None
    texts = read_texts(plan, read, database)
    if texts is None:
        return None
    memory = Memory(memory_limit)
    try:
        tables = read_tables(coded, facts, database, memory)
        return run(coded, tables, memory), texts
    except NotInArrays:
        return None


def prefer_arrays(plan: Plan, facts: Facts, memory_limit: int, *, workers: bool = True) -> bool:
    """Guess whether arrays are faster: joins, or many groups, of rows that fit easily.

    Without ``workers`` SQL takes about twice as long: so many groups that none would be planned.
    """
    from dpsql.statistics.codes import needs_check

    if not any(isinstance(factor, Product) for factor in plan.factors) or any_cut(plan.query):
        return False
    tables = [facts.rows.get(o.relation.oid, 0.0) for o in plan.query.occurrences]
    used = {o for factor in plan.factors for o in factor.occurrences}
    read = sum(tables[i] for i in used)
    if read * 8 > memory_limit * 2:
        return False
    sql = arrays = 0.0
    for n, factor in enumerate(plan.factors):
        if isinstance(factor, Product):
            inputs = plan.rows[factor.left] + plan.rows[factor.right]
            sql += inputs * _SQL_INPUT + plan.rows[n] * _SQL_OUTPUT
            arrays += (inputs + plan.rows[n]) * _ARRAYS_PRODUCT
        elif isinstance(factor, Base) and factor.grouped:
            sql += tables[factor.occurrence] * _SQL_SCAN + plan.rows[n] * _SQL_OUTPUT
            arrays += plan.rows[n] * _ARRAYS_PRODUCT
    attributes = frozenset(a.id for a in plan.query.attributes)
    reads = 2 if needs_check(plan, attributes) else 1
    arrays += reads * (read * _ARRAYS_READ + len(used) * _STATEMENT)
    arrays += 0.0 if "numpy" in sys.modules else _IMPORT
    return arrays < (sql if workers else 2 * sql)
