"""AGMS sketches in their tables: how one is stored and found again.

Finding one costs a statement for each relation, whatever the data.  What it says is secret
(PRIVACY.md section 2); whether it is there, and of which size, is public.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dpsql.core.sketching import Sketch
from dpsql.errors import MissingDeclaration
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.statistics.sketch_parts import Part, identity, parts


@dataclass(frozen=True, slots=True)
class Stored:
    """A sketch as it was found.

    Changes since are counted from ``measurements`` on, one of each occurrence; see ``shifts``.
    """

    sketch: Sketch
    measurements: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """What building found of one occurrence: counters, and norms by the bits of fixed columns."""

    values: list[int]
    norms: list[str]
    fingerprint: str
    snapshot: str
    taken_at: str
    changes: str | None


def store(
    name: str,
    text: str,
    numbers: tuple[int, int],
    moments: list[int] | None,
    seeds: Sequence[bytes],
    database: Database,
) -> int:
    """Put a sketch in place of an older one of the same relations; return its number."""
    # dp.begin_measuring has locked others out
    database.execute("delete from dp.sketch where identity = $1 returning id", [("text", name)])
    made = database.execute(
        "insert into dp.sketch (identity, query, estimators, rows, moments)"
        " values ($1, $2, $3, $4, $5) returning id",
        [
            ("text", name),
            ("text", text),
            *(("int4", number) for number in numbers),
            ("numeric[]", None if moments is None else [str(m) for m in moments]),
        ],
    )
    sketch = int(str(made[0][0]))
    for number, seed in enumerate(seeds):
        database.execute(
            "insert into dp.sketch_family (sketch, family, seed) values ($1, $2, $3)"
            " returning family",
            [("int8", sketch), ("int4", number), ("bytea", seed)],
        )
    return sketch


def store_counters(
    sketch: int,
    occurrence: int,
    part: Part,
    numbers: Sequence[int],
    found: Counted,
    database: Database,
) -> None:
    """Add what one occurrence gives; ``numbers`` are those of its families."""
    packed = struct.pack(f"<{len(found.values)}q", *found.values)
    database.execute(
        "insert into dp.sketch_counter (sketch, occurrence, relation, columns, types, families,"
        " counters, squares, norms, fingerprint, snapshot, taken_at, measurement)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::pg_snapshot, $12,"
        " dp.measure_sketch($3, $11::pg_snapshot, $13))"
        " returning occurrence",
        [
            ("int8", sketch),
            ("int4", occurrence),
            ("oid", part.relation.oid),
            ("text[]", list(part.columns)),
            ("text[]", list(part.types)),
            ("int4[]", list(numbers)),
            ("bytea", packed),
            ("numeric", str(sum(v * v for v in found.values))),
            ("numeric[]", found.norms),
            ("text", found.fingerprint),
            ("text", found.snapshot),
            ("timestamptz", found.taken_at),
            ("text", found.changes),
        ],
    )


# What is read of a part: by these names in `_Loaded`.
_FOUND = """
       s.estimators::int8 * s.rows as total, c.squares::text as squares,
       c.norms::text[] as norms, c.measurement,
       c.fingerprint is not distinct from dp.sketch_fingerprint(c.relation, c.columns) as valid
  from dp.sketch as s
  join dp.sketch_counter as c on c.sketch = s.id
"""

_WHOLE = f"""
select s.estimators, s.rows, case c.occurrence when 0 then s.moments::text[] end as moments,{_FOUND}
 where s.identity = $1
 order by c.occurrence
"""

_PART = f"""
select{_FOUND}
 where c.relation = $1 and c.columns = $2 and c.types = $3
 order by valid desc, total desc, c.taken_at desc
 limit 1
"""


def load(query: JoinQuery, database: Database) -> Stored:
    """Read the sketch of a query's relations.

    Where this query's own was never built, the norms of any other sketch with the same relations
    and columns do; only the means of products need the very query.

    Raises
    ------
    MissingDeclaration
        When a relation has no sketch, or only one from before it was altered.
    """
    wanted = parts(query)
    whole = database.execute(_WHOLE, [("text", identity(query))])
    moments: tuple[tuple[int, ...], ...] | None = None
    if whole and all(row[-1] for row in whole):
        estimators, rows = int(str(whole[0][0])), int(str(whole[0][1]))
        moments = _moments(whole[0][2], 1 << len(wanted))
        found = [_loaded(part, row[3:]) for part, row in zip(wanted, whole, strict=True)]
    else:
        found = [_load_part(part, database) for part in wanted]
        estimators, rows = min(f.total for f in found), 1
    sketch = Sketch(
        estimators=estimators,
        rows=rows,
        totals=tuple(f.total for f in found),
        norms=tuple(f.norms for f in found),
        squares=tuple(f.squares for f in found),
        moments=moments,
    )
    return Stored(sketch, tuple(f.measurement for f in found))


_SHIFTS = """
select dp.usable_shift(u.measurement, u.relation)::text as gained
  from unnest($1::int8[], $2::oid[]) with ordinality as u(measurement, relation, n) order by u.n
"""


def shifts(stored: Stored, query: JoinQuery, database: Database) -> tuple[int, ...] | None:
    """Tell by how many rows the relation of each occurrence may have grown since; secret.

    ``None`` where that is not known: its changes are not counted, or something else made the
    sketch useless.  That is public (docs/proofs/stale.md).
    """
    relations = [o.relation.oid for o in query.occurrences]
    rows = database.execute(_SHIFTS, [("int8[]", list(stored.measurements)), ("oid[]", relations)])
    if any(row[0] is None for row in rows):
        return None
    return tuple(int(str(row[0])) for row in rows)


@dataclass(frozen=True, slots=True)
class _Loaded:
    total: int
    squares: int
    norms: dict[frozenset[int], int]
    measurement: int | None


def _load_part(part: Part, database: Database) -> _Loaded:
    """Find a valid part of any sketch, that with most counters."""
    rows = database.execute(
        _PART,
        [
            ("oid", part.relation.oid),
            ("text[]", list(part.columns)),
            ("text[]", list(part.types)),
        ],
    )
    hint = "Its owner builds one: SELECT dp.create_sketch('<statement>')."
    if not rows:
        raise MissingDeclaration(
            f"relation {part.relation.shown} has no sketch for this join",
            detail=f"It is joined on {', '.join(part.columns) or 'no column'}.",
            hint=hint,
        )
    if not rows[0][-1]:
        raise MissingDeclaration(
            f"the sketch of relation {part.relation.shown} is not valid any more",
            detail="The relation was altered or written anew after the sketch was taken.",
            hint=hint,
        )
    return _loaded(part, rows[0])


def _loaded(part: Part, row: tuple[object, ...]) -> _Loaded:
    total, squares, norms, measurement, _ = row
    by_fixed = {
        frozenset(a for k, a in enumerate(part.attributes) if fixed >> k & 1): int(str(norm))
        for fixed, norm in enumerate(cast("list[object]", norms))
    }
    since = None if measurement is None else int(str(measurement))
    return _Loaded(int(str(total)), int(str(squares)), by_fixed, since)


def _moments(flat: object, size: int) -> tuple[tuple[int, ...], ...] | None:
    """Cut the stored products into rows."""
    if flat is None:
        return None
    numbers = [int(str(m)) for m in cast("list[object]", flat)]
    return tuple(tuple(numbers[i : i + size]) for i in range(0, len(numbers), size))


@dataclass(frozen=True, slots=True)
class Listed:
    """A stored sketch, as its owner knows it."""

    number: int
    query: str
    estimators: int
    rows: int
    relations: tuple[int, ...]


def listed(database: Database) -> list[Listed]:
    """List all sketches, each with those of its relations that still exist."""
    rows = database.execute(
        "select s.id::int8 as id, s.query, s.estimators, s.rows,"
        " array(select r.oid::int8 from dp.sketch_counter as c join pg_class as r"
        " on r.oid = c.relation where c.sketch = s.id) as relations"
        " from dp.sketch as s order by s.id"
    )
    return [
        Listed(
            int(str(number)),
            str(query),
            int(str(estimators)),
            int(str(groups)),
            tuple(int(str(oid)) for oid in cast("list[object]", relations)),
        )
        for number, query, estimators, groups, relations in rows
    ]


def delete(number: int, database: Database) -> None:
    """Delete a sketch with its counters and its seeds."""
    database.execute("delete from dp.sketch where id = $1 returning id", [("int8", number)])


def disable(number: int, database: Database) -> None:
    """Make a sketch as useless as if its relations had been altered."""
    database.execute(
        "update dp.sketch_counter set fingerprint = '', measurement = null where sketch = $1"
        " returning occurrence",
        [("int8", number)],
    )


def uncounted(relations: Sequence[int], database: Database) -> list[int]:
    """List the relations whose changes are not counted; public."""
    rows = database.execute(
        "select u.relation::int8 as relation from unnest($1::oid[]) as u(relation)"
        " where dp.statistics_fingerprint(u.relation) is null",
        [("oid[]", list(relations))],
    )
    return [int(str(row[0])) for row in rows]


def begin(database: Database) -> None:
    """Wait for whoever measures; nobody else does until the transaction ends.

    Before the first sketch is deleted: who builds one deletes its predecessor after this.
    """
    database.execute(
        "select dp.begin_measuring($1, 'sketches cannot be built') as begun", [("oid[]", [])]
    )


def compact(database: Database) -> None:
    """Forget what only deleted sketches had to count, and add up the changes that are left."""
    database.execute("select dp.compact_changes() as compacted")
