"""From tables to a plan: what each column becomes, and in which order tables are generated.

`plan_keys` says which foreign keys get links, `plan_columns` what columns are; here every parent
is put before its children (issue 6; PRIVACY.md section 2 (c): public facts only).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dpsql.errors import NotAnswerable
from dpsql.synthesis.plan_columns import uses, uses_of_public
from dpsql.synthesis.plan_common import require_common
from dpsql.synthesis.plan_keys import Keys, choose, named, require_known
from dpsql.synthesis.plan_values import with_values
from dpsql.synthesis.schema import ForeignKey, Plan, Planned, Reference, Table, Use


def planned(
    tables: Sequence[Table], *, leave_out: Sequence[str] = (), placeholders: bool = False
) -> Plan:
    """Plan the copy of tables.

    Parameters
    ----------
    tables : sequence of Table
        What is copied, and the public tables that it refers to.
    leave_out : sequence of str
        Names of foreign keys that are not copied, as ``constraint`` or ``relation.constraint``.
    placeholders : bool
        Whether values are made up where nothing public is known of them.

    Returns
    -------
    Plan
        Parents first; otherwise in the order given.

    Raises
    ------
    InvalidParameter
        When ``leave_out`` names what cannot be left out.
    NotAnswerable
        When keys lead in a circle over several tables or out of the list, or share columns whose
        values can never agree.
    MissingDeclaration
        When a column can have no value.
    """
    by_oid = {table.oid: table for table in tables}
    left_out = require_known(tables, leave_out)
    keys = {
        table.oid: Keys() if table.public else choose(table, by_oid, left_out) for table in tables
    }
    order = _ordered(tables, keys)
    place = {table.oid: n for n, table in enumerate(order)}
    result, notes = [], []
    for table in order:
        own = keys[table.oid]
        notes.extend(own.notes)
        if table.public:
            result.append(Planned(table, tuple(uses_of_public(table).items()), table.domains))
            continue
        found, told = uses(table, own, placeholders=placeholders)
        notes.extend(told)
        drawn = tuple(a for a in table.domains if found[a.column] is Use.ATTRIBUTE)
        references = tuple(_references(table, own.linked, place, found))
        result.append(Planned(table, tuple(found.items()), drawn, references, tuple(own.implied)))
        for reference in references:
            _require_keys(table, reference.key, result[reference.parent])
        require_common(result)
    result, told = with_values(result)
    return Plan(tuple(result), (*notes, *told))


def _references(
    table: Table,
    linked: Sequence[ForeignKey],
    place: Mapping[int, int],
    found: Mapping[str, Use],
) -> Iterator[Reference]:
    """Write the references of a table in their order."""
    before = {c for c, use in found.items() if use is not Use.REFERENCE}
    for key in linked:
        filled = [c in before or table.column(c).not_null for c in key.columns]
        yield Reference(
            key,
            place[key.parent],
            nullable=not (any(filled) if key.full else all(filled)),
            unique=any(set(u.columns) <= set(key.columns) for u in table.uniques),
        )
        before |= set(key.columns)


def _require_keys(table: Table, key: ForeignKey, parent: Planned) -> None:
    """Refuse a key that references columns whose values only the server knows.

    Raises
    ------
    NotAnswerable
    """
    if parent.table.public:
        return
    able = (Use.KEY, Use.REFERENCE, Use.ATTRIBUTE)
    names = [c for c in key.parent_columns if parent.use(c) not in able]
    if names:
        what = "computed" if parent.use(names[0]) is Use.GENERATED else "not generated"
        raise NotAnswerable(
            f"the foreign key {key.name} of relation {table.shown} cannot be copied",
            detail=f"It references {', '.join(names)} of {parent.table.shown}, which is {what}.",
            hint=f"If its columns can be NULL, leave it out: without => array['{key.name}'].",
        )


def _ordered(tables: Sequence[Table], keys: Mapping[int, Keys]) -> list[Table]:
    """Put parents first, as near to the order given as that allows.

    Raises
    ------
    NotAnswerable
        When there is no such order.
    """
    waiting = {t.oid: {k.parent for k in keys[t.oid].linked if k.parent != t.oid} for t in tables}
    left = list(tables)
    ordered: list[Table] = []
    while left:
        done = {t.oid for t in ordered}
        ready = next((t for t in left if waiting[t.oid] <= done), None)
        if ready is None:
            raise _circle(left, keys)
        ordered.append(ready)
        left.remove(ready)
    return ordered


def _circle(left: Sequence[Table], keys: Mapping[int, Keys]) -> NotAnswerable:
    """Name the keys of one circle among tables of which each waits for another."""
    by_oid = {t.oid: t for t in left}
    way: list[tuple[Table, ForeignKey]] = []
    at = left[0]
    while at.oid not in {t.oid for t, _ in way}:
        key = next(k for k in keys[at.oid].linked if k.parent in by_oid and k.parent != at.oid)
        way.append((at, key))
        at = by_oid[key.parent]
    way = way[next(n for n, (t, _) in enumerate(way) if t.oid == at.oid) :]
    able = [(t, k) for t, k in way if not all(t.column(c).not_null for c in k.columns)]
    shown = ", ".join(named(t, k) for t, k in way)
    if able:
        choices = " or ".join(f"without => array['{_short(t, k, left)}']" for t, k in able)
        hint = f"Leave one of them out, so that its columns are NULL in the copy: {choices}."
    else:
        hint = (
            "Let the columns of one of them be NULL (ALTER TABLE ... ALTER COLUMN ... DROP NOT"
            " NULL) and leave it out with without => array['constraint'], or declare one of the"
            " relations public if it tells nothing of anybody."
        )
    return NotAnswerable(
        "the foreign keys of the relations lead in a circle",
        detail=f"They are {shown}; every parent must be there before its children.",
        hint=hint,
    )


def _short(table: Table, key: ForeignKey, tables: Sequence[Table]) -> str:
    """Name a constraint by itself where no other table has one of that name."""
    same = [t for t in tables for k in t.foreign_keys if k.name == key.name]
    return key.name if len(same) == 1 else named(table, key)
