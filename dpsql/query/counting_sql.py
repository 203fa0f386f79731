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

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeGuard

from dpsql.counted import Counts
from dpsql.errors import InternalError
from dpsql.model import Weight
from dpsql.query.elimination import Base, Factor, Placed, Plan, Product
from dpsql.query.part_sql import grouped_sql, largest_sql
from dpsql.query.places import is_cut
from dpsql.query.source_sql import all_sql, source_sql, weight_sql

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
    return Writer(plan, "numeric" if numeric else "bigint").statement()


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
        for number in numbers:
            value *= maxima[number]
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


def _times(*factors: str) -> str:
    """Write a product; a factor that is known to be 1 is empty."""
    return " * ".join(f for f in factors if f)


def _named(values: dict[str, str]) -> list[str]:
    return [f"{value} AS {name}" for name, value in values.items()]


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
        self.written: dict[int, str] = {}
        self.peaks = self._find_peaks()

    def statement(self) -> str:
        """Write the whole statement."""
        rows = [self._maximum_row(n) for n in self.plan.maxima()]
        rows += [self._answer_rows(j, n) for j, n in enumerate(self.plan.answer or ())]
        if not rows:
            rows = ["SELECT 0 AS label, NULL::text AS value WHERE false"]
        return self.head() + " UNION ALL ".join(rows)

    def head(self, *more: str) -> str:
        """Write the WITH clause of what is stored, and ``more`` after it."""
        ctes = []
        for n in range(len(self.plan.factors)):
            if n in self.peaks:
                ctes.append(f"m{n} AS MATERIALIZED ({self._maxima(n, self.peaks[n])})")
            elif self._stored(n):
                ctes.append(f"f{n} AS MATERIALIZED ({self._body(n)})")
        ctes += more
        return f"WITH {', '.join(ctes)} " if ctes else ""

    def answer(self, attributes: Sequence[int]) -> str:
        """Write the answer as rows of ``attributes``, in their types, and the count ``n``.

        With attributes, every row has results: a part of the join that shares none of them is one
        row, and may be empty.
        """
        numbers = self.plan.answer or ()
        origin = {
            a: f"f{j}.a{a}" for j, n in enumerate(numbers) for a in self.plan.factors[n].output
        }
        factors = [self.plan.factors[n] for n in numbers]
        counts = ["" if factor.unit else f"f{j}.n" for j, factor in enumerate(factors)]
        columns = [f"{origin[a]} AS a{a}" for a in attributes]
        columns.append(f"{_times(*counts) or '1'}::{self.number} AS n")
        for i, weight in enumerate(self.plan.query.weights):
            if not any(weight.occurrences <= factor.occurrences for factor in factors):
                raise InternalError("a value spans parts of a join that are counted apart")
            parts = [
                f"f{j}.w{i}" if weight.occurrences <= factor.occurrences else counts[j]
                for j, factor in enumerate(factors)
            ]
            columns.append(f"{_times(*parts)} AS w{i}")
        sources = " CROSS JOIN ".join(f"{self._source(n)} AS f{j}" for j, n in enumerate(numbers))
        apart = [f"{counts[j]} > 0" for j, f in enumerate(factors) if counts[j] and not f.output]
        where = f" WHERE {' AND '.join(apart)}" if attributes and apart else ""
        return f"SELECT {', '.join(columns)} FROM {sources}{where}"

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
        for number, factor in enumerate(self.plan.factors):
            if isinstance(factor, Product):
                for child in (factor.left, factor.right):
                    readers.setdefault(child, []).append(number)
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

    def _maxima(self, n: int, attributes: tuple[int, ...]) -> str:
        """Write the largest count for each value of some attributes of a factor."""
        columns = "".join(f"a{a}, " for a in attributes)
        value = "1" if self.plan.factors[n].unit else "n"
        group = f" GROUP BY {columns[:-2]}" if attributes else ""
        source = self._source(n) if n not in self.peaks else f"({self._body(n)})"
        return f"SELECT {columns}max({value})::{self.number} AS n FROM {source} AS f{group}"

    def _source(self, n: int) -> str:
        """Write the factor for a FROM clause, without its alias."""
        return f"f{n}" if self._stored(n) else f"({self._body(n)})"

    def _body(self, n: int) -> str:
        if n not in self.written:
            factor = self.plan.factors[n]
            if isinstance(factor, Placed) or self._cut(factor):
                text = grouped_sql(self.plan.query, factor, self.number)
            elif isinstance(factor, Base):
                text = self._base(n, factor)
            else:
                text = self._product(n, factor)
            self.written[n] = text
        return self.written[n]

    def _cut(self, factor: Factor) -> TypeGuard[Base]:
        """Whether an occurrence is grouped part by part, as its rows are on other servers."""
        if not (isinstance(factor, Base) and factor.grouped):
            return False
        return is_cut(self.plan.query.occurrences[factor.occurrence])

    def _base(self, n: int, base: Base) -> str:
        values = {
            name: weight_sql(weight, self.number)
            for name, weight in self._weights(base.occurrences)
            if weight.occurrences == base.occurrences
        }
        expressions, source = source_sql(self.plan.query, base, (), values)
        columns = [f"{expressions[a]} AS a{a}" for a in base.output]
        if base.grouped and self._sorted(n):
            return self._sort(base, columns, source, values)
        if base.grouped:
            columns += self._totals({"n": ""} | values, bool(base.output))
        else:
            columns += _named(values)
        text = f"SELECT {', '.join(columns) or '1'} FROM {source}"
        return text + self._group_by(base)

    def _weights(self, occurrences: frozenset[int]) -> list[tuple[str, Weight]]:
        """Name the weights that a factor of these occurrences holds."""
        named = ((f"w{i}", weight) for i, weight in enumerate(self.plan.query.weights))
        return [(name, weight) for name, weight in named if weight.occurrences <= occurrences]

    def _totals(self, values: dict[str, str], grouped: bool = True) -> list[str]:
        """Write the sums of a grouping; a row without a count of its own counts 1."""
        found = []
        for name, value in values.items():
            total = "count(*)" if not value else f"sum({value})"
            total = total if grouped or not value else f"coalesce({total}, 0)"
            found.append(f"{total}::{self.number} AS n" if name == "n" else f"{total} AS {name}")
        return found

    def _product(self, n: int, product: Product) -> str:
        left, right = self.plan.factors[product.left], self.plan.factors[product.right]
        origin = {a: f"r.a{a}" for a in right.output} | {a: f"l.a{a}" for a in left.output}
        shared = sorted(set(left.output) & set(right.output))
        on = " AND ".join(f"l.a{a} = r.a{a}" for a in shared)
        source = f"{self._source(product.left)} AS l " + (
            f"JOIN {self._source(product.right)} AS r ON {on}"
            if shared
            else f"CROSS JOIN {self._source(product.right)} AS r"
        )
        values = self._values(product, left, right)
        if product.predicates:
            tests = all_sql(self.plan.query.predicates[n] for n in product.predicates)
            inner = [f"{sql} AS a{a}" for a, sql in sorted(origin.items())] + _named(values)
            source = f"(SELECT {', '.join(inner)} FROM {source}) AS s WHERE {tests}"
            origin = {a: f"s.a{a}" for a in origin}
            values = {name: f"s.{name}" for name in values}
            for name, weight in self._weights(product.occurrences):
                if name not in values:  # it spans what only comes together here
                    values[name] = _times(weight_sql(weight, self.number), values.get("n", ""))
        columns = [f"{origin[a]} AS a{a}" for a in product.output]
        if product.grouped and self._sorted(n):
            return self._sort(product, columns, source, values)
        if product.grouped:
            columns += self._totals({"n": ""} | values, bool(product.output))
        else:
            columns += _named(values)
        return f"SELECT {', '.join(columns) or '1'} FROM {source}" + self._group_by(product)

    def _values(self, product: Product, left: Factor, right: Factor) -> dict[str, str]:
        """Write a joined row's count, unless it is 1, and its sums."""
        counts = {s: "" if f.unit else f"{s}.n" for s, f in (("l", left), ("r", right))}
        n = _times(counts["l"], counts["r"])
        values = {"n": n} if n else {}
        for name, weight in self._weights(product.occurrences):
            if weight.occurrences <= left.occurrences:
                values[name] = _times(f"l.{name}", counts["r"])
            elif weight.occurrences <= right.occurrences:
                values[name] = _times(f"r.{name}", counts["l"])
        return values

    def _sorted(self, n: int) -> bool:
        """Whether a grouping is better sorted: many groups, few rows in each."""
        factor = self.plan.factors[n]
        if not (factor.output and self.plan.rows and self.plan.base_rows):
            return False
        read = max(self.plan.base_rows[i] for i in factor.occurrences)
        return self.plan.rows[n] > max(_MANY_GROUPS, _REPEATING * read)

    def _sort(
        self, factor: Base | Product, columns: list[str], source: str, values: dict[str, str]
    ) -> str:
        """Write a grouping of rows in order; the attribute of most values leads.

        It needs the fewest comparisons, and is the likeliest to be clustered.
        """
        order = sorted(factor.output, key=lambda a: (-self.plan.distinct[a], a))
        keys = ", ".join(f"a{a}" for a in order)
        inner = ", ".join([*columns, *_named(values)])
        totals = self._totals({"n": ""} | {name: name for name in values})
        outer = ", ".join([*(f"a{a}" for a in factor.output), *totals])
        ordered = f"SELECT {inner} FROM {source} ORDER BY {keys}"
        return f"SELECT {outer} FROM ({ordered}) AS o GROUP BY {keys}"

    def _group_by(self, factor: Base | Product) -> str:
        if not factor.grouped or not factor.output:
            return ""
        return " GROUP BY " + ", ".join(str(i + 1) for i in range(len(factor.output)))

    def _maximum_row(self, n: int) -> str:
        value = "max(1)" if self.plan.factors[n].unit else "max(n)"
        keys = "".join(f", NULL::text AS k{i + 1}" for i in range(len(self.plan.query.groups)))
        if n in self.tops:
            return f"SELECT {n} AS label, ({self._top(n)})::text AS value{keys}"
        if n in self.peaks:
            return f"SELECT {n} AS label, max(n)::text AS value{keys} FROM m{n} AS f"
        factor = self.plan.factors[n]
        if isinstance(factor, Placed) or self._cut(factor):
            # also of what is stored, which may never be read
            largest = largest_sql(self.plan.query, factor, self.number)
            if largest is not None:
                return f"SELECT {n} AS label, max(n)::text AS value{keys} FROM {largest} AS f"
        if isinstance(factor, Product) and self.references[n] == 1:
            alone = self._rows_alone(n, factor)
            if alone is not None:
                return f"SELECT {n} AS label, ({alone})::text AS value{keys}"
        limit = " LIMIT 1" if self.plan.factors[n].unit else ""
        source = (
            f"(SELECT * FROM {self._source(n)} AS f{limit}) AS f"
            if limit
            else (f"{self._source(n)} AS f")
        )
        return f"SELECT {n} AS label, {value}::text AS value{keys} FROM {source}"

    def _rows_alone(self, n: int, product: Product) -> str | None:
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
            on = " AND ".join(f"l.a{a} = r.a{a}" for a in shared) or "true"
            few = f"SELECT max({'1' if factor.unit else 'l.n'})::{self.number} AS n"
            few += f" FROM {self._source(other)} AS l JOIN ({joining}) AS r ON {on} OFFSET 0"
            whole = f"SELECT max(f.n)::{self.number} AS n FROM {self._source(n)} AS f OFFSET 0"
            # conditions without columns are tested before anything below them is read
            return (
                f"WITH u AS MATERIALIZED (SELECT max(n) AS n FROM {largest} AS f)"
                f" SELECT max(n) FROM (SELECT f.n FROM ({few}) AS f WHERE (SELECT n FROM u) <= 1"
                f" UNION ALL SELECT f.n FROM ({whole}) AS f WHERE (SELECT n FROM u) > 1) AS f"
            )
        return None

    def _top(self, n: int) -> str:
        """Write the maximum of a product that sums nothing, without forming it."""
        product = self.plan.factors[n]
        if not isinstance(product, Product):
            raise TypeError("not a product")
        shared = _shared(self.plan, n)
        sides = [
            f"m{number}" if number in self.peaks else f"({self._maxima(number, shared)})"
            for number in (product.left, product.right)
        ]
        on = " AND ".join(f"l.a{a} = r.a{a}" for a in shared) or "true"
        return f"SELECT max(l.n * r.n) FROM {sides[0]} AS l JOIN {sides[1]} AS r ON {on}"

    def _answer_rows(self, j: int, n: int) -> str:
        factor = self.plan.factors[n]
        value = "1" if factor.unit else "f.n"
        keys = "".join(
            f", {f'f.a{a}::text' if a in factor.output else 'NULL::text'} AS k{i + 1}"
            for i, a in enumerate(self.plan.query.groups)
        )
        return f"SELECT {-1 - j} AS label, {value}::text AS value{keys} FROM {self._source(n)} AS f"
