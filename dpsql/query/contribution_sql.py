"""What units contribute to grouped counts and sums, as one SQL statement that returns histograms.

The plan counts and sums per group *and* unit; nothing that names a unit leaves the statement,
only how many units are how large, by bounds that are public, and what those of one size add to
each group (:class:`dpsql.model.Contributions`).

A unit whose key determines a result has one result in one group: there its size is the result's,
and one pass tells everything.

Distinct values are ranked within each unit, in an order that depends on the values alone; a value
counts under the bound tau iff some unit has it among its first tau.  So a unit adds at most tau
values under it, whatever the others have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpsql.counted import Contributions
from dpsql.errors import InternalError
from dpsql.model import GRID, JoinQuery, Key
from dpsql.query.elimination import Base, Plan
from dpsql.query.flat_sql import answering
from dpsql.query.places import any_cut
from dpsql.query.reach_sql import within_reach
from dpsql.query.types import ONE_TEXT

#: No size of eight bytes exceeds larger bounds; sizes that may come near are numeric.
_LARGEST = 2**63
_SHORT = 2**62


def per_unit(query: JoinQuery) -> JoinQuery:
    """Return the count per group, distinct value and unit."""
    if query.unit is None:
        raise InternalError("the count has no privacy unit")
    keys = (*query.groups, *query.distinct, query.unit)
    return replace(query, groups=tuple(dict.fromkeys(keys)))


def together(queries: Sequence[JoinQuery]) -> JoinQuery:
    """Return one query with the weights of all, which are equal but for these."""
    weights = dict.fromkeys(w for query in queries for w in query.weights)
    return replace(queries[0], weights=tuple(weights))


def contribution_sql(
    plan: Plan,
    queries: Sequence[JoinQuery],
    bounds: Sequence[Sequence[int]],
    *,
    numeric: bool = False,
    reach: int = 0,
) -> str:
    """Write the statement.

    Parameters
    ----------
    plan : Plan
        Of `per_unit` of `together` of the queries.
    queries : sequence of JoinQuery
        Counts and sums that differ in their weights only, or one count of distinct values.
    bounds : sequence of sequences of int
        For each the bounds, ascending, by which the sizes of units are told apart.
    numeric : bool
        Count in ``numeric`` rather than in ``bigint`` that fails with 22003.
    reach : int
        Of each unit the results in so many of its groups count; 0: in all.

    Returns
    -------
    str
        A statement with columns ``label, bucket, units, amount, share, k1 ... kg``, all text but
        the label.  For the j-th query rows labelled ``2 j`` tell the number of units of a bucket of
        sizes, rows labelled ``2 j + 1`` what they add to a group and the sum of their shares.
    """
    statement = _Statement(plan, queries, bounds, "numeric" if numeric else "bigint")
    if not statement.single:
        statement.answer = within_reach(statement.answer, statement.query, reach)
    return statement.text()


class _Statement:
    def __init__(
        self,
        plan: Plan,
        queries: Sequence[JoinQuery],
        bounds: Sequence[Sequence[int]],
        number: str,
    ) -> None:
        self.query = together(queries)
        self.queries = queries
        self.number = number
        self.single = self.query.one_per_unit
        self.bag = not self.single and _may_repeat(self.query, plan)
        plan = _ungrouped(plan) if self.bag else plan
        self.writer = answering(plan, numeric=number == "numeric")
        self.answer = self.writer.answer(plan.query.groups)
        self.bounds = bounds
        self.buckets = [self._listed(*each) for each in zip(queries, bounds, strict=True)]
        groups = self.query.groups
        self.keys = "".join(f", c.a{a}::text AS k{i + 1}" for i, a in enumerate(groups))
        self.nothing = "".join(f", NULL::text AS k{i + 1}" for i in range(len(groups)))
        self.columns = [f"a{a}" for a in dict.fromkeys(groups)]

    def _listed(self, query: JoinQuery, bounds: Sequence[int]) -> str:
        """Write the bounds that a size can exceed."""
        type_ = self._type(query)
        listed = [str(b) for b in bounds if type_ == "numeric" or b < _LARGEST]
        return f"'{{{','.join(listed)}}}'::{type_}[]"

    def _type(self, query: JoinQuery) -> str:
        """Return the type of a unit's size."""
        return self.number if not query.weights or self._is_short(query) else "numeric"

    def _is_short(self, query: JoinQuery) -> bool:
        """Whether the size of a unit is one weight, which eight bytes hold."""
        (weight,) = query.weights
        return self.single and weight.integer and weight.factor == 1 and weight.bound < _SHORT

    def text(self) -> str:
        if self.query.distinct:
            return self._distinct()
        unit = f"a{self.query.unit}"
        values = [self._value(query) for query in self.queries]
        listed = "".join(f", {value} AS v{j}" for j, value in enumerate(values))
        keys = ", ".join(dict.fromkeys((*self.columns, unit)))
        contributed = f"SELECT {keys}{listed} FROM ({self.answer}) AS c"
        if self.single or not self.query.groups:
            # OFFSET 0: PostgreSQL would compute a value wherever it is used
            once = f"NOT MATERIALIZED ({contributed} OFFSET 0)"
            stored = once if len(values) == 1 else f"MATERIALIZED ({contributed})"
            rows = [self._totals(j, query) for j, query in enumerate(self.queries)]
            return self.writer.head(f"c AS {stored}") + " UNION ALL ".join(rows)
        sizes = "".join(f", sum(abs(v{j})) AS t{j}" for j in range(len(values)))
        parts = [
            f"c AS MATERIALIZED ({contributed})",
            f"t AS MATERIALIZED (SELECT {unit}{sizes} FROM c GROUP BY {unit})",
        ]
        rows = []
        for j, query in enumerate(self.queries):
            rows += [self._sizes(j, query), self._shares(j, query, unit)]
        return self.writer.head(*parts) + " UNION ALL ".join(rows)

    def _value(self, query: JoinQuery) -> str:
        """Write what a unit adds to a group, an integer."""
        if not query.weights:
            return "c.n"
        added = f"c.w{self.query.weights.index(query.weights[0])}"
        return f"({added})::bigint" if self._is_short(query) else integer_sql(added, query)

    def _bucket(self, j: int, size: str, type_: str) -> str:
        """Write the number of bounds that a size exceeds."""
        return f"pg_catalog.width_bucket(({size})::{type_} - 1, {self.buckets[j]})"

    def _totals(self, j: int, query: JoinQuery) -> str:
        """Write sizes and shares of units whose one value is their size."""
        by = [f"c.{column}" for column in self.columns]
        if self.single and not query.weights:
            bucket, amount, share = self._bucket_of_one(j), "count(*)", "count(*)"
        else:
            value, amount, share = f"v{j}", f"sum(v{j})", "count(*)"
            bucket = self._bucket(j, f"abs({value})", self._type(query))
            if query.weights:
                share = f"count(*) FILTER (WHERE {value} > 0) - count(*) FILTER (WHERE {value} < 0)"
                if not self.query.groups:
                    bucket = f"CASE WHEN {value} < 0 THEN -1 - {bucket} ELSE {bucket} END"
            by.insert(0, bucket)
        return (
            f"SELECT {2 * j + 1} AS label, ({bucket})::text AS bucket, count(*)::text AS units, "
            f"({amount})::text AS amount, (({share}) * {query.grid})::text AS share{self.keys} "
            f"FROM c {_grouped(by)}"
        )

    def _bucket_of_one(self, j: int) -> str:
        """Write the number of bounds that the size 1 exceeds."""
        return str(bisect_left(self.bounds[j], 1))

    def _sizes(self, j: int, query: JoinQuery) -> str:
        bucket = self._bucket(j, f"t{j}", self._type(query))
        return (
            f"SELECT {2 * j} AS label, {bucket}::text AS bucket, count(*)::text AS units, "
            f"NULL::text AS amount, NULL::text AS share{self.nothing} FROM t GROUP BY {bucket}"
        )

    def _shares(self, j: int, query: JoinQuery, unit: str) -> str:
        type_ = self._type(query)
        bucket = self._bucket(j, f"t.t{j}", type_)
        exact = type_ if type_ == "bigint" else "numeric"
        ratio = f"c.v{j}::{exact} * {GRID}, nullif(t.t{j}, 0)::{exact}"
        share = f"div({ratio})" if exact == "numeric" else ratio.replace(",", " /", 1)
        keys = ", ".join(f"c.{column}" for column in self.columns)
        return (
            f"SELECT {2 * j + 1} AS label, {bucket}::text AS bucket, NULL::text AS units, "
            f"sum(c.v{j})::text AS amount, coalesce(sum({share}), 0)::text AS share{self.keys} "
            f"FROM c JOIN t ON c.{unit} = t.{unit} GROUP BY {bucket}, {keys}"
        )

    def _distinct(self) -> str:
        """Write the statement for distinct values: ranks in a unit, least ranks of a value."""
        unit = f"a{self.query.unit}"
        values = [f"a{a}" for a in dict.fromkeys((*self.query.groups, *self.query.distinct))]
        present = " AND ".join(f"a{a} IS NOT NULL" for a in self.query.distinct)
        columns = ", ".join(dict.fromkeys((*values, unit)))
        if self.single:
            return self._single_values(values, columns, present)
        order = [
            f"pg_catalog.hashtextextended(coalesce({v}::text, ''), {i})"
            for i, v in enumerate(values)
            if v != unit
        ]
        order += [f"{v}::text" for v in values if v != unit]
        ordered = f" ORDER BY {', '.join(order)}" if order else ""
        rank = "dense_rank" if self.bag else "row_number"
        ranked = (
            f"SELECT {columns}, {rank}() OVER (PARTITION BY {unit}{ordered})"
            f"::{self.number} AS rank FROM ({self.answer}) AS c WHERE {present}"
        )
        if unit in values:  # no other unit has the value: its rank is its least one
            return self._ranked_values(ranked, unit)
        listed = ", ".join(values)
        sorted_once = (
            f"SELECT grouping({unit}) AS label, {listed}, "
            f"CASE grouping({unit}) WHEN 0 THEN max(rank) ELSE min(rank) END AS rank "
            f"FROM ({ranked}) AS r GROUP BY GROUPING SETS (({unit}), ({listed}))"
        )
        keys = "".join(f", {i + 6}" for i in range(len(self.query.groups)))
        return (
            f"{self.writer.head()}SELECT c.label, {self._bucket(0, 'c.rank', self.number)}::text "
            "AS bucket, CASE c.label WHEN 0 THEN count(*) END::text AS units, "
            "CASE c.label WHEN 1 THEN count(*) END::text AS amount, "
            f"CASE c.label WHEN 1 THEN '0' END AS share{self.keys} "
            f"FROM ({sorted_once}) AS c GROUP BY 1, 2{keys}"
        )

    def _ranked_values(self, ranked: str, unit: str) -> str:
        """Write the statement for ranked values of which the unit is a part."""
        sizes = (
            f"SELECT 0 AS label, {self._bucket(0, 't.size', self.number)}::text AS bucket, "
            "count(*)::text AS units, NULL::text AS amount, NULL::text AS share"
            f"{self.nothing} FROM (SELECT max(rank) AS size FROM r GROUP BY {unit}) AS t GROUP BY 2"
        )
        keys = "".join(f", {i + 6}" for i in range(len(self.query.groups)))
        counts = (
            f"SELECT 1 AS label, {self._bucket(0, 'c.rank', self.number)}::text AS bucket, "
            "NULL::text AS units, count(*)::text AS amount, '0' AS share"
            f"{self.keys} FROM r AS c GROUP BY 2{keys}"
        )
        return f"{self.writer.head(f'r AS MATERIALIZED ({ranked})')}{sizes} UNION ALL {counts}"

    def _single_values(self, values: Sequence[str], columns: str, present: str) -> str:
        """Write the statement for distinct values of units that have one each."""
        bucket = self._bucket_of_one(0)
        rows = f"SELECT {columns} FROM ({self.answer}) AS c WHERE {present}"
        own = f"a{self.query.unit}" in values  # no other unit has the value
        listed = ", ".join(values)
        source = f"({rows})" if own else f"(SELECT {listed} FROM r GROUP BY {listed})"
        grouped = _grouped([f"c.{column}" for column in self.columns])
        units = "count(*)" if own else "NULL"
        counts = (
            f"SELECT 1 AS label, '{bucket}' AS bucket, {units}::text AS units, "
            f"count(*)::text AS amount, '0' AS share{self.keys} FROM {source} AS c {grouped}"
        )
        if own:
            return self.writer.head() + counts
        return (
            f"{self.writer.head(f'r AS MATERIALIZED ({rows})')}{counts} UNION ALL "
            f"SELECT 0, '{bucket}', count(*)::text, NULL, NULL{self.nothing} FROM r "
            "HAVING count(*) > 0"
        )


def _may_repeat(query: JoinQuery, plan: Plan) -> bool:
    """Whether ranks within units find repeated values, so that nothing need be grouped before.

    So it is for rows of one relation, which are sorted once then, as plain PostgreSQL sorts them;
    rows of a join may be many more than its groups.  Values are ranked by their text, and the
    unit must not be one of them.
    """
    values = (*query.groups, *query.distinct)
    return (
        bool(query.distinct)
        and query.unit not in values
        and query.computed is None
        and not any_cut(query)
        and len(plan.factors) == 1
        and isinstance(plan.factors[0], Base)
        and all(query.attributes[a].type_name in ONE_TEXT for a in values)
    )


def _ungrouped(plan: Plan) -> Plan:
    """Return the plan of a lone relation's rows as they are, whose counts nobody reads."""
    (rows,) = plan.factors
    return replace(plan, factors=(replace(rows, grouped=False, unit=True),))


def _grouped(keys: Sequence[str]) -> str:
    """Write the grouping of an aggregate, which without keys has no row of nothing."""
    return f"GROUP BY {', '.join(keys)}" if keys else "HAVING count(*) > 0"


def integer_sql(value: str, query: JoinQuery) -> str:
    """Write a sum of weights as the integer that it is, in ``numeric``."""
    (weight,) = query.weights
    factor = f" * {weight.factor}" if weight.factor > 1 else ""
    return f"trunc({value}::numeric{factor})"


def read_contributions(
    queries: Sequence[JoinQuery],
    bounds: Sequence[Sequence[int]],
    rows: Iterable[Sequence[object]],
) -> list[Contributions]:
    """Assemble the histograms from the rows of `contribution_sql`."""
    units = [[0] * (len(listed) + 1) for listed in bounds]
    groups: list[dict[Key, dict[int, tuple[int, int]]]] = [{} for _ in queries]
    for label, bucket, number, amount, share, *texts in rows:
        j, cell = divmod(int(str(label)), 2)
        place = int(str(bucket))
        if number is not None:
            units[j][place if place >= 0 else ~place] += int(str(number))
        if cell:
            key = tuple(None if k is None else str(k) for k in texts)
            groups[j].setdefault(key, {})[place] = int(str(amount)), int(str(share))
    return [
        Contributions(tuple(listed), tuple(count), found, query.grid)
        for query, listed, count, found in zip(queries, bounds, units, groups, strict=True)
    ]
