"""An answer as one plain join, where keys keep the join from being larger than a relation.

If one occurrence determines the row of every other by keys, as a line its order and its customer,
there is nothing to eliminate: each of its rows is in one result at most.  If others are filtered,
the server's planner may then choose the order of the joins, with indexes and workers, which is
faster than groups that are formed before those filters were seen (TPC-H 3 with sums: 221 ms and
571 ms); without filters it is slower (orders by nation: 1100 ms and 460 ms).  A condition that
spans others filters them, too (TPC-H 7, two nations).  Which form is taken changes time, never
a number.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.model import Computed, JoinQuery
from dpsql.query.counting_sql import Writer
from dpsql.query.elimination import Plan
from dpsql.query.ir import ALWAYS, render
from dpsql.query.joined_sql import joined_sql
from dpsql.query.places import any_cut


def is_flat(query: JoinQuery) -> bool:
    """Tell whether one occurrence determines all others by trusted keys, and some are filtered."""
    filtered = [frozenset({o.index}) for o in query.occurrences if o.filters]
    # of one that is always true the attributes are read as a value
    filtered += [
        p.occurrences for p in query.predicates if p.occurrences and p.expression != ALWAYS
    ]
    if any_cut(query):
        return False  # rows of other servers would be sent one by one
    return any(
        any(occurrence.index not in others for others in filtered)
        and query.determined_by(occurrence.attributes, occurrence)
        for occurrence in query.occurrences
    )


class Flat:
    """Writes an answer as a plain join, in the way of `dpsql.query.counting_sql.Writer`."""

    def __init__(self, query: JoinQuery, number: str) -> None:
        self.query = query
        self.number = number

    def head(self, *more: str) -> str:
        """Write the WITH clause of ``more``."""
        return f"WITH {', '.join(more)} " if more else ""

    def answer(self, attributes: Sequence[int]) -> str:
        """Write the answer as rows of ``attributes``, the count ``n`` and sums ``w0, w1, ...``."""
        return flat_sql(self.query, attributes, self.number)


class Composed:
    """Writes an answer by another writer, and groups it by an attribute that is computed of it."""

    def __init__(self, inner: Writer | Flat, computed: Computed, number: str) -> None:
        self.inner = inner
        self.computed = computed
        self.number = number

    def head(self, *more: str) -> str:
        """Write the WITH clause of what is stored, and ``more`` after it."""
        return self.inner.head(*more)

    def answer(self, attributes: Sequence[int]) -> str:
        """Write the answer as rows of ``attributes``, in their types, and the count ``n``."""
        own = self.computed.attribute
        given = [a for a in attributes if a != own]
        inner = self.inner.answer(tuple(dict.fromkeys((*given, *sorted(self.computed.inputs)))))
        made = f"({render(self.computed.expression)}) AS a{own}"
        columns = [made if a == own else f"j.a{a}" for a in attributes]
        keys = ", ".join(str(i + 1) for i in range(len(attributes)))
        total = f"sum(j.n)::{self.number} AS n"
        return f"SELECT {', '.join([*columns, total])} FROM ({inner}) AS j GROUP BY {keys}"


def answering(plan: Plan, *, numeric: bool) -> Writer | Flat | Composed:
    """Choose how an answer is written: as a plain join, or by the plan."""
    number = "numeric" if numeric else "bigint"
    writer = Flat(plan.query, number) if is_flat(plan.query) else Writer(plan, number)
    computed = plan.query.computed
    return writer if computed is None else Composed(writer, computed, number)


def flat_sql(query: JoinQuery, attributes: Sequence[int], number: str) -> str:
    """Write the answer as rows of ``attributes``, in their types, the count ``n`` and sums.

    Parameters
    ----------
    query : JoinQuery
        For which `is_flat` holds.
    attributes : sequence of int
        What is grouped by.
    number : str
        The type that counts in.
    """
    everything = frozenset(range(len(query.occurrences)))
    return joined_sql(query, everything, attributes, number)
