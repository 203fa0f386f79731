"""Which results of a join belong to which units, from one snapshot.

PostgreSQL counts or sums by elimination per combination of units and packs the rows; they are
merged in arrays.  Nothing that names a unit leaves (PRIVACY.md section 2).  The number of
combinations is secret, so any number is read; if they do not fit into memory, they go to disk.
"""

from __future__ import annotations

import numpy as np

from dpsql.core.packing import HIGHEST, Ints, Memberships
from dpsql.core.space import Space
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.elimination import Plan, make_plan
from dpsql.query.membership_sql import membership_sql, per_units
from dpsql.statistics import limits
from dpsql.statistics.arrays import NotInArrays
from dpsql.statistics.reading import fetch, unpack
from dpsql.statistics.running import by_steps, in_either
from dpsql.statistics.sizes import read_facts

#: Most bytes that `_Reading.at_once` holds: some 10 million combinations of three units.
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
        Most bytes of the rows in memory.  If they do not fit, they are read again, in pieces.
    """
    grouped = per_units(query)
    facts = read_facts(grouped, database)
    plan = make_plan(grouped, (), answer=True, sizes=facts.sizes(grouped), tick=database.tick)
    reading = _Reading(query, plan, database, Space(database.tick, database.file))
    columns = None
    if not by_steps(query):  # which is read once only
        try:
            columns = in_either(query, lambda numeric: reading.at_once(memory_limit, numeric))
        except NotInArrays:
            columns = None
        else:
            columns = columns or []
    if columns is None:
        columns = in_either(query, reading.in_pieces)
    if not columns:
        return Memberships(np.zeros((0, len(query.units)), np.int32), np.zeros(0, np.int64), 0)
    counts = columns[0].astype(np.int64, copy=False)
    return Memberships.of(columns[1:], list(query.unit_roots), counts, reading.space)


class _Reading:
    """Reads the columns of one question: the counts, and the numbers of the units."""

    def __init__(self, query: JoinQuery, plan: Plan, database: Database, space: Space) -> None:
        self.query = query
        self.plan = plan
        self.database = database
        self.space = space
        self.most = HIGHEST if query.weights else _MOST

    def at_once(self, memory_limit: int, numeric: bool) -> list[Ints] | None:
        """Read all rows in one value; raise `NotInArrays` if they take too much memory."""
        room = memory_limit // limits.COPIES
        packed = fetch(self.database, self._sql(room, numeric=numeric))
        self.database.tick()
        return None if packed is None else unpack(packed)

    def in_pieces(self, numeric: bool) -> list[Ints]:
        """Read the rows piece by piece into a temporary file."""
        number = 1 + len(self.query.units)
        rows = limits.BUDGET
        sql = self._sql(8 * number * rows, rows, numeric=numeric)
        total = 0
        with self.database.file() as file:
            for ((packed,),) in self.database.stream(sql, 1):
                if not isinstance(packed, bytes):
                    raise TypeError("dp.pack did not return bytea")
                some = unpack(packed)
                file.write(np.column_stack([c.astype(np.int64) for c in some]).tobytes())
                total += len(some[0])
                self.database.tick()
            if not total:
                return []
            file.flush()
            found = np.asarray(np.memmap(file, np.int64, "r", shape=(total, number)))
        return list(found.T)

    def _sql(self, room: int, piece: int = 0, *, numeric: bool) -> str:
        return membership_sql(self.plan, self.query, self.most, room, piece, numeric=numeric)
