"""What is read of public tables: texts of their rows, in the order that links are numbered in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dpsql.errors import NotAnswerable
from dpsql.relation import quote_identifier
from dpsql.synthesis.schema import Planned

if TYPE_CHECKING:
    from dpsql.engine.services import Services

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
    name = f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"
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
