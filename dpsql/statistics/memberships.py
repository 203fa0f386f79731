"""Which results of a join belong to which units, from one snapshot.

PostgreSQL counts or sums by elimination per combination of units and packs the rows; they are
merged in arrays.  Nothing that names a unit leaves (PRIVACY.md section 2).
"""

from __future__ import annotations

import numpy as np

from dpsql.core.packing import HIGHEST, Memberships
from dpsql.errors import ReleaseFailed
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.elimination import make_plan
from dpsql.query.membership_sql import membership_sql, per_units
from dpsql.statistics import limits
from dpsql.statistics.arrays import NotInArrays
from dpsql.statistics.reading import fetch, unpack
from dpsql.statistics.running import in_either
from dpsql.statistics.sizes import read_facts

#: What reading and merging may hold at any moment, in bytes: some 10 million combinations of three.
MEMORY_LIMIT = 1 << 30
#: A count above this is read as this: no unit is ever counted with as many results.
_MOST = 2**32 - 1


def memberships(
    query: JoinQuery, database: Database, *, memory_limit: int = MEMORY_LIMIT
) -> Memberships:
    """Count or sum the results of every set of units, exactly.

    Parameters
    ----------
    query : JoinQuery
        With ``units`` and without groups.
    database : Database
        Reads one snapshot.
    memory_limit : int
        Bytes that may be held.

    Raises
    ------
    ReleaseFailed
        When there are more sets of units than the memory bound allows.
    """
    grouped = per_units(query)
    facts = read_facts(grouped, database)
    plan = make_plan(grouped, (), answer=True, sizes=facts.sizes(grouped), tick=database.tick)
    room = memory_limit // limits.COPIES
    most = HIGHEST if query.weights else _MOST

    def read(numeric: bool) -> bytes | None:
        return fetch(database, membership_sql(plan, query, most, room, numeric=numeric))

    try:
        packed = in_either(query, read)
    except NotInArrays as error:
        raise ReleaseFailed("the answer could not be computed") from error
    width = len(query.units)
    if packed is None:
        return Memberships(np.zeros((0, width), np.int32), np.zeros(0, np.int64), 0)
    columns = unpack(packed)
    del packed
    database.tick()
    return Memberships.of(columns[1:], list(query.unit_roots), columns[0].astype(np.int64))
