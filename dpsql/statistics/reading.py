"""Read integer key columns into arrays: one pass per occurrence, bounded memory.

``dp.pack(max_bytes, a, b, ...)`` returns the rows as one bytea, column after column.  A large
heap is read in ranges of pages, a few of them in one statement, so that parallel workers share
them, few rows are ever held several times, and the bound is checked again and again.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dpsql.model import Occurrence
from dpsql.ports import Database
from dpsql.query.counting_sql import source_sql
from dpsql.query.elimination import Base, Plan
from dpsql.statistics import limits
from dpsql.statistics.arrays import Ints, Memory, NotInArrays
from dpsql.statistics.sizes import Facts

_INTEGERS = ("smallint", "integer", "bigint")
#: Columns that dp.pack takes.
MAX_COLUMNS = 8
#: Times that rows just read exist, at most: in the processes that pack them, on their way to the
#: leader, there, as the result, in SPI's hands and in Python's.
_COPIES = 6
#: Ranges of pages that one statement reads.
_TOGETHER = 4
_LIMIT_EXCEEDED = "54000"


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
    for i, attributes in needed(plan).items():
        if len(attributes) > MAX_COLUMNS:
            return False
        for a in attributes:
            attribute = plan.query.attributes[a]
            if attribute.type_name not in _INTEGERS:
                return False
            if not attribute.join and not _never_null(plan.query.occurrences[i], a):
                return False
    return True


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
    return {
        i: _read(plan, i, attributes, facts, database, memory)
        for i, attributes in needed(plan).items()
    }


def _never_null(occurrence: Occurrence, attribute: int) -> bool:
    columns = {c.name: c for c in occurrence.relation.columns}
    return any(
        use.attribute == attribute
        and use.column is not None
        and use.column in columns
        and columns[use.column].not_null
        for use in occurrence.uses
    )


def _read(
    plan: Plan,
    index: int,
    attributes: tuple[int, ...],
    facts: Facts,
    database: Database,
    memory: Memory,
) -> tuple[dict[int, Ints], int]:
    base = Base(index, attributes, (), grouped=False, unit=True, unique=False)
    if not attributes:
        _, source = source_sql(plan.query, base)
        return {}, int(str(database.execute(f"SELECT count(*) FROM {source}")[0][0]))
    parts: list[list[Ints]] = [[] for _ in attributes]
    rows = 0
    ranges = _ranges(plan.query.occurrences[index], len(attributes), facts)
    for first in range(0, len(ranges), _TOGETHER):
        room = max(1, (memory.limit - memory.used) // _COPIES)
        sql = _packing(plan, base, ranges[first : first + _TOGETHER], room)
        packed = fetch(database, sql)
        if packed is None:
            continue
        columns = unpack(packed)
        rows += len(columns[0])
        for part, column in zip(parts, columns, strict=True):
            memory.hold(column.nbytes)
            part.append(column)
        database.tick()
    found = {}
    for k, a in enumerate(attributes):
        found[a] = _join(parts[k], memory)
        parts[k] = []
        database.tick()
    return found, rows


def _packing(plan: Plan, base: Base, ranges: list[tuple[str, ...]], room: int) -> str:
    """Write the statement that packs some ranges: parallel workers take one after the other."""
    selects = []
    for condition in ranges:
        expressions, source = source_sql(plan.query, base, condition)
        columns = ", ".join(f"({expressions[a]}) AS c{k}" for k, a in enumerate(base.output))
        selects.append(f"SELECT {columns} FROM {source}")
    values = ", ".join(f"p.c{k}" for k in range(len(base.output)))
    return f"SELECT dp.pack({room}::bigint, {values}) FROM ({' UNION ALL '.join(selects)}) AS p"


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


def _ranges(occurrence: Occurrence, columns: int, facts: Facts) -> list[tuple[str, ...]]:
    """Conditions that cut a large table into ranges of pages; open at both ends."""
    oid = occurrence.relation.oid
    pages = facts.pages.get(oid, 0)
    step = limits.PAGES
    if pages:
        a_page = facts.rows.get(oid, 0.0) / pages * columns * 8
        step = max(1, min(step, int(limits.PACKED / _TOGETHER / max(a_page, 1.0))))
    if occurrence.relation.kind not in ("r", "m") or pages <= 2 * step:
        return [()]
    tid = f"{occurrence.alias}.ctid"
    marks = [f"'({p},0)'::pg_catalog.tid" for p in range(step, pages - step // 2, step)]
    found: list[tuple[str, ...]] = [(f"{tid} < {marks[0]}",)]
    found += [(f"{tid} >= {a}", f"{tid} < {b}") for a, b in pairwise(marks)]
    return [*found, (f"{tid} >= {marks[-1]}",)]


def fetch(database: Database, sql: str) -> bytes | None:
    """Run a statement that packs; ``None`` without rows, `NotInArrays` beyond its room."""
    try:
        rows = database.execute(sql)
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
    column = np.concatenate(parts)
    memory.used += column.nbytes - before
    return column
