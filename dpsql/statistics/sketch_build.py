"""Build AGMS sketches of the relations of a query.

It reads the distinct join keys of each relation with their counts, in one set-oriented
statement that is streamed, so that neither relations nor sign matrices are ever held whole.
Seeds are drawn anew at every building and never read again: data that changed since may depend
on answers that depended on the old seeds, and what a sketch promises holds for seeds that the
data knew nothing of (docs/proofs/sketch.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import cast

from sqlglot import exp

from dpsql.core.sketching import MAX_OCCURRENCES, families, incident
from dpsql.errors import InvalidParameter, NotAnswerable
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.relation import quote_identifier
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    column,
    cte,
    number,
    render,
    sql,
    table,
    union_all,
    with_,
)
from dpsql.statistics.sketch_parts import Part, identity, parts, text_sql
from dpsql.statistics.sketches import Counted, store, store_counters

MOST_ESTIMATORS = 1_000_000
MOST_ROWS = 101
SEED_BYTES = 32

#: More memory does not make building faster.
_ENOUGH = 256 << 20
_BATCH = 5000
#: A whole number among a list, as Python keeps it: for the products of counters.
_NUMBER_BYTES = 48


def build(
    query: JoinQuery,
    text: str,
    database: Database,
    *,
    estimators: int,
    rows: int,
    secret: Callable[[int], bytes],
    tell: Callable[[int, int], None] = lambda *_: None,
) -> None:
    """Build and store the sketch of a query's relations, in place of an older one.

    Parameters
    ----------
    query : JoinQuery
        Filters and groups are ignored.
    text : str
        The statement that it was asked for with, for the owner to see.
    database : Database
        Reads and writes in the caller's transaction.
    estimators, rows : int
        ``rows`` groups of ``estimators`` counters for every relation.
    secret : callable
        Draws so many secret bytes.
    tell : callable
        Told how many relations of the query are counted, of how many.
    """
    _check("estimators", estimators, MOST_ESTIMATORS)
    _check("rows", rows, MOST_ROWS)
    wanted = parts(query)
    shape = query.shape()
    most = max(len(incident(shape, i)) for i in range(len(wanted)))
    limit = _memory(estimators * rows, most, len(wanted), database)
    seeds = [secret(SEED_BYTES) for _ in families(shape)]
    relations = sorted({part.relation.oid for part in wanted})
    database.execute(
        "select dp.begin_measuring($1, 'sketches cannot be built') as begun",
        [("oid[]", relations)],
    )
    database.before_reading(relations)
    counted = []
    for i, part in enumerate(wanted):
        tell(i, len(wanted))
        # a family's column is that of its attribute
        factors = [
            (part.attributes.index(f.attribute), seeds[f.number]) for f in incident(shape, i)
        ]
        counted.append(_count(part, factors, estimators * rows, limit, database))
    tell(len(wanted), len(wanted))
    moments: list[int] | None = None
    if len(wanted) <= MAX_OCCURRENCES:
        moments = []
        for low in range(0, estimators * rows, estimators):
            row = [c.values[low : low + estimators] for c in counted]
            moments += products(row, estimators, database.tick)
    sketch = store(identity(query), text, (estimators, rows), moments, seeds, database)
    for i, (part, found) in enumerate(zip(wanted, counted, strict=True)):
        numbers = [f.number for f in incident(shape, i)]
        store_counters(sketch, i, part, numbers, found, database)


def _check(name: str, value: int | None, most: int) -> None:
    if value is None or not 1 <= value <= most:
        raise InvalidParameter(
            f'parameter "{name}" must be between 1 and {most}',
            detail=f"Got {'NULL' if value is None else value}.",
        )


def _memory(estimators: int, factors: int, occurrences: int, database: Database) -> int:
    """Return the bytes to use, or refuse what ``maintenance_work_mem`` does not allow."""
    from dpsql.statistics.signs import bytes_needed

    setting, allowed = database.execute(
        "select current_setting('maintenance_work_mem') as setting,"
        " pg_size_bytes(current_setting('maintenance_work_mem')) as bytes"
    )[0]
    kept = estimators * _NUMBER_BYTES * (3 * occurrences + 1)
    needed = kept + bytes_needed(estimators, factors)
    if needed > int(str(allowed)):
        raise InvalidParameter(
            f"{estimators} estimators need more memory than maintenance_work_mem allows",
            detail=f"They need {-(-needed >> 20)} MB; maintenance_work_mem is {setting}.",
            hint="Raise maintenance_work_mem for this session, or ask for fewer estimators.",
        )
    return min(int(str(allowed)), _ENOUGH) - kept


def _count(
    part: Part,
    factors: Sequence[tuple[int, bytes]],
    estimators: int,
    limit: int,
    database: Database,
) -> Counted:
    """Read one relation for its counters and norms, in one statement: one snapshot."""
    from dpsql.statistics.signs import Counters

    fingerprint = database.execute(
        "select dp.sketch_fingerprint($1, $2) as fingerprint",
        [("oid", part.relation.oid), ("text[]", list(part.columns))],
    )[0][0]
    if fingerprint is None:
        raise NotAnswerable(
            f"relation {part.relation.shown} cannot be sketched",
            detail="It is a foreign table or has one among its partitions.",
            hint="Use another method.",
        )
    counters = Counters(factors, estimators, limit, database.tick)
    head: dict[str, object] = {}
    for batch in database.stream(_keys_sql(part), _BATCH):
        keys, counts = [], []
        for count, told, *key in batch:
            if told is not None:
                head = json.loads(str(told))
                continue
            keys.append(tuple(str(k) for k in key))
            counts.append(int(str(count)))
        counters.add(keys, counts)
    return Counted(
        counters.values().tolist(),
        [str(n) for n in cast("list[object]", head["norms"])],
        str(fingerprint),
        str(head["snapshot"]),
        str(head["taken_at"]),
        None if head["changes"] is None else str(head["changes"]),
    )


def _keys_sql(part: Part) -> str:
    """Write the statement that gives a row about itself, and keys with their counts.

    That row is JSON: the snapshot and when it was taken, the norms, and the fingerprint under
    which changes are counted from then on.
    """
    places = range(len(part.values))
    told = sql(
        "pg_catalog.json_build_object('snapshot', pg_catalog.pg_current_snapshot()::text,"
        " 'taken_at', pg_catalog.clock_timestamp()::text,"
        " 'changes', dp.statistics_fingerprint(:relation),"
        " 'norms', pg_catalog.json_build_array(:norms))::text",
        relation=number(part.relation.oid),
        norms=_norms(part),
    )
    itself = sql(
        "SELECT NULL::pg_catalog.int8 AS n, :told AS told, :nothing",
        told=told,
        nothing=[aliased(sql("NULL::pg_catalog.text"), f"k{i}") for i in places],
    )
    keys = sql(
        "SELECT g.n, NULL, :texts FROM c AS g ORDER BY :places",
        texts=[aliased(text_sql(part, i), f"k{i}") for i in places],
        places=[number(i + 3) for i in places],
    )
    return render(with_([cte("c", _grouped(part), materialized=True)], union_all([itself, keys])))


def _grouped(part: Part) -> exp.Select:
    """Write the distinct keys of a relation as k0, k1, ... with their counts.

    Rows with a NULL join column take part in no result.
    """
    columns = [column(part.alias, quote_identifier(name)) for name in part.columns]
    found: exp.Select = sql(
        "SELECT count(*) AS n, :keys FROM :relation WHERE :present GROUP BY :places",
        keys=[aliased(key, f"k{i}") for i, key in enumerate(part.values)],
        relation=table(part.relation.sql, part.alias),
        present=all_of(sql(":column_ IS NOT NULL", column_=c) for c in columns),
        places=[number(i + 2) for i in range(len(part.values))],
    )
    return found


def _norms(part: Part) -> list[Tree]:
    """Write the largest sums of squares for each set of fixed columns, from the CTE ``c``."""
    return [
        sql(
            "(SELECT coalesce(max(s), 0)::text FROM"
            " (SELECT sum(n::pg_catalog.numeric * n) AS s FROM c GROUP BY :fixed) AS t)",
            fixed=[column("", f"k{i}") for i in range(len(part.values)) if fixed >> i & 1],
        )
        for fixed in range(1 << len(part.values))
    ]


def products(
    values: Sequence[Sequence[int]], estimators: int, tick: Callable[[], None]
) -> list[int]:
    """Sum the products of ``|sk|`` for every set of occurrences, by its bits; exact integers."""
    absolute = [[abs(v) for v in own] for own in values]
    sums = [estimators] * (1 << len(values))

    def extend(product: list[int] | None, chosen: int, first: int) -> None:
        for i in range(first, len(absolute)):
            tick()
            longer = (
                absolute[i]
                if product is None
                else [a * b for a, b in zip(product, absolute[i], strict=True)]
            )
            sums[chosen | 1 << i] = sum(longer)
            extend(longer, chosen | 1 << i, i + 1)

    extend(None, 0, 0)
    return sums
