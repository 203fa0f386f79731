"""Give copied parents the keys that owners declared as values of the foreign keys to them.

The copy has parents with these keys and no others, provided that every foreign key to the parents
has declared values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dpsql.synthesis.notes import Note
from dpsql.synthesis.schema import Planned, Reference, Table, Use

_INTEGERS = ("int2", "int4", "int8")
_TEXTS = ("text", "varchar", "bpchar")
#: Sequences of keys start with 1 and continue after the largest value.
_POSITIVE = re.compile(r"[1-9]\d{0,17}")


def with_values(tables: Sequence[Planned]) -> tuple[list[Planned], list[Note]]:
    """Use the declared values of foreign keys as the keys of the copied parents.

    Returns
    -------
    list of Planned
    list of Note
        The numbers of parents that follow, and declared values that cannot become keys.
    """
    result, notes = [_without(planned) for planned in tables], []
    for place, parent in enumerate(tables):
        if parent.table.public:
            continue
        leading = [(c, r) for c in tables for r in c.references if r.parent == place]
        declared = [(c, r) for c, r in leading if _values(c.table, r)]
        if not declared:
            continue
        where = ", ".join(f"{r.key.columns[0]} of {c.table.shown}" for c, r in declared)
        why = _problem(place, parent, leading, declared, tables)
        if why is not None:
            text = f"the declared values of {where} are not those of {parent.table.shown}: {why}"
            notes.append(Note(text))
            continue
        values = tuple(dict.fromkeys(v for c, r in declared for v in _values(c.table, r)))
        name = declared[0][1].key.parent_columns[0]
        result[place] = _with(result[place], name, values)
        most = f"{parent.table.shown} has at most {len(values)} rows"
        notes.append(Note(f"{most}: the declared values of {where}"))
    return result, notes


def _without(planned: Planned) -> Planned:
    columns = tuple(
        replace(c, values=()) if planned.use(c.name) is Use.KEY else c
        for c in planned.table.columns
    )
    return replace(planned, table=replace(planned.table, columns=columns))


def _with(planned: Planned, name: str, values: tuple[str, ...]) -> Planned:
    columns = planned.table.columns
    columns = tuple(replace(c, values=values) if c.name == name else c for c in columns)
    return replace(planned, table=replace(planned.table, columns=columns))


def _values(child: Table, reference: Reference) -> tuple[str, ...]:
    names = reference.key.columns
    return child.column(names[0]).values if len(names) == 1 else ()


def _problem(
    place: int,
    parent: Planned,
    leading: Sequence[tuple[Planned, Reference]],
    declared: Sequence[tuple[Planned, Reference]],
    tables: Sequence[Planned],
) -> str | None:
    """Return why a parent's keys cannot be the declared values, or None."""
    others = [r.key.name for c, r in leading if (c, r) not in declared]
    if others:
        return f"{', '.join(others)} may refer to other rows"
    if any(c is tables[place] for c, _ in declared):
        return "the foreign key refers to its own table"
    names = {r.key.parent_columns for _, r in declared}
    if len(names) > 1:
        return "they are values of several keys"
    ((name,),) = names
    column = parent.table.column(name)
    if parent.use(name) is not Use.KEY:
        return f"{name} is not a key by itself"
    bases = {column.base, *(c.table.column(r.key.columns[0]).base for c, r in declared)}
    values = [v for c, r in declared for v in _values(c.table, r)]
    if bases <= set(_INTEGERS):
        first, last = column.span or (1, 2**62)
        if not all(_POSITIVE.fullmatch(v) and first <= int(v) <= last for v in values):
            return "made-up keys are positive numbers that its CHECK allows"
        return None
    if len(bases) == 1 and bases <= set(_TEXTS):
        return None
    return "their types differ"
