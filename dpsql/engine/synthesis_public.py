"""What is read of public tables: texts of their rows, in the order that links are numbered in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dpsql.engine.synthesis_ask import Learned, expression
from dpsql.engine.synthesis_payload import MeasuredTable
from dpsql.errors import NotAnswerable
from dpsql.relation import quote_identifier
from dpsql.synthesis.schema import Plan, Planned, Table

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Rows of a public table up to which the one that is referred to is learnt as an attribute is.
FEW_ROWS = 256
#: Rows of a public table whose attributes are looked at.
MOST_ROWS = 5_000_000


@dataclass(frozen=True, slots=True)
class PublicRows:
    """Texts of expressions, one tuple each, and how many rows there are."""

    rows: int
    texts: tuple[tuple[str | None, ...], ...]


def public_rows(planned: Planned, expressions: Sequence[str], services: Services) -> PublicRows:
    """Read expressions over the rows of a public table.

    Rows are ordered by the primary key, or else by the first unique columns.

    Raises
    ------
    NotAnswerable
        When the table has too many rows, or none of its columns tell rows apart.
    """
    table = planned.table
    key = next((u.columns for u in table.uniques if u.primary), None)
    if key is None:
        key = table.uniques[0].columns if table.uniques else ()
    name = quoted(table)
    number = int(
        str(
            services.database.execute(
                f"SELECT count(*) AS n FROM (SELECT FROM {name} LIMIT {MOST_ROWS + 1}) AS t"
            )[0][0]
        )
    )
    if number > MOST_ROWS:
        raise NotAnswerable(
            f"the public table {table.shown} has too many rows to be referred to",
            detail=f"At most {MOST_ROWS} are listed.",
        )
    if not expressions:
        return PublicRows(number, ())
    places = ", ".join(f"s.{quote_identifier(column)}" for column in key)
    order = f" ORDER BY {places}" if places else ""
    values = ", ".join(f"({sql})::text AS v{n}" for n, sql in enumerate(expressions))
    shown = ", ".join(f"array_agg(s.v{n}{order}) AS c{n}" for n in range(len(expressions)))
    row = services.database.execute(f"SELECT {shown} FROM (SELECT *, {values} FROM {name}) AS s")[0]
    return PublicRows(number, tuple(tuple(found or ()) for found in cast("list[Any]", row)))


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
        name = quoted(parent)
        number = services.database.execute(
            f"SELECT count(*) AS n FROM (SELECT FROM {name} LIMIT {FEW_ROWS + 1}) AS t"
        )[0][0]
        if 0 < int(str(number)) <= FEW_ROWS:
            found.append(k)
    return found


def public_table(planned: Planned, learnt: Sequence[Learned], services: Services) -> MeasuredTable:
    """Read the levels and codes of a public table's rows, in the order that links are numbered."""
    import numpy as np

    columns = public_rows(planned, [expression(planned, item) for item in learnt], services)
    levels, codes = [], []
    for texts in columns.texts:
        known = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        levels.append(tuple(known))
        codes.append([known[text] for text in texts])
    found = np.array(codes, dtype=np.int32).reshape(len(codes), columns.rows).T
    return MeasuredTable(tuple(levels), np.ascontiguousarray(found))


def listing(planned: Planned, services: Services) -> str:
    """Return a digest of a public table's keys in their order: links are numbers of its rows."""
    columns = dict.fromkeys(c for unique in planned.table.uniques for c in unique.columns)
    found = public_rows(planned, [quote_identifier(column) for column in columns], services)
    return hashlib.sha256(repr((found.rows, found.texts)).encode()).hexdigest()
