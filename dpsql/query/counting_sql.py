"""A counting plan as one SQL statement.

Shared factors are MATERIALIZED CTEs: one statement is one snapshot, and nothing is
created, so it runs in a read-only, STABLE context.  A scan of a CTE is parallel restricted
and has no statistics, so a factor is stored only when that saves more than it costs:

- factors read once, bags of base rows and joins of keys (``unit``) that are hardly smaller
  than what they join are written in place, where the planner may use workers and indexes;
- of a factor of which only maxima are wanted, overall and per value of some attributes,
  those maxima are stored, never the factor.

Groups that hardly repeat are sorted, not hashed: a hash table of millions of groups misses
the cache on every row and spills (measured on 6 million rows: 3.4 s of CPU against 7.7 s
where a column is clustered, about the same where none is), and only sorts are shared
between workers.  Two keys are never packed into one: ``hashint8`` folds the halves by XOR,
and a hash aggregate over packed pairs ran for minutes.

Counts are ``bigint`` while they fit: every sum is cast back and every product checked by
PostgreSQL, so a count past 2^63 is error 22003 and never a wrong number; the same plan
is then written in ``numeric``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from sqlglot import exp

from dpsql.counted import Counts
from dpsql.errors import InternalError
from dpsql.model import Weight
from dpsql.query.elimination import Base, Factor, Placed, Plan, Product
from dpsql.query.joined_sql import total_sql
from dpsql.query.part_sql import grouped_sql, largest_sql
from dpsql.query.places import is_cut
from dpsql.query.source_sql import all_sql, named, of, source_sql, weight_sql
from dpsql.sqltree import (
    Tree,
    all_of,
    cast,
    column,
    cte,
    equal,
    from_,
    join_all,
    joined,
    number,
    render,
    select,
    sql,
    subquery,
    table,
    union_all,
    with_,
)

__all__ = ["Writer", "assemble", "counting_sql", "read_counts"]

#: A join of keys that keeps less than this share of the rows that it reads is stored.
_WORTH_STORING = 0.25
#: Groupings are sorted from so many groups on, if these are more than a share of the rows.
_MANY_GROUPS = 1e6
_REPEATING = 0.2


def counting_sql(plan: Plan, *, numeric: bool = False) -> str:
    """Write the statement that evaluates ``plan``.

    Parameters
    ----------
    plan : Plan
        The plan.
    numeric : bool
        Count in ``numeric`` rather than in ``bigint`` that fails with 22003.

    Returns
    -------
    str
        A statement with columns ``label, value, k1 ... kg``, all text but the label.  Rows
        labelled with a factor's number hold its maximum (NULL: no rows); rows labelled
        ``-1 - j`` are those of the j-th factor of the answer, keys by position in ``groups``.
    """
    return render(Writer(plan, "numeric" if numeric else "bigint").statement())


def read_counts(plan: Plan, rows: Iterable[Sequence[object]]) -> Counts:
    """Assemble ``Counts`` from the rows of ``counting_sql``."""
    maxima: dict[int, int] = {}
    parts: dict[int, dict[tuple[str | None, ...], int]] = {}
    for label, value, *keys in rows:
        number = int(str(label))
        count = 0 if value is None else int(str(value))
        if number >= 0:
            maxima[number] = count
        elif count:
            key = tuple(None if k is None else str(k) for k in keys)
            part = parts.setdefault(-1 - number, {})
            part[key] = part.get(key, 0) + count
    return assemble(plan, maxima, parts)


def assemble(
    plan: Plan,
    maxima: dict[int, int],
    parts: dict[int, dict[tuple[str | None, ...], int]],
) -> Counts:
    """Multiply independent factors: maxima of boundaries, groups of the answer."""
    boundaries = {}
    for boundary, numbers in plan.boundaries:
        value = 1
        for n in numbers:
            value *= maxima[n]
        boundaries[boundary] = value
    groups: dict[tuple[str | None, ...], int] = {}
    if plan.answer is not None:
        groups = {(None,) * len(plan.query.groups): 1}
        for j, number in enumerate(plan.answer):
            inside = set(plan.factors[number].output)
            take = [attribute in inside for attribute in plan.query.groups]
            groups = {
                tuple(k if t else g for t, k, g in zip(take, key, group, strict=True)): n * m
                for group, n in groups.items()
                for key, m in parts.get(j, {}).items()
            }
        if not plan.query.groups and not groups:
            groups = {(): 0}
    return Counts(boundaries=boundaries, groups=groups)


def _shared(plan: Plan, n: int) -> tuple[int, ...]:
    """Attributes on which a product joins its factors."""
    product = plan.factors[n]
    if not isinstance(product, Product):
        raise TypeError("not a product")
    left, right = plan.factors[product.left], plan.factors[product.right]
    return tuple(sorted(set(left.output) & set(right.output)))


def _times(*factors: Tree | None) -> Tree | None:
    """Write a product; a factor that is known to be 1 is ``None``, and so is a product of none."""
    return join_all(exp.Mul, (f for f in factors if f is not None))


def _same(attributes: Iterable[int]) -> Tree | None:
    """Write that two factors ``l`` and ``r`` agree."""
    return all_of(equal(column("l", f"a{a}"), column("r", f"a{a}")) for a in attributes)


class Writer:
    """Writes one plan in one number type.

    Factors have a count ``n``, unless it is 1, and the sum ``w<i>`` of every weight whose
    occurrences are inside.
    """

    def __init__(self, plan: Plan, number: str) -> None:
        self.plan = plan
        self.number = number
        self.references = plan.references()
        self.tops = plan.tops()
        self.written: dict[int, exp.Query] = {}
        self.peaks = self._find_peaks()

    def statement(self) -> exp.Query:
        """Write the whole statement."""
        rows = [self._maximum_row(n) for n in self.plan.maxima()]
        rows += [self._answer_rows(j, n) for j, n in enumerate(self.plan.answer or ())]
        if not rows:
            rows = [sql("SELECT 0 AS label, NULL::text AS value WHERE false")]
        return with_(self.ctes(), union_all(rows))

    def ctes(self) -> list[exp.CTE]:
        """Write what is stored before an answer."""
        found = []
        for n in range(len(self.plan.factors)):
            if n in self.peaks:
                found.append(cte(f"m{n}", self._maxima(n, self.peaks[n]), materialized=True))
            elif self._stored(n):
                found.append(cte(f"f{n}", self._body(n), materialized=True))
        return found

    def answer(self, attributes: Sequence[int]) -> exp.Select:
        """Write the answer as rows of ``attributes``, in their types, and the count ``n``.

        With attributes, every row has results: a part of the join that shares none of them is one
        row, and may be empty.
        """
        numbers = self.plan.answer or ()
        factors = [self.plan.factors[n] for n in numbers]
        origin = {a: column(f"f{j}", f"a{a}") for j, f in enumerate(factors) for a in f.output}
        counts = [None if f.unit else column(f"f{j}", "n") for j, f in enumerate(factors)]
        values: dict[str, Tree] = {"n": cast(_times(*counts) or number(1), self.number)}
        for i, weight in enumerate(self.plan.query.weights):
            if not any(weight.occurrences <= factor.occurrences for factor in factors):
                raise InternalError("a value spans parts of a join that are counted apart")
            parts = [
                column(f"f{j}", f"w{i}") if weight.occurrences <= f.occurrences else counts[j]
                for j, f in enumerate(factors)
            ]
            values[f"w{i}"] = _times(*parts) or number(1)
        sources: list[Tree] = [self._source(n, f"f{j}") for j, n in enumerate(numbers)]
        sources[1:] = [joined(source, None) for source in sources[1:]]
        apart = [
            sql(":n > 0", n=n) for n, f in zip(counts, factors, strict=True) if n and not f.output
        ]
        columns = [*named({a: origin[a] for a in attributes}), *named(values)]
        return select(columns, from_(sources, all_of(apart) if attributes else None))

    def _stored(self, n: int) -> bool:
        factor = self.plan.factors[n]
        if self.references[n] < 2 or (isinstance(factor, Base) and not factor.grouped):
            return False
        return not factor.unit or not self._hardly_smaller(n)

    def _hardly_smaller(self, n: int) -> bool:
        """Whether a factor keeps a good part of the rows that it is made of."""
        if not (self.plan.rows and self.plan.base_rows):
            return False
        read = sum(self.plan.base_rows[i] for i in self.plan.factors[n].occurrences)
        return self.plan.rows[n] > _WORTH_STORING * read

    def _find_peaks(self) -> dict[int, tuple[int, ...]]:
        """Return the factors of which only maxima are read, and by which attributes."""
        readers: dict[int, list[int]] = {}
        for reader, factor in enumerate(self.plan.factors):
            if isinstance(factor, Product):
                for child in (factor.left, factor.right):
                    readers.setdefault(child, []).append(reader)
        found: dict[int, tuple[int, ...]] = {}
        for n, numbers in readers.items():
            shared = {_shared(self.plan, number) for number in numbers}
            if (
                self.references[n] > 1
                and not self.plan.factors[n].unit
                and n not in (self.plan.answer or ())
                and len(shared) == 1
                and all(number in self.tops for number in numbers)
            ):
                found[n] = shared.pop()
        return found

    def _maxima(self, n: int, attributes: tuple[int, ...]) -> exp.Select:
        """Write the largest count for each value of some attributes of a factor."""
        keys = of("", attributes)
        found: exp.Select = sql(
            "SELECT :keys, :most AS n FROM :source AS f GROUP BY :keys",
            keys=keys,
            most=cast(self._most(n), self.number),
            source=self._body(n) if n in self.peaks else self._source(n),
        )
        return found

    def _most(self, n: int) -> Tree:
        """Write the largest count of the rows of a factor."""
        most: Tree = sql("max(1)") if self.plan.factors[n].unit else sql("max(n)")
        return most

    def _source(self, n: int, alias: str = "") -> exp.Table | exp.Subquery:
        """Write the factor for a FROM clause."""
        return table(f"f{n}", alias) if self._stored(n) else subquery(self._body(n), alias)

    def _body(self, n: int) -> exp.Query:
        if n not in self.written:
            factor = self.plan.factors[n]
            if isinstance(factor, Placed) or self._cut(factor):
                made = grouped_sql(self.plan.query, factor, self.number)
            elif isinstance(factor, Base):
                made = self._base(n, factor)
            else:
                made = self._product(n, factor)
            self.written[n] = made
        return self.written[n]

    def _cut(self, factor: Factor) -> TypeGuard[Base]:
        """Whether an occurrence is grouped part by part, as its rows are on other servers."""
        if not (isinstance(factor, Base) and factor.grouped):
            return False
        return is_cut(self.plan.query.occurrences[factor.occurrence])

    def _base(self, n: int, base: Base) -> exp.Select:
        values: dict[str, Tree] = {
            name: weight_sql(weight, self.number)
            for name, weight in self._weights(base.occurrences)
            if weight.occurrences == base.occurrences
        }
        expressions, source = source_sql(self.plan.query, base, (), values)
        return self._grouped(n, base, expressions, values, source)

    def _grouped(
        self,
        n: int,
        factor: Base | Product,
        origin: Mapping[int, Tree],
        values: Mapping[str, Tree],
        source: exp.Select,
    ) -> exp.Select:
        """Write the rows of a factor, grouped if it is."""
        columns = named({a: origin[a] for a in factor.output})
        if not factor.grouped:
            return select([*columns, *named(values)], source)
        if self._sorted(n):
            return self._sort(factor, select([*columns, *named(values)], source), values)
        found = select([*columns, *self._totals(values, bool(factor.output))], source)
        keys = [number(i + 1) for i in range(len(factor.output))]
        found.set("group", exp.Group(expressions=keys) if keys else None)
        return found

    def _weights(self, occurrences: frozenset[int]) -> list[tuple[str, Weight]]:
        """Name the weights that a factor of these occurrences holds."""
        named = ((f"w{i}", weight) for i, weight in enumerate(self.plan.query.weights))
        return [(name, weight) for name, weight in named if weight.occurrences <= occurrences]

    def _totals(self, values: Mapping[str, Tree], grouped: bool = True) -> list[Tree]:
        """Write the sums of a grouping; a row without a count of its own counts 1."""
        totals: dict[str, Tree] = {"n": sql("count(*)")}
        totals |= {name: total_sql(value, whole=not grouped) for name, value in values.items()}
        return named(totals | {"n": cast(totals["n"], self.number)})

    def _product(self, n: int, product: Product) -> exp.Select:
        left, right = self.plan.factors[product.left], self.plan.factors[product.right]
        origin = {a: column("r", f"a{a}") for a in right.output}
        origin |= {a: column("l", f"a{a}") for a in left.output}
        shared = sorted(set(left.output) & set(right.output))
        other = joined(self._source(product.right, "r"), _same(shared))
        source = from_([self._source(product.left, "l"), other])
        values = self._values(product, left, right)
        if product.predicates:
            inner = select([*named(dict(sorted(origin.items()))), *named(values)], source)
            tests = all_sql(self.plan.query.predicates[n] for n in product.predicates)
            source = from_([subquery(inner, "s")], tests)
            origin = {a: column("s", f"a{a}") for a in origin}
            values = {name: column("s", name) for name in values}
            for name, weight in self._weights(product.occurrences):
                if name not in values:  # it spans what only comes together here
                    value = weight_sql(weight, self.number)
                    values[name] = _times(value, values.get("n")) or value
        return self._grouped(n, product, origin, values, source)

    def _values(self, product: Product, left: Factor, right: Factor) -> dict[str, Tree]:
        """Write a joined row's count, unless it is 1, and its sums."""
        counts = {s: None if f.unit else column(s, "n") for s, f in (("l", left), ("r", right))}
        values = {"n": _times(counts["l"], counts["r"])}
        for name, weight in self._weights(product.occurrences):
            if weight.occurrences <= left.occurrences:
                values[name] = _times(column("l", name), counts["r"])
            elif weight.occurrences <= right.occurrences:
                values[name] = _times(column("r", name), counts["l"])
        return {name: value for name, value in values.items() if value is not None}

    def _sorted(self, n: int) -> bool:
        """Whether a grouping is better sorted: many groups, few rows in each."""
        factor = self.plan.factors[n]
        if not (factor.output and self.plan.rows and self.plan.base_rows):
            return False
        read = max(self.plan.base_rows[i] for i in factor.occurrences)
        return self.plan.rows[n] > max(_MANY_GROUPS, _REPEATING * read)

    def _sort(
        self, factor: Base | Product, rows: exp.Select, values: Mapping[str, Tree]
    ) -> exp.Select:
        """Write a grouping of rows in order; the attribute of most values leads.

        It needs the fewest comparisons, and is the likeliest to be clustered.
        """
        order = sorted((-self.plan.distinct[a], a) for a in factor.output)
        keys = of("", [a for _, a in order])
        rows.set("order", exp.Order(expressions=[exp.Ordered(this=key) for key in keys]))
        found: exp.Select = sql(
            "SELECT :columns, :totals FROM :rows AS o GROUP BY :keys",
            columns=of("", factor.output),
            totals=self._totals({name: column("", name) for name in values}),
            rows=rows,
            keys=keys,
        )
        return found

    def _row(
        self, label: int, value: Tree, source: exp.Select, keys: Sequence[Tree] = ()
    ) -> exp.Select:
        """Write rows of the statement, by default without keys."""
        groups = range(len(self.plan.query.groups))
        shown = keys or [exp.Null()] * len(groups)
        columns: dict[str, Tree] = {"label": number(label), "value": cast(value, "text")}
        columns |= {f"k{i + 1}": cast(shown[i], "text") for i in groups}
        return select(named(columns), source)

    def _maximum_row(self, n: int) -> exp.Select:
        factor, most = self.plan.factors[n], sql("max(n)")
        if n in self.tops:
            return self._row(n, subquery(self._top(n)), exp.Select())
        if n in self.peaks:
            return self._row(n, most, from_([table(f"m{n}", "f")]))
        if isinstance(factor, Placed) or self._cut(factor):
            # also of what is stored, which may never be read
            largest = largest_sql(self.plan.query, factor, self.number)
            if largest is not None:
                return self._row(n, most, from_([subquery(largest, "f")]))
        if isinstance(factor, Product) and self.references[n] == 1:
            alone = self._rows_alone(n, factor)
            if alone is not None:
                return self._row(n, subquery(alone), exp.Select())
        source = self._source(n, "f")
        if factor.unit:
            source = subquery(sql("SELECT * FROM :source AS f LIMIT 1", source=source), "f")
        return self._row(n, self._most(n), from_([source]))

    def _rows_alone(self, n: int, product: Product) -> exp.Query | None:
        """Write the maximum of a product whose groups are about the rows of a side in parts.

        Where each group has one row of that side, as an order is alone with its key, the other side
        tells the maximum, and that side sends only which values join; a part says so by its largest
        count.  Else the groups are sent.
        """
        query, output = self.plan.query, set(product.output)
        shared = _shared(self.plan, n)
        for side, other in ((product.left, product.right), (product.right, product.left)):
            rows, factor = self.plan.factors[side], self.plan.factors[other]
            if not self._cut(rows) or product.predicates or not product.grouped:
                continue
            if not (output <= set(rows.output) and factor.unique and factor.output == shared):
                continue
            largest = largest_sql(query, replace(rows, output=product.output), self.number)
            if largest is None:
                continue
            joining = grouped_sql(query, replace(rows, output=shared), self.number)
            few = sql(
                "SELECT :most AS n FROM :other AS l JOIN :rows AS r ON :same OFFSET 0",
                most=cast(sql("max(1)") if factor.unit else sql("max(l.n)"), self.number),
                other=self._source(other),
                rows=joining,
                same=_same(shared) or exp.true(),
            )
            whole = sql(
                "SELECT :most AS n FROM :source AS f OFFSET 0",
                most=cast(sql("max(f.n)"), self.number),
                source=self._source(n),
            )
            # conditions without columns are tested before anything below them is read
            found: exp.Query = sql(
                "WITH u AS MATERIALIZED (SELECT max(n) AS n FROM :largest AS f)"
                " SELECT max(n) FROM (SELECT f.n FROM :few AS f WHERE (SELECT n FROM u) <= 1"
                " UNION ALL SELECT f.n FROM :whole AS f WHERE (SELECT n FROM u) > 1) AS f",
                largest=largest,
                few=few,
                whole=whole,
            )
            return found
        return None

    def _top(self, n: int) -> exp.Select:
        """Write the maximum of a product that sums nothing, without forming it."""
        product = self.plan.factors[n]
        if not isinstance(product, Product):
            raise TypeError("not a product")
        shared = _shared(self.plan, n)
        left, right = (
            table(f"m{side}") if side in self.peaks else self._maxima(side, shared)
            for side in (product.left, product.right)
        )
        found: exp.Select = sql(
            "SELECT max(l.n * r.n) FROM :left AS l JOIN :right AS r ON :same",
            left=left,
            right=right,
            same=_same(shared) or exp.true(),
        )
        return found

    def _answer_rows(self, j: int, n: int) -> exp.Select:
        factor = self.plan.factors[n]
        value = number(1) if factor.unit else column("f", "n")
        keys = [
            column("f", f"a{a}") if a in factor.output else exp.Null()
            for a in self.plan.query.groups
        ]
        return self._row(-1 - j, value, from_([self._source(n, "f")]), keys)
