"""The statements by which methods read, as text for owners (``dp.explain``).

They are planned by current table sizes, which only owners may see (PRIVACY.md, section 2).  If some
of the work is done in arrays, other statements run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpsql.query.contribution_sql import contribution_sql, per_unit
from dpsql.query.counting_sql import counting_sql
from dpsql.query.elimination import Plan, make_plan
from dpsql.query.membership_sql import per_units
from dpsql.query.sum_sql import distinct_sql, per_value, sum_sql
from dpsql.statistics.sizes import read_facts

if TYPE_CHECKING:
    from dpsql.model import Boundary, JoinQuery
    from dpsql.ports import Database


def of_results(query: JoinQuery, boundaries: Iterable[Boundary], database: Database) -> str:
    """Write the statement that counts or sums a join's results."""
    if query.distinct or query.weights:
        write = distinct_sql if query.distinct else sum_sql
        return write(_planned(per_value(query), database), [query])
    return counting_sql(_planned(query, database, boundaries))


def of_units(query: JoinQuery, bounds: tuple[int, ...], database: Database) -> str:
    """Write the statement that adds up what each unit contributes."""
    return contribution_sql(_planned(per_unit(query), database), [query], [bounds])


def of_memberships(query: JoinQuery, database: Database) -> str:
    """Write the statement that counts or sums results by the units that they belong to."""
    each = per_units(query)
    plan = _planned(each, database)
    return sum_sql(plan, [each]) if query.weights else counting_sql(plan)


def _planned(query: JoinQuery, database: Database, boundaries: Iterable[Boundary] = ()) -> Plan:
    sizes = read_facts(query, database).sizes(query)
    return make_plan(query, boundaries, sizes=sizes, tick=database.tick)
