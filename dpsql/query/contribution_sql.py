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
from typing import Any

from sqlglot import exp

from dpsql.counted import Contributions
from dpsql.errors import InternalError
from dpsql.model import GRID, JoinQuery, Key
from dpsql.query.elimination import Base, Plan
from dpsql.query.flat_sql import answering
from dpsql.query.places import any_cut
from dpsql.query.reach_sql import within_reach
from dpsql.query.source_sql import of
from dpsql.query.types import ONE_TEXT
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    cast,
    column,
    constant,
    cte,
    equal,
    number,
    render,
    select,
    sql,
    subquery,
    table,
    union_all,
    with_,
)

#: No size of eight bytes exceeds larger bounds; sizes that may come near are numeric.
_LARGEST = 2**63
_SHORT = 2**62


def per_unit(query: JoinQuery) -> JoinQuery:
    """Return the count per group, distinct value and unit."""
    keys = (*query.groups, *query.distinct, _unit_of(query))
    return replace(query, groups=tuple(dict.fromkeys(keys)))


def _unit_of(query: JoinQuery) -> int:
    if query.unit is None:
        raise InternalError("the count has no privacy unit")
    return query.unit


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
    return render(statement.written())


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
        self.keys = _keys(of("c", groups))
        self.nothing = _keys([exp.Null()] * len(groups))
        self.columns = tuple(dict.fromkeys(groups))

    def _listed(self, query: JoinQuery, bounds: Sequence[int]) -> Tree:
        """Write the bounds that a size can exceed."""
        type_ = self._type(query)
        listed = [str(b) for b in bounds if type_ == "numeric" or b < _LARGEST]
        return cast(constant("{" + ",".join(listed) + "}"), f"{type_}[]")

    def _type(self, query: JoinQuery) -> str:
        """Return the type of a unit's size."""
        return self.number if not query.weights or self._is_short(query) else "numeric"

    def _is_short(self, query: JoinQuery) -> bool:
        """Whether the size of a unit is one weight, which eight bytes hold."""
        (weight,) = query.weights
        return self.single and weight.integer and weight.factor == 1 and weight.bound < _SHORT

    def written(self) -> exp.Query:
        if self.query.distinct:
            return self._distinct()
        unit = column("", f"a{self.query.unit}")
        values = [self._value(query) for query in self.queries]
        named = [aliased(value, f"v{j}") for j, value in enumerate(values)]
        keys = of("", dict.fromkeys((*self.columns, _unit_of(self.query))))
        contributed = sql(
            "SELECT :keys, :named FROM :answer AS c", keys=keys, named=named, answer=self.answer
        )
        if self.single or not self.query.groups:
            once = len(values) == 1
            if once:  # PostgreSQL would compute a value wherever it is used
                contributed.set("offset", exp.Offset(expression=number(0)))
            rows = [self._totals(j, query) for j, query in enumerate(self.queries)]
            return self._with([cte("c", contributed, materialized=not once)], rows)
        sizes = [
            aliased(sql("sum(abs(:v))", v=column("", f"v{j}")), f"t{j}") for j in range(len(values))
        ]
        summed = sql("SELECT :unit, :sizes FROM c GROUP BY :unit", unit=unit, sizes=sizes)
        parts = [cte("c", contributed, materialized=True), cte("t", summed, materialized=True)]
        rows = []
        for j, query in enumerate(self.queries):
            rows += [self._sizes(j, query), self._shares(j, query)]
        return self._with(parts, rows)

    def _with(self, parts: Sequence[exp.CTE], rows: Sequence[exp.Query]) -> exp.Query:
        return with_([*self.writer.ctes(), *parts], union_all(rows))

    def _value(self, query: JoinQuery) -> Tree:
        """Write what a unit adds to a group, an integer."""
        if not query.weights:
            return column("c", "n")
        added = column("c", f"w{self.query.weights.index(query.weights[0])}")
        return cast(added, "bigint") if self._is_short(query) else integer_sql(added, query)

    def _bucket(self, j: int, size: Tree, type_: str) -> Tree:
        """Write the number of bounds that a size exceeds."""
        bucket: Tree = sql(
            "pg_catalog.width_bucket(:size - 1, :bounds)",
            size=cast(size, type_),
            bounds=self.buckets[j],
        )
        return bucket

    def _totals(self, j: int, query: JoinQuery) -> exp.Select:
        """Write sizes and shares of units whose one value is their size."""
        by = of("c", self.columns)
        counted: Tree = sql("count(*)")
        if self.single and not query.weights:
            bucket, amount, share = number(self._bucket_of_one(j)), counted, counted
        else:
            value = column("", f"v{j}")
            amount, share = sql("sum(:v)", v=value), counted
            bucket = self._bucket(j, sql("abs(:v)", v=value), self._type(query))
            if query.weights:
                share = sql(
                    "count(*) FILTER (WHERE :v > 0) - count(*) FILTER (WHERE :v < 0)", v=value
                )
                if not self.query.groups:
                    bucket = sql(
                        "CASE WHEN :v < 0 THEN -1 - :bucket ELSE :bucket END",
                        v=value,
                        bucket=bucket,
                    )
            by.insert(0, bucket)
        share = sql(":share * :grid", share=share, grid=number(query.grid))
        columns = _cells(2 * j + 1, bucket, counted, amount, share)
        return _grouped([*columns, *self.keys], table("c"), by)

    def _bucket_of_one(self, j: int) -> int:
        """Return the number of bounds that the size 1 exceeds."""
        return bisect_left(self.bounds[j], 1)

    def _sizes(self, j: int, query: JoinQuery) -> exp.Select:
        bucket = self._bucket(j, column("", f"t{j}"), self._type(query))
        columns = _cells(2 * j, bucket, sql("count(*)"), exp.Null(), exp.Null())
        return _grouped([*columns, *self.nothing], table("t"), [bucket])

    def _shares(self, j: int, query: JoinQuery) -> exp.Select:
        type_ = self._type(query)
        size, value = column("t", f"t{j}"), column("c", f"v{j}")
        bucket = self._bucket(j, size, type_)
        exact = type_ if type_ == "bigint" else "numeric"
        ratio = {
            "value": cast(value, exact),
            "grid": number(GRID),
            "size": cast(sql("nullif(:size, 0)", size=size), exact),
        }
        share = (
            sql("div(:value * :grid, :size)", **ratio)
            if exact == "numeric"
            else sql(":value * :grid / :size", **ratio)
        )
        added = sql("sum(:v)", v=value)
        share = sql("coalesce(sum(:share), 0)", share=share)
        columns = _cells(2 * j + 1, bucket, exp.Null(), added, share)
        found: exp.Select = sql(
            "SELECT :columns FROM c JOIN t ON :same GROUP BY :bucket, :keys",
            columns=[*columns, *self.keys],
            same=equal(*(column(side, f"a{self.query.unit}") for side in "ct")),
            bucket=bucket,
            keys=of("c", self.columns),
        )
        return found

    def _distinct(self) -> exp.Query:
        """Write the statement for distinct values: ranks in a unit, least ranks of a value."""
        values = tuple(dict.fromkeys((*self.query.groups, *self.query.distinct)))
        present = all_of(sql(":v IS NOT NULL", v=v) for v in of("", self.query.distinct))
        rows: exp.Select = sql(
            "SELECT :columns FROM :answer AS c WHERE :present",
            columns=of("", dict.fromkeys((*values, _unit_of(self.query)))),
            answer=self.answer,
            present=present,
        )
        if self.single:
            return self._single_values(values, rows)
        unit = column("", f"a{self.query.unit}")
        others = [(i, column("", f"a{a}")) for i, a in enumerate(values) if a != self.query.unit]
        hashed = [
            sql("pg_catalog.hashtextextended(coalesce(:v::text, ''), :seed)", v=v, seed=number(i))
            for i, v in others
        ]
        order = [*hashed, *(cast(v, "text") for _, v in others)]
        over: dict[str, Any] = {"unit": unit, "order": order}
        rank = (
            sql("dense_rank() OVER (PARTITION BY :unit ORDER BY :order)", **over)
            if self.bag
            else sql("row_number() OVER (PARTITION BY :unit ORDER BY :order)", **over)
        )
        ranked = select([*rows.expressions, aliased(cast(rank, self.number), "rank")], rows)
        if self.query.unit in values:  # no other unit has the value: its rank is its least one
            return self._ranked_values(ranked, unit)
        sorted_once = sql(
            "SELECT grouping(:unit) AS label, :listed,"
            " CASE grouping(:unit) WHEN 0 THEN max(rank) ELSE min(rank) END AS rank"
            " FROM :ranked AS r GROUP BY GROUPING SETS (:sets)",
            unit=unit,
            listed=of("", values),
            ranked=ranked,
            sets=[exp.Tuple(expressions=[unit]), exp.Tuple(expressions=of("", values))],
        )
        statement = sql(
            "SELECT c.label, :bucket::text AS bucket,"
            " (CASE c.label WHEN 0 THEN count(*) END)::text AS units,"
            " (CASE c.label WHEN 1 THEN count(*) END)::text AS amount,"
            " CASE c.label WHEN 1 THEN '0' END AS share, :keys"
            " FROM :sorted AS c GROUP BY 1, 2, :places",
            bucket=self._bucket(0, column("c", "rank"), self.number),
            keys=self.keys,
            sorted=sorted_once,
            places=self._places(),
        )
        return self._with([], [statement])

    def _places(self) -> list[Tree]:
        """Return the places of the keys in the statement."""
        return [number(i + 6) for i in range(len(self.query.groups))]

    def _ranked_values(self, ranked: exp.Select, unit: Tree) -> exp.Query:
        """Write the statement for ranked values of which the unit is a part."""
        sizes = sql(
            "SELECT :columns, :nothing FROM (SELECT max(rank) AS size FROM r GROUP BY :unit) AS t"
            " GROUP BY 2",
            columns=_cells(
                0,
                self._bucket(0, column("t", "size"), self.number),
                sql("count(*)"),
                exp.Null(),
                exp.Null(),
            ),
            nothing=self.nothing,
            unit=unit,
        )
        counts = sql(
            "SELECT 1 AS label, :bucket::text AS bucket, NULL::text AS units,"
            " count(*)::text AS amount, '0' AS share, :keys FROM r AS c GROUP BY 2, :places",
            bucket=self._bucket(0, column("c", "rank"), self.number),
            keys=self.keys,
            places=self._places(),
        )
        return self._with([cte("r", ranked, materialized=True)], [sizes, counts])

    def _single_values(self, values: Sequence[int], rows: exp.Select) -> exp.Query:
        """Write the statement for distinct values of units that have one each."""
        bucket = constant(str(self._bucket_of_one(0)))
        own = self.query.unit in values  # no other unit has the value
        apart = sql("SELECT :listed FROM r GROUP BY :listed", listed=of("", values))
        columns = sql(
            "SELECT 1 AS label, :bucket AS bucket, :units::text AS units,"
            " count(*)::text AS amount, '0' AS share",
            bucket=bucket,
            units=sql("count(*)") if own else exp.Null(),
        ).expressions
        source = subquery(rows if own else apart, "c")
        counts = _grouped([*columns, *self.keys], source, of("c", self.columns))
        if own:
            return self._with([], [counts])
        units = sql(
            "SELECT 0, :bucket, count(*)::text, NULL, NULL, :nothing FROM r HAVING count(*) > 0",
            bucket=bucket,
            nothing=self.nothing,
        )
        return self._with([cte("r", rows, materialized=True)], [counts, units])


def _keys(values: Sequence[Tree]) -> list[Tree]:
    return [aliased(cast(value, "text"), f"k{i + 1}") for i, value in enumerate(values)]


def _cells(label: int, bucket: Tree, units: Tree, amount: Tree, share: Tree) -> list[Tree]:
    """Write the columns before the keys."""
    texts = {"bucket": bucket, "units": units, "amount": amount, "share": share}
    shown = [aliased(cast(value, "text"), name) for name, value in texts.items()]
    return [aliased(number(label), "label"), *shown]


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


def _grouped(columns: Sequence[Tree], source: Tree, keys: Sequence[Tree]) -> exp.Select:
    """Write an aggregate, which without keys has no row of nothing."""
    if keys:
        found = sql("SELECT 1 FROM :source GROUP BY :keys", source=source, keys=keys)
    else:
        found = sql("SELECT 1 FROM :source HAVING count(*) > 0", source=source)
    return select(columns, found)


def integer_sql(value: Tree, query: JoinQuery) -> Tree:
    """Write a sum of weights as the integer that it is, in ``numeric``."""
    (weight,) = query.weights
    exact: Tree = cast(value, "numeric")
    if weight.factor > 1:
        exact = sql(":value * :factor", value=exact, factor=number(weight.factor))
    whole: Tree = sql("trunc(:value)", value=exact)
    return whole


def read_contributions(
    queries: Sequence[JoinQuery],
    bounds: Sequence[Sequence[int]],
    rows: Iterable[Sequence[object]],
) -> list[Contributions]:
    """Assemble the histograms from the rows of `contribution_sql`."""
    units = [[0] * (len(listed) + 1) for listed in bounds]
    groups: list[dict[Key, dict[int, tuple[int, int]]]] = [{} for _ in queries]
    for label, bucket, many, amount, share, *texts in rows:
        j, cell = divmod(int(str(label)), 2)
        place = int(str(bucket))
        if many is not None:
            units[j][place if place >= 0 else ~place] += int(str(many))
        if cell:
            key = tuple(None if k is None else str(k) for k in texts)
            groups[j].setdefault(key, {})[place] = int(str(amount)), int(str(share))
    return [
        Contributions(tuple(listed), tuple(count), found, query.grid)
        for query, listed, count, found in zip(queries, bounds, units, groups, strict=True)
    ]
