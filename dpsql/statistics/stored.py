"""Statistics that were stored: which one an answer needs, by name, and how old it is.

Which are used, and that they are, follows from public facts: that they exist, when they were
taken, and whether the catalogue is still as it was.  The amount of change only enters the bound
(PRIVACY.md section 4, "Stale statistics"; docs/proofs/stale.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, permutations, product

from dpsql.core import stale
from dpsql.model import AttributeUse, Boundary, JoinQuery, Occurrence, same_values
from dpsql.ports import Database
from dpsql.relation import base, quote_identifier

_MOST_ORDERS = 720

_CANDIDATES = """
select s.measurement, s.relation::int8 as relation, s.kept, s.identity, s.value, m.taken_at::text
  from dp.statistic s join dp.measurement m on m.id = s.measurement
 where s.identity = any ($1) order by s.measurement desc
"""

_SHIFTS = """
select u.n, dp.usable_shift(u.measurement, u.relation) as gained
  from unnest($1::int8[], $2::oid[]) with ordinality as u(measurement, relation, n) order by u.n
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """Old boundaries and what has changed since, for ``stale.bound``; secret.

    ``shifts`` are by the physical relations of ``stale.numbering``; ``taken_at`` is the
    earliest time of any of them and may be shown to owners.
    """

    values: dict[Boundary, int]
    shifts: tuple[int, ...]
    taken_at: str


def unfiltered(query: JoinQuery) -> JoinQuery:
    """Drop filters, predicates and groups: what statistics are of."""
    occurrences = tuple(replace(o, filters=()) for o in query.occurrences)
    return replace(query, occurrences=occurrences, predicates=(), groups=())


def wanted(
    query: JoinQuery, methods: Iterable[str], tick: Callable[[], None] = lambda: None
) -> frozenset[Boundary]:
    """List what a kept question stores: all that ``stale.bound`` may need by these methods."""
    shape, numbers = query.shape(), stale.numbering(query)
    return frozenset().union(
        *(stale.required(shape, numbers, method, True, tick) for method in methods)
    )


def load(query: JoinQuery, boundaries: Iterable[Boundary], database: Database) -> Stored | None:
    """Find stored statistics for a query, filtered or not.

    Either all boundaries were counted in one snapshot for a kept question, or each of them is
    of one occurrence and was counted with its relation.

    Parameters
    ----------
    query : JoinQuery
        The query.
    boundaries : iterable of Boundary
        What ``stale.required`` lists.
    database : Database
        Reads the answer's snapshot.

    Returns
    -------
    Stored or None
        ``None`` where something is missing or not valid any more: public facts.
    """
    needed = sorted(boundaries, key=lambda b: (sorted(b.occurrences), sorted(b.attributes)))
    names = {b: identity(query, b) for b in needed}
    singles = {b: _single(query, b) for b in needed if len(b.occurrences) == 1}
    asked = sorted({n for n in (*names.values(), *singles.values()) if n is not None})
    rows = database.execute(_CANDIDATES, (("text[]", asked),)) if asked else []
    for choice in (*_together(query, names, rows), _apart(query, needed, singles, rows)):
        if choice is None:
            continue
        values, measurements, taken_at = choice
        shifts = _shifts(query, measurements, database)
        if shifts is not None:
            return Stored(values, shifts, taken_at)
    return None


_Choice = tuple[dict[Boundary, int], dict[int, int], str]


def _together(
    query: JoinQuery, names: dict[Boundary, str | None], rows: Sequence[tuple[object, ...]]
) -> Iterator[_Choice]:
    """Take all boundaries from one snapshot of one kept question, the latest first."""
    found: dict[tuple[int, int], dict[str, int]] = {}
    times: dict[int, str] = {}
    for measurement, _, kept, name, value, taken_at in rows:
        if kept is not None:
            key = (int(str(measurement)), int(str(kept)))
            found.setdefault(key, {})[str(name)] = int(str(value))
            times[key[0]] = str(taken_at)
    for (measurement, _), values in found.items():
        if all(n in values for n in names.values()):
            relations = {o.relation.oid: measurement for o in query.occurrences}
            counted = {b: values[str(n)] for b, n in names.items()}
            yield counted, relations, times[measurement]


def _apart(
    query: JoinQuery,
    needed: Sequence[Boundary],
    names: dict[Boundary, str | None],
    rows: Sequence[tuple[object, ...]],
) -> _Choice | None:
    """Take frequencies of single occurrences, each relation's from its own snapshot."""
    found: dict[str, tuple[int, int, str]] = {}
    for measurement, relation, _, text, value, taken_at in rows:
        if relation is not None:
            latest = (int(str(measurement)), int(str(value)), str(taken_at))
            found.setdefault(str(text), latest)
    measurements: dict[int, int] = {}
    values: dict[Boundary, int] = {}
    times = []
    for b in needed:
        name = names.get(b)
        if name is None or name not in found:
            return None
        entry = found[name]
        oid = query.occurrences[next(iter(b.occurrences))].relation.oid
        if measurements.setdefault(oid, entry[0]) != entry[0]:
            return None
        values[b] = entry[1]
        times.append(entry[2])
    if {o.relation.oid for o in query.occurrences} - set(measurements) or not times:
        return None
    return values, measurements, min(times)


def _shifts(
    query: JoinQuery, measurements: dict[int, int], database: Database
) -> tuple[int, ...] | None:
    """Read how much each physical relation gained; ``None`` if one is not valid any more."""
    oids = sorted(measurements)
    rows = database.execute(
        _SHIFTS, (("int8[]", [measurements[oid] for oid in oids]), ("oid[]", oids))
    )
    gained = {oid: row[1] for oid, row in zip(oids, rows, strict=True)}
    if any(value is None for value in gained.values()):
        return None
    numbers = stale.numbering(query)
    shifts = [0] * (1 + max(numbers))
    for number, occurrence in zip(numbers, query.occurrences, strict=True):
        shifts[number] = int(str(gained[occurrence.relation.oid]))
    return tuple(shifts)


def frequency_identity(relation: int, columns: Iterable[tuple[str, str]]) -> str:
    """Name a maximum frequency: the relation, columns and what they are cast to."""
    return f"{relation}[{', '.join(_column(c) for c in sorted(columns))}]"


def _column(column: tuple[str, str]) -> str:
    name, cast = column
    return quote_identifier(name) + (f"::{cast}" if cast else "")


def _single(query: JoinQuery, boundary: Boundary) -> str | None:
    """Name the frequency that covers a boundary of one occurrence.

    Over all rows that have the boundary's columns; other join columns may be NULL there.
    """
    occurrence = query.occurrences[next(iter(boundary.occurrences))]
    columns: dict[int, tuple[str, str]] = {}
    for use in occurrence.uses:
        if use.attribute in boundary.attributes:
            plain = _plain(query, occurrence, use)
            if plain is not None:
                columns[use.attribute] = min(plain, columns.get(use.attribute, plain))
    if set(columns) != set(boundary.attributes):
        return None
    return frequency_identity(occurrence.relation.oid, columns.values())


def _plain(query: JoinQuery, occurrence: Occurrence, use: AttributeUse) -> tuple[str, str] | None:
    """Give the column that provides an attribute, and its cast if values may change by it."""
    types = {c.name: c.type_name for c in occurrence.relation.columns}
    if use.column is None or use.column not in types:
        return None
    own, joined = types[use.column], query.attributes[use.attribute].type_name
    same = same_values(own, joined) or base(own) == base(joined)
    return use.column, "" if same else joined


def identity(query: JoinQuery, boundary: Boundary) -> str | None:
    """Name what a boundary counts, equally in all queries that have it.

    Relations by OID, join columns with the numbers of their attributes (``*``: boundary), the
    least text over all orders of the occurrences.  ``None`` for joins on expressions.
    """
    columns: dict[int, list[tuple[str, int]]] = {}
    for i in sorted(boundary.occurrences):
        occurrence = query.occurrences[i]
        columns[i] = []
        for use in occurrence.uses:
            if query.attributes[use.attribute].join:
                plain = _plain(query, occurrence, use)
                if plain is None:
                    return None
                columns[i].append((_column(plain), use.attribute))
        columns[i].sort()

    def alike(i: int) -> tuple[int, list[str]]:
        return query.occurrences[i].relation.oid, [name for name, _ in columns[i]]

    ties = [list(tie) for _, tie in groupby(sorted(columns, key=alike), key=alike)]
    orders: Iterable[tuple[tuple[int, ...], ...]] = product(*(permutations(tie) for tie in ties))
    if math.prod(math.factorial(len(tie)) for tie in ties) > _MOST_ORDERS:
        orders = [tuple(tuple(tie) for tie in ties)]  # equal texts still have equal names
    return min(
        _written(query, columns, boundary, [i for tie in order for i in tie]) for order in orders
    )


def _written(
    query: JoinQuery,
    columns: dict[int, list[tuple[str, int]]],
    boundary: Boundary,
    order: Sequence[int],
) -> str:
    numbers: dict[int, int] = {}
    parts = []
    for i in order:
        names = [
            f"{name}={numbers.setdefault(a, len(numbers))}{'*' if a in boundary.attributes else ''}"
            for name, a in columns[i]
        ]
        parts.append(f"{query.occurrences[i].relation.oid}({', '.join(names)})")
    return " ".join(parts)
