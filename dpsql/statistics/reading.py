"""Read integer key columns into arrays: one pass per occurrence, bounded memory.

``dp.pack(max_bytes, a, b, ...)`` returns the rows as one bytea, column after column.  A large
heap is read in ranges of pages, a few of them in one statement, so that parallel workers share
them, few rows are ever held several times, and the bound is checked again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from dpsql.expression import Expr
from dpsql.model import JoinQuery, Occurrence
from dpsql.ports import Database
from dpsql.query.elimination import Base, Plan
from dpsql.query.ir import tree
from dpsql.query.source_sql import source_sql
from dpsql.sqltree import (
    Tree,
    aliased,
    cast,
    column,
    constant,
    number,
    render,
    select,
    sql,
    union_all,
)
from dpsql.statistics import limits
from dpsql.statistics.arrays import Ints, Memory, NotInArrays
from dpsql.statistics.sizes import Facts

_INTEGERS = ("smallint", "integer", "bigint")
#: Columns that dp.pack takes.
MAX_COLUMNS = 16
#: Ranges of pages that one statement reads.
_TOGETHER = 4
_LIMIT_EXCEEDED = "54000"

#: Trees over an occurrence that are all true.
Condition = tuple[Tree, ...]


def needed(plan: Plan) -> dict[int, tuple[int, ...]]:
    """Attributes that the plan reads of each occurrence."""
    found: dict[int, set[int]] = {}
    for factor in plan.factors:
        if isinstance(factor, Base):
            found.setdefault(factor.occurrence, set()).update(factor.output)
    return {i: tuple(sorted(attributes)) for i, attributes in found.items()}


def readable(plan: Plan) -> bool:
    """Whether the kernel can evaluate the plan at all: a matter of shape and types only."""
    if plan.query.predicates:
        return False
    return all(
        len(attributes) <= MAX_COLUMNS and readable_attributes(plan.query, i, attributes)
        for i, attributes in needed(plan).items()
    )


def readable_attributes(query: JoinQuery, index: int, attributes: Iterable[int]) -> bool:
    """Whether attributes of an occurrence are integers, and rows without one in no result."""
    return all(
        query.attributes[a].type_name in _INTEGERS
        and (query.attributes[a].join or _never_null(query.occurrences[index], a))
        for a in attributes
    )


def expected_bytes(plan: Plan, facts: Facts) -> float:
    """Estimate what the columns will take once read (four bytes a value)."""
    total = 0.0
    for i, attributes in needed(plan).items():
        rows = facts.rows.get(plan.query.occurrences[i].relation.oid, 0.0)
        total += rows * 4 * len(attributes)
    return total


def read_tables(
    plan: Plan, facts: Facts, database: Database, memory: Memory
) -> dict[int, tuple[dict[int, Ints], int]]:
    """Read what the plan needs of each occurrence.

    Raises
    ------
    NotInArrays
        When the rows do not fit the memory bound.
    """
    found = {}
    for i, attributes in needed(plan).items():
        base = Base(i, attributes, (), grouped=False, unit=True, unique=False)
        columns, rows = read_columns(plan.query, base, {}, facts, database, memory)
        found[i] = dict(zip(attributes, columns, strict=True)), rows
    return found


def _never_null(occurrence: Occurrence, attribute: int) -> bool:
    columns = {c.name: c for c in occurrence.relation.columns}
    return any(
        use.attribute == attribute
        and use.column is not None
        and use.column in columns
        and columns[use.column].not_null
        for use in occurrence.uses
    )


def read_columns(
    query: JoinQuery,
    base: Base,
    values: Mapping[str, Expr],
    facts: Facts,
    database: Database,
    memory: Memory,
    packed: int | None = None,
) -> tuple[list[Ints], int]:
    """Read an occurrence whole: the attributes ``base.output``, then ``values``; and its rows.

    ``packed`` is how many bytes one statement reads, about.
    """
    width = len(base.output) + len(values)
    if not width:
        _, source = source_sql(query, base)
        counted = render(select([sql("count(*)")], source))
        return [], int(str(database.execute(counted)[0][0]))
    parts: list[list[Ints]] = [[] for _ in range(width)]
    rows = 0
    ranges = page_ranges(query.occurrences[base.occurrence], width, facts, None, packed)
    for columns in read_pieces(query, base, values, ranges, database, memory):
        rows += len(columns[0])
        for part, array in zip(parts, columns, strict=True):
            memory.hold(array.nbytes)
            part.append(array)
    found = []
    for k in range(width):
        found.append(_join(parts[k], memory))
        parts[k] = []
        database.tick()
    return found, rows


def read_pieces(
    query: JoinQuery,
    base: Base,
    values: Mapping[str, Expr],
    ranges: list[Condition],
    database: Database,
    memory: Memory,
) -> Iterator[list[Ints]]:
    """Yield the rows of an occurrence in pieces, a few ranges each, whatever their order.

    Parameters
    ----------
    query : JoinQuery
        The query.
    base : Base
        The occurrence, and the attributes that are wanted of it.
    values : mapping
        Integers per row of the occurrence, never NULL, by name.
    ranges : list
        Conditions of ranges of pages, from `page_ranges`.
    database : Database
        Reads.
    memory : Memory
        Bounds what one statement may pack; holds nothing.
    """
    waiting = [ranges[i : i + _TOGETHER] for i in range(0, len(ranges), _TOGETHER)]
    while waiting:
        some = waiting.pop(0)
        room = max(1, (memory.limit - memory.used) // limits.COPIES)
        try:
            packed = fetch(database, _packing(query, base, values, some, room))
        except NotInArrays:
            if len(some) == 1:
                raise
            waiting[:0] = [some[: len(some) // 2], some[len(some) // 2 :]]
            continue
        if packed is not None:
            yield unpack(packed)
        database.tick()


def _packing(
    query: JoinQuery,
    base: Base,
    values: Mapping[str, Expr],
    ranges: list[Condition],
    room: int,
) -> str:
    """Write the statement that packs some ranges: parallel workers take one after the other."""
    selects = []
    names = [f"c{k}" for k in range(len(base.output) + len(values))]
    trees = {name: tree(e) for name, e in values.items()}
    for condition in ranges:
        named = dict(trees)
        expressions, source = source_sql(query, base, condition, named)
        listed = [*(expressions[a] for a in base.output), *named.values()]
        selects.append(select([*map(aliased, listed, names)], source))
    packing = sql(
        "SELECT dp.pack(:room, :columns) FROM :rows AS p",
        room=cast(number(room), "bigint"),
        columns=[column("p", name) for name in names],
        rows=union_all(selects),
    )
    return render(packing)


def unpack(packed: bytes) -> list[Ints]:
    """Return copies of the columns of a ``dp.pack``."""
    count = int(np.frombuffer(packed, dtype=np.int64, count=1)[0])
    head = np.frombuffer(packed, dtype=np.int64, count=2 + count).tolist()
    rows, widths = head[1], head[2:]
    columns: list[Ints] = []
    at = 8 * len(head)
    for width in widths:
        kind = {4: np.int32, 8: np.int64}[width]
        columns.append(np.frombuffer(packed, dtype=kind, count=rows, offset=at).copy())
        at += -(-rows * width // 8) * 8
    return columns


def piece(memory: Memory) -> int:
    """Return how many bytes a statement may pack whose rows are forgotten at once, about."""
    return min(limits.PIECE, (memory.limit - memory.used) // limits.COPIES * 3 // 4)


def page_ranges(
    occurrence: Occurrence,
    columns: int,
    facts: Facts,
    rows: float | None = None,
    packed: int | None = None,
) -> list[Condition]:
    """Conditions that cut a large table into ranges of pages; open at both ends.

    ``rows`` is how many rows are expected, if not all, ``packed`` how many bytes one statement
    reads, about.  Fewer are read without ranges, which could keep the server from using an index or
    from sharing pages among its workers evenly.
    """
    whole = packed is not None
    packed = limits.PACKED if packed is None else packed
    a_value = 8 if rows is None and not whole else 4  # where too many can be read again in parts
    oid = occurrence.relation.oid
    pages = facts.pages.get(oid, 0)
    step = limits.PAGES
    expected = facts.rows.get(oid, 0.0) if rows is None else rows
    if (whole or rows is not None) and expected * columns * a_value < packed:
        return [()]
    if pages:
        a_page = expected / pages * columns * a_value
        step = max(1, min(step, int(packed / _TOGETHER / max(a_page, 1.0))))
    if not occurrence.relation.has_pages or pages <= 2 * step:
        return [()]
    tid = column(occurrence.alias, "ctid")
    starts = range(step, pages - step // 2, step)
    marks = [cast(constant(f"({p},0)"), "pg_catalog.tid") for p in starts]
    after = [sql(":tid >= :mark", tid=tid, mark=mark) for mark in marks]
    before = [sql(":tid < :mark", tid=tid, mark=mark) for mark in marks]
    return [(before[0],), *zip(after, before[1:], strict=False), (after[-1],)]


def fetch(database: Database, statement: str) -> bytes | None:
    """Run a statement that packs; ``None`` without rows, `NotInArrays` beyond its room."""
    try:
        rows = database.execute(statement)
    except Exception as error:
        if getattr(error, "sqlstate", None) == _LIMIT_EXCEEDED:
            raise NotInArrays("memory bound") from None
        raise
    packed = rows[0][0]
    if packed is None:
        return None
    if not isinstance(packed, (bytes, bytearray, memoryview)):
        raise TypeError("dp.pack did not return bytea")
    return bytes(packed) if isinstance(packed, memoryview) else packed  # type: ignore[return-value]


def _join(parts: list[Ints], memory: Memory) -> Ints:
    """Put the pieces of a column together."""
    if not parts:
        return np.zeros(0, dtype=np.int32)
    if len(parts) == 1:
        return parts[0]
    before = sum(p.nbytes for p in parts)
    wide = max(p.itemsize for p in parts)
    memory.need(sum(len(p) for p in parts) * wide)
    whole = np.concatenate(parts)
    memory.used += whole.nbytes - before
    return whole
