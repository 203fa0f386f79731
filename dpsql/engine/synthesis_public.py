"""Public tables that a synthesis refers to: their rows are read before anything is measured.

Links are numbers of these rows.  The copy refers to the rows as they were then: to none that is
inserted later.  Where a row that it refers to was deleted, writing is refused and names the row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_ask import Learned, expression
from dpsql.engine.synthesis_measured import MeasuredTable
from dpsql.errors import NotAnswerable
from dpsql.relation import quote_identifier
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.schema import ForeignKey, Plan, Planned, Table

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Rows of a public table up to which the one that is referred to is learnt as an attribute is.
FEW_ROWS = 256
#: Rows of a public table whose attributes are looked at.
MOST_ROWS = 5_000_000
# with the rights of who writes, so that neither a view nor a policy runs what its owner wrote
_PUBLIC = """
select case when to_regclass($1) is null then 'there is none'
  when exists (select from pg_class as c where c.oid = to_regclass($1)
                and c.relkind not in ('r', 'p')) then 'it is no table'
  when dp.own_problem(to_regclass($1)) is not null then dp.own_problem(to_regclass($1)) end
  as problem
"""
#: Types whose output functions write what their casts to text do, whatever a session's settings.
_STEADY = frozenset(("int2", "int4", "int8", "numeric", "text", "varchar", "name", "uuid"))
_Texts = tuple[str | None, ...]


def read_public(planned: Planned, learnt: Sequence[Learned], services: Services) -> MeasuredTable:
    """Read the levels, codes and keys of a public table's rows, by one statement.

    Raises
    ------
    NotAnswerable
        When the table has too many rows.
    """
    import numpy as np

    table = planned.table
    rows = _number(table, MOST_ROWS, services)
    if rows > MOST_ROWS:
        raise NotAnswerable(
            f"the public table {table.shown} has too many rows to be referred to",
            detail=f"At most {MOST_ROWS} are listed.",
        )
    unique = list(dict.fromkeys(c for unique in table.uniques for c in unique.columns))
    asked = [expression(planned, item) for item in learnt] + [quote_identifier(c) for c in unique]
    texts: list[_Texts] = []
    if asked:
        names = [quote_identifier(f"dpsql {n}") for n in range(len(asked))]
        values = ", ".join(f"({sql})::text AS {v}" for v, sql in zip(names, asked, strict=True))
        # rows without a key in an order of their own, since each reading may find another one
        by_values = ", ".join(f's.{v} COLLATE "C"' for v in names)
        order = _places("s", order_of(table)) if table.uniques else by_values
        shown = ", ".join(f"array_agg(s.{v} ORDER BY {order}) AS c{n}" for n, v in enumerate(names))
        source = f"(SELECT *, {values} FROM {quoted(table)}) AS s"
        row: tuple[Any, ...] = services.database.execute(f"SELECT {shown} FROM {source}")[0]
        texts = [tuple(found or ()) for found in row]
    levels, codes = [], []
    for column in texts[: len(learnt)]:
        known = {text: n for n, text in enumerate(dict.fromkeys(column))}
        levels.append(tuple(known))
        codes.append([known[text] for text in column])
    found = np.array(codes, dtype=np.int32).reshape(len(codes), rows).T
    keys = dict(zip(unique, texts[len(learnt) :], strict=True))
    return MeasuredTable(tuple(levels), np.ascontiguousarray(found), keys)


def digest(table: MeasuredTable) -> str:
    """Return a digest of the keys of a public table in their order: links are numbers of rows."""
    number = 0 if table.codes is None else len(table.codes)
    return hashlib.sha256(repr((number, list(table.keys.items()))).encode()).hexdigest()


def require_rows(
    job: int, plan: Plan, generated: Sequence[Generated | None], services: Services
) -> None:
    """Refuse to write references to rows of public tables that are not there any more.

    The rows are read with the rights of who writes.

    Raises
    ------
    NotAnswerable
        When a row is gone, or a table is no public table any more.
    """
    for place, planned in enumerate(plan.tables):
        listed = generated[place]
        if not planned.table.public or listed is None:
            continue
        linked = [*_linked(place, plan, generated)]
        if linked:
            require_public(planned.table, services)
        types = {column.name: column.base for column in planned.table.columns}
        for key, rows in linked:
            columns = [c for c in key.parent_columns if types[c] in _STEADY]
            wanted = {tuple(listed.keys[c][row] for c in columns) for row in rows}
            if columns and (gone := wanted - _present(planned.table, columns, services)):
                raise NotAnswerable(
                    f"rows of the public table {planned.table.shown} that the synthesis refers to"
                    " are gone",
                    detail=_shown(columns, gone),
                    hint=f"Insert them again, and CALL dp.write_synthesis({job}); pays nothing. Or"
                    " drop it with dp.drop_synthesis and measure again, which is paid again.",
                )


def _linked(
    place: int, plan: Plan, generated: Sequence[Generated | None]
) -> Iterator[tuple[ForeignKey, list[int]]]:
    """Yield foreign keys to a table with the numbers of the rows that generated rows link to."""
    import numpy as np

    for child, rows in zip(plan.tables, generated, strict=True):
        if rows is None or child.table.public:
            continue
        for reference, parents in zip(child.references, rows.parents, strict=True):
            if reference.parent == place:
                linked = np.unique(parents)
                yield reference.key, linked[linked >= 0].tolist()


def _present(table: Table, columns: Sequence[str], services: Services) -> set[_Texts]:
    """Read columns of a public table as texts."""
    # by the types' output functions: casts to text could be code of their owners
    shown = ", ".join(
        f"array_agg(CASE WHEN t.{c} IS NOT NULL THEN format('%s', t.{c}) END) AS c{n}"
        for n, c in enumerate(map(quote_identifier, columns))
    )
    row: tuple[Any, ...] = services.database.execute(f"SELECT {shown} FROM {quoted(table)} AS t")[0]
    return set(zip(*(texts or () for texts in row), strict=True))


def _shown(columns: Sequence[str], gone: set[_Texts]) -> str:
    """Write how many rows are gone, and one of them."""
    first = min(gone, key=repr)
    values = ", ".join(f"{c} = {text}" for c, text in zip(columns, first, strict=True))
    return f"One of {len(gone)}: {values}."


def require_public(table: Table, services: Services) -> None:
    """Refuse a public table that became something which runs code of its owner when it is read.

    Raises
    ------
    NotAnswerable
    """
    problem = services.database.execute(_PUBLIC, [("text", quoted(table))])[0][0]
    if problem:
        raise NotAnswerable(
            f"the public table {table.shown} is not what it was",
            detail=f"Now {problem}; whoever made that could have code run with your rights.",
            hint="Drop the copy with dp.drop_synthesis and measure again.",
        )


def order_of(table: Table) -> tuple[str, ...]:
    """Return the columns that rows are ordered by: the primary key's, or the first unique ones."""
    primary = (unique.columns for unique in table.uniques if unique.primary)
    return next(primary, table.uniques[0].columns if table.uniques else ())


def _places(alias: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{quote_identifier(column)}" for column in columns)


def _number(table: Table, most: int, services: Services) -> int:
    """Count rows, up to one more than so many."""
    limited = f"SELECT FROM {quoted(table)} LIMIT {most + 1}"
    rows = services.database.execute(f"SELECT count(*) AS n FROM ({limited}) AS t")
    return int(str(rows[0][0]))


def quoted(table: Table) -> str:
    """Write the qualified name of a table."""
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"


def small_references(plan: Plan, planned: Planned, services: Services) -> list[int]:
    """List the references to public tables of so few rows that they are levels."""
    found = []
    for k, reference in enumerate(planned.references):
        parent = plan.tables[reference.parent].table
        if not parent.public or reference.nullable or len(reference.key.columns) > 1:
            continue
        if planned.shared(k):  # another reference says which
            continue
        if 0 < _number(parent, FEW_ROWS, services) <= FEW_ROWS:
            found.append(k)
    return found


def referenced(plan: Plan, place: int) -> tuple[str, ...]:
    """Return the columns of a table that references name, in the order in which they do."""
    found: dict[str, None] = {}
    for planned in plan.tables:
        for reference in planned.references:
            if reference.parent == place:
                found |= dict.fromkeys(reference.key.parent_columns)
    return tuple(found)
