"""What units contribute where the rows of one relation determine all others by keys, in arrays.

A line determines its order, and the order its customer.  The other relations are read whole, into
tables that are looked up by key; the rows of the first are read in pieces and added to counts and
sums in arrays, with one cell for each group and unit.  Nothing is sorted, a piece is forgotten when
it is added, and many sums cost one pass, where the server groups rows in hash tables.  Whether it
is done so changes time, never a number (PRIVACY.md section 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpsql.counted import Contributions
from dpsql.model import JoinQuery, Occurrence
from dpsql.ports import Database
from dpsql.query.elimination import Base, Plan
from dpsql.statistics.accumulate import Cells
from dpsql.statistics.amounts import Amounts
from dpsql.statistics.arrays import Ints, Memory, NotInArrays, Table
from dpsql.statistics.codes import coded_plan, decode_keys, read_texts
from dpsql.statistics.histogram import histogram
from dpsql.statistics.lookup import Lookup
from dpsql.statistics.merged import Amount, Merged
from dpsql.statistics.reading import (
    MAX_COLUMNS,
    page_ranges,
    piece,
    read_columns,
    read_pieces,
    readable_attributes,
)
from dpsql.statistics.running import OUT_OF_RANGE
from dpsql.statistics.sizes import Facts

#: A column: of an attribute, or of a value.
Name = int | str
Columns = dict[Name, Ints]


def evaluate(
    plan: Plan,
    merged: Merged,
    queries: Sequence[JoinQuery],
    bounds: Sequence[Sequence[int]],
    first: Occurrence,
    rows: float | None,
    facts: Facts,
    database: Database,
    memory: Memory,
) -> list[Contributions] | None:
    """Tell how many units contribute how much; ``None`` where arrays cannot.

    Parameters
    ----------
    plan : Plan
        Of what is merged, per group and unit; only its query matters.
    merged : Merged
        The queries as one.
    queries : sequence of JoinQuery
        Counts and sums that differ in weights and conditions.
    bounds : sequence of sequences of int
        For each the sizes of units that are told apart.
    first : Occurrence
        The one whose rows determine all others.
    rows : float, optional
        How many of its rows are expected, if not all.
    facts : Facts
        Sizes of relations.
    database : Database
        Reads one snapshot.
    memory : Memory
        The bound.
    """
    unit = queries[0].unit
    if unit is None:
        return None
    shown = replace(plan, query=replace(plan.query, groups=queries[0].groups))
    read = frozenset(a for o in plan.query.occurrences for a in o.attributes)
    coded = coded_plan(shown, read)
    if coded is None or not _fits(coded.query, merged):
        return None
    attributes = frozenset(a for p in plan.query.predicates for a in p.attributes)
    if any(coded.query.attributes[a] != plan.query.attributes[a] for a in attributes):
        return None  # conditions are on values
    texts = read_texts(shown, read, database)
    if texts is None:
        return None
    known = {a: np.array(sorted(map(int, table)), np.int64) for a, table in texts.items()}
    present = [Amount(amount.flags) for amount in merged.amounts]
    wanted = [a for a in dict.fromkeys((*merged.amounts, *present)) if a.columns]
    try:
        run = _Run(coded.query, plan.query, merged, first, facts, database, memory)
        cells = Cells(run.keys, len(wanted), known, memory)
        for columns in run.results(rows):
            added = [_product(columns, amount) for amount in wanted]
            cells.add([columns[a] for a in run.keys], added, database.tick)
        codes, sums = cells.found()
        totals = dict(zip((Amount(), *wanted), sums, strict=True))
        found = []
        for query, listed, amount, counts in zip(
            queries, bounds, merged.amounts, present, strict=True
        ):
            table = _where(codes, totals[amount], totals[counts] if counts.columns else None)
            made = histogram(table, unit, query.groups, listed, cells.size, cells.values, memory)
            found.append(replace(made, groups=decode_keys(shown, texts, made.groups)))
            database.tick()
    except NotInArrays:
        return None
    except Exception as error:
        # values past 64 bits, which declared bounds would have excluded
        if getattr(error, "sqlstate", None) != OUT_OF_RANGE:
            raise
        return None
    return found


def _fits(query: JoinQuery, merged: Merged) -> bool:
    """Whether shape, types and weights suit arrays."""
    if any(len(p.occurrences) > 1 for p in query.predicates):
        return False
    if any(len(w.occurrences) != 1 for w in query.weights):
        return False
    return all(
        readable_attributes(query, o.index, o.attributes)
        and len(o.attributes) + len(merged.values[o.index]) <= MAX_COLUMNS
        for o in query.occurrences
    )


def _product(columns: Columns, amount: Amount) -> Ints:
    product, *others = (columns[name] for name in amount.columns)
    for column in others:
        product = product * column.astype(np.int64, copy=False)
    return product


def _where(codes: dict[int, Ints], amount: Ints, counts: Ints | None) -> Table:
    """Keep the groups and units that have results."""
    if counts is not None:
        there = counts > 0
        codes, amount = {a: column[there] for a, column in codes.items()}, amount[there]
    return Table(codes, amount, len(amount))


@dataclass(slots=True)
class _Other:
    """A relation that is looked up, and the attributes that it is found by."""

    columns: Columns
    key: tuple[int, ...]

    def rows(self) -> int:
        return len(self.columns[self.key[0]])

    def lookup(self, memory: Memory) -> Lookup:
        return Lookup([self.columns[a] for a in self.key], memory)


class _Run:
    """Reads the other relations, then the results piece by piece."""

    def __init__(
        self,
        query: JoinQuery,
        uncoded: JoinQuery,
        merged: Merged,
        first: Occurrence,
        facts: Facts,
        database: Database,
        memory: Memory,
    ) -> None:
        self.query = query
        self.uncoded = uncoded
        self.values, self.made = merged.values, merged.made
        self.amounts = {name for amount in merged.amounts for name in amount.columns}
        self.first = query.occurrences[first.index]  # its values may be coded
        self.facts = facts
        self.database = database
        self.memory = memory
        unit = () if query.unit is None else (query.unit,)
        self.shown = query.groups
        self.keys = tuple(dict.fromkeys((*query.groups, *unit)))
        self.others = self._folded([self._read(o, key) for o, key in self._order()])
        self._narrow()
        self.lookups = [other.lookup(memory) for other in self.others]

    def _order(self) -> list[tuple[Occurrence, tuple[int, ...]]]:
        """Return the other occurrences as they are found, each with a key that is known then."""
        known = set(self.first.attributes)
        left = [o for o in self.query.occurrences if o is not self.first]
        found = []
        while left:
            for occurrence in left:
                # codes are as different as values
                keys = self.uncoded.identifying_keys(self.uncoded.occurrences[occurrence.index])
                keys = tuple(k for k in keys if k <= known)
                if keys:
                    break
            else:
                raise NotInArrays("no key")
            found.append((occurrence, min((tuple(sorted(k)) for k in keys), key=len)))
            known |= occurrence.attributes
            left.remove(occurrence)
        return found

    def _base(self, occurrence: Occurrence) -> Base:
        here = tuple(
            n for n, p in enumerate(self.query.predicates) if p.occurrences <= {occurrence.index}
        )
        attributes = tuple(sorted(occurrence.attributes))
        return Base(occurrence.index, attributes, here, grouped=False, unit=True, unique=False)

    def _read(self, occurrence: Occurrence, key: tuple[int, ...]) -> _Other:
        base, values = self._base(occurrence), self.values[occurrence.index]
        columns, _ = read_columns(
            self.query, base, values, self.facts, self.database, self.memory, piece(self.memory)
        )
        names: tuple[Name, ...] = (*base.output, *values)
        named = dict(zip(names, columns, strict=True))
        found = self._computed(occurrence.index, named)
        self.memory.release(_nbytes(named))
        self.memory.hold(_nbytes(found))
        return _Other(found, key)

    def _computed(self, index: int, columns: Columns) -> Columns:
        """Add what is summed of an occurrence, and forget what that is made of."""
        values = self.values[index]
        amounts = Amounts({e: columns[name] for name, e in values.items()}, self.memory)
        made = {name: amounts.column(steps) for name, steps in self.made[index].items()}
        kept = {n: c for n, c in columns.items() if n in self.amounts or isinstance(n, int)}
        return kept | {n: _full(c, columns) for n, c in made.items()}

    def _folded(self, others: list[_Other]) -> list[_Other]:
        """Look up what other relations already tell once for their rows, not for every result."""
        kept: list[_Other] = []
        for j in reversed(range(len(others))):
            other = others[j]
            hosts = [o for o in others[:j] if set(other.key) <= set(o.columns)]
            if hosts:
                host = min(hosts, key=_Other.rows)
                lookup = other.lookup(self.memory)
                before = _nbytes(host.columns) + _nbytes(other.columns) + lookup.held
                host.columns = _looked_up(host.columns, other, lookup)
                self.memory.release(before)
                self.memory.hold(_nbytes(host.columns))
                self.database.tick()
            else:
                kept.append(other)
        return kept[::-1]

    def _narrow(self) -> None:
        """Give units new numbers where they are far apart and nothing else compares them."""
        unit = self.query.unit
        holders = [other for other in self.others if unit in other.columns]
        if unit is None or unit in self.shown or unit in self.first.attributes:
            return
        if len(holders) != 1 or unit in holders[0].key:
            return
        (holder,) = holders
        column = holder.columns[unit]
        if len(column) and int(column.max()) - int(column.min()) > 4 * len(column) + 1024:
            self.memory.need(len(column) * 40)
            codes = np.unique(column, return_inverse=True)[1].astype(np.int32)
            self.memory.hold(codes.nbytes - column.nbytes)
            holder.columns[unit] = codes

    def results(self, rows: float | None) -> Iterator[Columns]:
        """Yield the results in pieces."""
        base, values = self._base(self.first), self.values[self.first.index]
        names: tuple[Name, ...] = (*base.output, *values)
        ranges = page_ranges(self.first, len(names), self.facts, rows, piece(self.memory))
        wanted: set[Name] = {*self.keys, *self.amounts}
        later: list[set[Name]] = [
            wanted.union(*(other.columns for other in self.others[j + 1 :]))
            for j in range(len(self.others))
        ]
        pieces = read_pieces(self.query, base, values, ranges, self.database, self.memory)
        for part in pieces:
            columns = self._computed(self.first.index, dict(zip(names, part, strict=True)))
            for other, lookup, needed in zip(self.others, self.lookups, later, strict=True):
                columns = _looked_up(columns, other, lookup, needed)
                self.database.tick()
            if len(columns[self.keys[0]]):
                yield columns


def _looked_up(
    columns: Columns, other: _Other, lookup: Lookup, needed: set[Name] | None = None
) -> Columns:
    """Add the columns of the rows that are found; rows that find none, or unlike ones, go."""
    places, found = lookup.find([columns[a] for a in other.key])
    if found is not None:
        places, columns = places[found], _kept(columns, found)
    for a in other.columns:
        if a in columns and a not in other.key:
            alike = columns[a] == other.columns[a][places]
            if not bool(alike.all()):
                places, columns = places[alike], _kept(columns, alike)
    new = {name: column[places] for name, column in other.columns.items() if name not in columns}
    merged = columns | new
    return merged if needed is None else {n: c for n, c in merged.items() if n in needed}


def _full(column: Ints, columns: Columns) -> Ints:
    """Repeat a constant for each row."""
    if column.ndim:
        return column
    return np.full(len(next(iter(columns.values()))), column)


def _kept(columns: Columns, rows: Ints) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _nbytes(columns: Columns) -> int:
    return sum(column.nbytes for column in columns.values())
