"""Columns that several foreign keys of a table have: whether values of their parents can agree."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import NotAnswerable
from dpsql.synthesis.schema import Planned, Use

#: Types of which made-up keys are the same 1, 2, ... in every table.
_COUNTED = ("int2", "int4", "int8", "numeric")


def require_common(tables: Sequence[Planned]) -> None:
    """Refuse keys of the last table that share a column whose values are made up apart.

    Raises
    ------
    NotAnswerable
    """
    planned, place = tables[-1], len(tables) - 1
    for k, reference in enumerate(planned.references):
        if reference.parent == place:
            continue
        there = dict(zip(reference.key.columns, reference.key.parent_columns, strict=True))
        for column in planned.shared(k):
            mine = origin(tables, place, column)
            theirs = origin(tables, reference.parent, there[column])
            if mine != theirs and (_made_apart(tables, mine) or _made_apart(tables, theirs)):
                first = next(r.key for r in planned.references if column in r.key.columns)
                raise NotAnswerable(
                    f"the foreign keys {first.name} and {reference.key.name} of relation"
                    f" {planned.table.shown} cannot be copied together",
                    detail=f"Both have the column {column}, and values of {_shown(tables, mine)}"
                    f" and of {_shown(tables, theirs)} are made up apart: none would agree.",
                    hint="Let both refer to one table of these values by foreign keys, declare"
                    f" their domains, or leave one out: without => array['{reference.key.name}'].",
                )


def origin(tables: Sequence[Planned], place: int, column: str) -> tuple[int, str]:
    """Return the table and column that a column's values come from, over all foreign keys."""
    planned = tables[place]
    for reference in planned.references:
        if planned.use(column) is Use.REFERENCE and column in reference.key.columns:
            at = reference.key.columns.index(column)
            if reference.parent == place:
                break
            return origin(tables, reference.parent, reference.key.parent_columns[at])
    return place, column


def _made_apart(tables: Sequence[Planned], at: tuple[int, str]) -> bool:
    planned, column = tables[at[0]], at[1]
    if planned.table.public or planned.use(column) is not Use.KEY:
        return False
    return planned.table.column(column).base not in _COUNTED


def _shown(tables: Sequence[Planned], at: tuple[int, str]) -> str:
    return f"{at[1]} of {tables[at[0]].table.shown}"
