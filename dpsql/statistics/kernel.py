"""Evaluate a counting plan on arrays.

The same plan that ``counting_sql`` writes as one statement, for binary joins of integer
keys that fit a stated memory bound: far ahead of SQL when the query is cyclic, because a
product of two factors is a sparse matrix product (DESIGN.md).  Which of the two runs
changes time, never a count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.counted import Contributions, Counts
from dpsql.errors import InternalError
from dpsql.query.counting_sql import assemble
from dpsql.query.elimination import Base, Placed, Plan, Product
from dpsql.statistics import limits
from dpsql.statistics.arrays import Ints, Memory, NotInArrays, OutOfMemory, Table
from dpsql.statistics.encoding import encode
from dpsql.statistics.grouping import group, top
from dpsql.statistics.histogram import histogram
from dpsql.statistics.indexing import Engine
from dpsql.statistics.joining import Join, collect, total
from dpsql.statistics.loops import Loops, find_loops


def evaluate(
    plan: Plan,
    tables: Mapping[int, tuple[dict[int, Ints], int]],
    memory: Memory,
    tick: Callable[[], None],
    loops: Loops | None = None,
) -> Counts:
    """Count everything the plan asks for.

    Parameters
    ----------
    plan : Plan
        A plan without predicates that span relations.
    tables : mapping
        For each occurrence its columns (attribute -> int array) and its number of rows,
        filtered, without NULLs; consumed.
    memory : Memory
        The bound; the tables' bytes are already held in it.
    tick : callable
        Called at least every 50 ms of work.
    loops : Loops, optional
        The inner loops; found when absent.

    Returns
    -------
    Counts

    Raises
    ------
    NotInArrays
        When memory or int64 does not suffice.
    """
    loops = loops or find_loops()
    coded, domains, origin = encode(tables, memory, tick, loops)
    engine = Engine(domains, memory, tick, loops)
    return _Run(plan, engine, coded, origin).counts()


def evaluate_units(
    plan: Plan,
    unit: int,
    bounds: Sequence[int],
    tables: Mapping[int, tuple[dict[int, Ints], int]],
    memory: Memory,
    tick: Callable[[], None],
) -> Contributions:
    """Tell how many units contribute how much; as `evaluate`.

    ``plan`` has one answer factor, with the attribute ``unit`` beside the groups of its query.
    Sizes of units are told apart by ``bounds``.
    """
    loops = find_loops()
    coded, domains, origin = encode(tables, memory, tick, loops)
    run = _Run(plan, Engine(domains, memory, tick, loops), coded, origin, unit, bounds)
    run.counts()
    if run.contributions is None:
        raise NotInArrays("no units")
    return run.contributions


class _Run:
    """One evaluation; factors are dropped after their last use."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        tables: dict[int, Table],
        origin: dict[int, tuple[int, Ints | None]],
        unit: int | None = None,
        bounds: Sequence[int] = (),
    ) -> None:
        self.unit = unit
        self.bounds = bounds
        self.contributions: Contributions | None = None
        self.plan = plan
        self.engine = engine
        self.tables = tables
        self.origin = origin
        self.left = plan.references()
        self.tops = plan.tops()
        self.results: dict[int, Table] = {}
        self.maxima: dict[int, int] = {}
        self.scalars: dict[int, int] = {}

    def counts(self) -> Counts:
        """Evaluate all factors in order."""
        plan = self.plan
        wanted = set(plan.maxima())
        answer = plan.answer or ()
        parts: dict[int, dict[tuple[str | None, ...], int]] = {}
        for n, factor in enumerate(plan.factors):
            uses = self.left[n] - (n in wanted)
            table, maximum = self._factor(n, keep=uses > 0)
            if n in wanted:
                self.maxima[n] = maximum
            if table is not None:
                self.results[n] = table
            for j, number in enumerate(answer):
                if number == n and self.unit is not None and table is not None:
                    self.contributions = histogram(
                        table,
                        self.unit,
                        plan.query.groups,
                        self.bounds,
                        self.engine.size,
                        self._values,
                        self.engine.memory,
                    )
                elif number == n:
                    parts[j] = self._group_texts(n, table)
            for number in (
                n,
                *((factor.left, factor.right) if isinstance(factor, Product) else ()),
            ):
                self._forget(number, n)
        return assemble(plan, self.maxima, parts)

    def _forget(self, number: int, n: int) -> None:
        """Count down the uses of a factor; free it at zero."""
        if number == n:
            self.left[n] -= (n in self.maxima) + (self.plan.answer or ()).count(n)
        else:
            self.left[number] -= 1
        if not self.left[number]:
            table = self.results.pop(number, None)
            if table is not None and not any(table is base for base in self.tables.values()):
                self.engine.memory.release(table.owned())

    def _factor(self, n: int, *, keep: bool) -> tuple[Table | None, int]:
        """Evaluate a factor; when memory runs out, once more without what was kept for speed."""
        memory = self.engine.memory
        indexed = [t for t in (*self.tables.values(), *self.results.values()) if t.indexes]
        used = memory.used - sum(i.held for t in indexed for i in t.indexes.values())
        try:
            return self._evaluate(n, keep=keep)
        except OutOfMemory:
            for table in (*self.tables.values(), *self.results.values()):
                table.indexes.clear()
            memory.used = used
        return self._evaluate(n, keep=keep)

    def _evaluate(self, n: int, *, keep: bool) -> tuple[Table | None, int]:
        factor = self.plan.factors[n]
        if isinstance(factor, Placed):
            raise InternalError("parts of other servers are not read into arrays")
        join = self._join(factor)
        if not factor.output:
            count = total(join)
            self.scalars[n] = count
            return None, count
        if n in self.tops:
            return None, top(join)
        if not factor.grouped:
            return self._bag(factor, join)
        table, maximum = group(join, factor.output, keep=keep, best=self._best(n))
        if table is not None:
            table.held = table.nbytes
            self.engine.memory.hold(table.held)
        return table, maximum

    def _best(self, n: int) -> tuple[int, ...] | None:
        """Return the attributes whose largest counts suffice, if all readers say the same."""
        wanted: set[tuple[int, ...]] = set()
        for number, factor in enumerate(self.plan.factors):
            if isinstance(factor, Product) and n in (factor.left, factor.right):
                if number not in self.tops:
                    return None
                other = factor.right if n == factor.left else factor.left
                both = set(self.plan.factors[n].output) & set(self.plan.factors[other].output)
                wanted.add(tuple(sorted(both)))
        if n in (self.plan.answer or ()) or len(wanted) != 1:
            return None
        attributes = wanted.pop()
        small = attributes and self.engine.size(attributes) <= limits.MOST_CELLS
        return attributes if small else None

    def _join(self, factor: Base | Product) -> Join:
        if isinstance(factor, Base):
            return Join(self.engine, self.tables[factor.occurrence], None, ())
        left, right = self._operand(factor.left), self._operand(factor.right)
        shared = tuple(sorted(left.columns.keys() & right.columns.keys()))
        if right.rows > left.rows:
            left, right = right, left
        return Join(self.engine, left, right, shared)

    def _operand(self, n: int) -> Table:
        if n in self.scalars:
            # a factor without attributes is one row with its count
            return Table({-1 - n: np.zeros(1, dtype=np.int16)}, np.array([self.scalars[n]]), 1)
        return self.results[n]

    def _bag(self, factor: Base | Product, join: Join) -> tuple[Table, int]:
        """Keep rows as they are: a base table shares its arrays."""
        if isinstance(factor, Base):
            source = self.tables[factor.occurrence]
            table = (
                source
                if tuple(sorted(source.columns)) == factor.output
                else Table({a: source.columns[a] for a in factor.output}, None, source.rows)
            )
        else:
            table = collect(join, factor.output)
        if table.weight is None:
            return table, min(table.rows, 1)
        return table, int(table.weight.max(initial=0))

    def _group_texts(self, n: int, table: Table | None) -> dict[tuple[str | None, ...], int]:
        """Key texts and counts of an answer factor."""
        groups = self.plan.query.groups
        if table is None:
            count = self.scalars[n]
            return {(None,) * len(groups): count} if count else {}
        texts: list[list[str] | list[None]] = []
        for a in groups:
            if a in table.columns:
                texts.append([str(v) for v in self._values(a, table.columns[a])])
            else:
                texts.append([None] * table.rows)
        weights = [1] * table.rows if table.weight is None else table.weight.tolist()
        return dict(zip(zip(*texts, strict=True), weights, strict=True))

    def _values(self, attribute: int, codes: Ints) -> list[int]:
        """Undo the encoding."""
        low, values = self.origin[attribute]
        decoded = codes.astype(np.int64) + low if values is None else values[codes]
        result: list[int] = decoded.tolist()
        return result
