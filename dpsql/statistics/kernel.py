"""Evaluate a counting plan on arrays.

The same plan that ``counting_sql`` writes as one statement, for binary joins of integer
keys that fit a stated memory bound: far ahead of SQL when the query is cyclic, because a
product of two factors is a sparse matrix product (DESIGN.md).  Which of the two runs
changes time, never a count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dpsql.model import Counts
from dpsql.query.counting_sql import assemble
from dpsql.query.elimination import Base, Plan, Product
from dpsql.statistics.arrays import (
    BLOCK,
    MOST_CELLS,
    Engine,
    Ints,
    Memory,
    Rows,
    Table,
    code_type,
    collect,
    group,
    top,
    total,
)

#: Widest range of values that is compacted through a bitmap.
_BITMAP = 1 << 23


def evaluate(
    plan: Plan,
    tables: Mapping[int, tuple[dict[int, Ints], int]],
    memory: Memory,
    tick: Callable[[], None],
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

    Returns
    -------
    Counts

    Raises
    ------
    NotInArrays
        When memory or int64 does not suffice.
    """
    coded, domains, origin = _encode(tables, memory, tick)
    return _Run(plan, Engine(domains, memory, tick), coded, origin).counts()


class _Run:
    """One evaluation; factors are dropped after their last use."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        tables: dict[int, Table],
        origin: dict[int, tuple[int, Ints | None]],
    ) -> None:
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
                if number == n:
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
        factor = self.plan.factors[n]
        rows = self._rows(factor)
        if not factor.output:
            count = total(rows)
            self.scalars[n] = count
            return None, count
        if n in self.tops:
            return None, top(rows)
        if not factor.grouped:
            return self._bag(factor, rows)
        table, maximum = group(rows, factor.output, keep=keep, best=self._best(n))
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
        small = attributes and self.engine.size(attributes) <= MOST_CELLS
        return attributes if small else None

    def _rows(self, factor: Base | Product) -> Rows:
        if isinstance(factor, Base):
            return Rows(self.engine, self.tables[factor.occurrence], None, ())
        left, right = self._operand(factor.left), self._operand(factor.right)
        shared = tuple(sorted(left.columns.keys() & right.columns.keys()))
        if right.rows > left.rows:
            left, right = right, left
        return Rows(self.engine, left, right, shared)

    def _operand(self, n: int) -> Table:
        if n in self.scalars:
            # a factor without attributes is one row with its count
            return Table({-1 - n: np.zeros(1, dtype=np.int16)}, np.array([self.scalars[n]]), 1)
        return self.results[n]

    def _bag(self, factor: Base | Product, rows: Rows) -> tuple[Table, int]:
        """Keep rows as they are: a base table shares its arrays."""
        if isinstance(factor, Base):
            source = self.tables[factor.occurrence]
            table = (
                source
                if tuple(sorted(source.columns)) == factor.output
                else Table({a: source.columns[a] for a in factor.output}, None, source.rows)
            )
        else:
            table = collect(rows, factor.output)
            self.engine.memory.hold(table.held)
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


def _encode(
    tables: Mapping[int, tuple[dict[int, Ints], int]],
    memory: Memory,
    tick: Callable[[], None],
) -> tuple[dict[int, Table], dict[int, int], dict[int, tuple[int, Ints | None]]]:
    """Replace values by codes ``0 ... domain - 1``, the same for every use of an attribute."""
    domains: dict[int, int] = {}
    origin: dict[int, tuple[int, Ints | None]] = {}
    attributes = sorted({a for columns, _ in tables.values() for a in columns})
    for a in attributes:
        users = [columns for columns, _ in tables.values() if a in columns]
        filled = [c[a] for c in users if len(c[a])]
        low = min((int(c.min()) for c in filled), default=0)
        high = max((int(c.max()) for c in filled), default=-1)
        most = max((len(c) for c in filled), default=0)
        values = _present(filled, low, high, memory) if high - low >= 0 else None
        if values is None and high - low >= max(1 << 16, 8 * most):
            memory.need(24 * sum(len(c) for c in filled))
            values = np.unique(np.concatenate([np.unique(c) for c in filled]).astype(np.int64))
        domain = high - low + 1 if values is None else len(values)
        domains[a], origin[a] = max(domain, 1), (low, values)
        kind = code_type(max(domain, 1))
        for columns in users:
            column = columns[a]
            memory.need(len(column) * 4 + BLOCK * 16)
            columns[a] = _code(column, low, values, high - low + 1, kind)
            memory.release(column.nbytes - columns[a].nbytes)
            tick()
    return (
        {i: Table(columns, None, rows) for i, (columns, rows) in tables.items()},
        domains,
        origin,
    )


def _present(columns: list[Ints], low: int, high: int, memory: Memory) -> Ints | None:
    """Return the values that occur, when a bitmap of the range is cheap and not full."""
    width = high - low + 1
    if width > _BITMAP:
        return None
    memory.need(width * 6)
    seen = np.zeros(width, dtype=bool)
    for column in columns:
        for lo in range(0, len(column), BLOCK):
            seen[column[lo : lo + BLOCK].astype(np.int64) - low] = True
    values = np.flatnonzero(seen) + low
    return values if len(values) < 0.8 * width else None


def _code(column: Ints, low: int, values: Ints | None, width: int, kind: type) -> Ints:
    """Code one column."""
    if values is None:
        return _by_block(column, lambda part: part.astype(np.int64) - low, kind)
    if width <= _BITMAP:
        table: Ints = np.zeros(width, dtype=kind)
        table[values - low] = np.arange(len(values))
        return _by_block(column, lambda part: table[part.astype(np.int64) - low], kind)
    return _by_block(column, lambda part: np.searchsorted(values, part), kind)


def _by_block(column: Ints, code: Callable[[Ints], Ints], kind: type) -> Ints:
    """Code a column piece by piece, so that nothing of its size is needed in between."""
    coded: Ints = np.empty(len(column), dtype=kind)
    for lo in range(0, len(column), BLOCK):
        coded[lo : lo + BLOCK] = code(column[lo : lo + BLOCK])
    return coded
