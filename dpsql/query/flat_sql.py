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

from sqlglot import exp

from dpsql.model import Computed, JoinQuery
from dpsql.query.counting_sql import Writer
from dpsql.query.elimination import Plan
from dpsql.query.ir import ALWAYS, tree
from dpsql.query.joined_sql import joined_sql
from dpsql.query.places import any_cut
from dpsql.sqltree import aliased, cast, column, number, sql


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

    def ctes(self) -> list[exp.CTE]:
        """Return what is stored before an answer: nothing."""
        return []

    def answer(self, attributes: Sequence[int]) -> exp.Select:
        """Write the answer as rows of ``attributes``, the count ``n`` and sums ``w0, w1, ...``."""
        return flat_sql(self.query, attributes, self.number)


class Composed:
    """Writes an answer by another writer, and groups it by an attribute that is computed of it."""

    def __init__(self, inner: Writer | Flat, computed: Computed, number: str) -> None:
        self.inner = inner
        self.computed = computed
        self.number = number

    def ctes(self) -> list[exp.CTE]:
        """Write what is stored before an answer."""
        return self.inner.ctes()

    def answer(self, attributes: Sequence[int]) -> exp.Select:
        """Write the answer as rows of ``attributes``, in their types, and the count ``n``."""
        own = self.computed.attribute
        given = [a for a in attributes if a != own]
        inner = self.inner.answer(tuple(dict.fromkeys((*given, *sorted(self.computed.inputs)))))
        made = aliased(tree(self.computed.expression), f"a{own}")
        grouped: exp.Select = sql(
            "SELECT :columns, :total AS n FROM :answer AS j GROUP BY :keys",
            columns=[made if a == own else column("j", f"a{a}") for a in attributes],
            total=cast(sql("sum(j.n)"), self.number),
            answer=inner,
            keys=[number(i + 1) for i in range(len(attributes))],
        )
        return grouped


def answering(plan: Plan, *, numeric: bool) -> Writer | Flat | Composed:
    """Choose how an answer is written: as a plain join, or by the plan."""
    type_ = "numeric" if numeric else "bigint"
    writer = Flat(plan.query, type_) if is_flat(plan.query) else Writer(plan, type_)
    computed = plan.query.computed
    return writer if computed is None else Composed(writer, computed, type_)


def flat_sql(query: JoinQuery, attributes: Sequence[int], type_: str) -> exp.Select:
    """Write the answer as rows of ``attributes``, in their types, the count ``n`` and sums.

    Parameters
    ----------
    query : JoinQuery
        For which `is_flat` holds.
    attributes : sequence of int
        What is grouped by.
    type_ : str
        The type that counts in.
    """
    everything = frozenset(range(len(query.occurrences)))
    return joined_sql(query, everything, attributes, type_)
