"""Which foreign keys of a table get links, which hold because others do, and which are left out.

A key is left out where whoever asks says so, and where it leads to what is not copied; its columns
are NULL then.  Where one key leads over its parent to where another one leads, the other holds in
the copy whenever the first does, and gets no links of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.errors import InvalidParameter, NotAnswerable
from dpsql.synthesis.notes import Note
from dpsql.synthesis.schema import ForeignKey, Table


@dataclass(slots=True)
class Keys:
    """The foreign keys of one table.

    Attributes
    ----------
    linked : list of ForeignKey
        Links are generated for these, in this order; those to the table itself come last, since
        its other columns are there then, and of those that share columns the ones that every row
        has come first.
    implied : list of ForeignKey
        Hold because those do.
    missing : list of str
        Columns that are NULL because their key is left out.
    """

    linked: list[ForeignKey] = field(default_factory=list)
    implied: list[ForeignKey] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def says_itself(table: Table, key: ForeignKey, column: str) -> bool:
    """Tell whether a key of a table to itself has a column that equals the parent's same column."""
    there = dict(zip(key.columns, key.parent_columns, strict=True))
    return key.parent == table.oid and there[column] == column


def named(table: Table, key: ForeignKey) -> str:
    """Name a constraint so that no other table has one of that name."""
    return f"{table.shown}.{key.name}"


def require_known(tables: Sequence[Table], leave_out: Sequence[str]) -> set[str]:
    """Find the constraints that are to be left out, by `named`.

    Raises
    ------
    InvalidParameter
        When there is none of that name, or several.
    """
    own = [named(t, k) for t in tables if not t.public for k in t.foreign_keys]
    short = [k.name for t in tables if not t.public for k in t.foreign_keys]
    chosen = set()
    for name in leave_out:
        found = {full for full, bare in zip(own, short, strict=True) if name in (full, bare)}
        if len(found) > 1:
            raise InvalidParameter(
                f"several relations have a foreign key {name}",
                detail=f"They are {', '.join(sorted(found))}.",
                hint="Name the one that is to be left out with its relation, as above.",
            )
        if not found:
            raise InvalidParameter(
                f"none of the relations has a foreign key {name}",
                detail=f"There are {', '.join(own) if own else 'none'}.",
                hint="Give names of constraints, or relation.constraint.",
            )
        chosen |= found
    return chosen


def choose(table: Table, tables: Mapping[int, Table], left_out: set[str]) -> Keys:
    """Choose for which foreign keys of a table links are generated.

    Parameters
    ----------
    table : Table
    tables : mapping
        All that are copied or public, by OID.
    left_out : set of str
        What `require_known` found.

    Raises
    ------
    NotAnswerable
        When a key that cannot be left out leads to what is not copied, or two have columns in
        common that links cannot be made to agree on.
    """
    keys = Keys()
    dropped: list[tuple[ForeignKey, str]] = []
    for key in table.foreign_keys:
        if named(table, key) in left_out:
            dropped.append((key, "is left out"))
        elif key.problem is not None:
            dropped.append((key, key.problem))
        elif key.parent not in tables:
            dropped.append((key, f"references {key.parent_name}, which is not in the list"))
        else:
            keys.linked.append(key)
    _part(keys, table, tables, left_out)
    covered = {c for k in keys.linked for c in k.columns}
    for key, why in dropped:
        _leave_out(keys, table, key, why, covered)
    return keys


def _part(keys: Keys, table: Table, tables: Mapping[int, Table], left_out: set[str]) -> None:
    """Part keys that hold because others do from those that get links, and order these."""
    for key in list(keys.linked):
        others = [k for k in keys.linked if k != key and set(key.columns) <= set(k.columns)]
        held = any(
            _reaches(k, key, tables, left_out, {table.oid}) and not _loosens(table, k, key)
            for k in others
        )
        if held or all(says_itself(table, key, c) for c in key.columns):
            keys.linked.remove(key)
            keys.implied.append(key)
    number = Counter(c for key in keys.linked for c in key.columns)
    for key in keys.linked:
        own = key.parent == table.oid
        for column in key.columns:
            if table.column(column).generated:
                raise NotAnswerable(
                    f"column {column} of relation {table.shown} is generated and in the foreign key"
                    f" {key.name}",
                    hint="Leave the relation out of the list.",
                )
            if number[column] == 1:
                continue
            loose = key.full and not table.column(column).not_null
            if loose or (own and not says_itself(table, key, column)):
                raise _unshared(table, column, key, keys.linked)
    keys.linked.sort(
        key=lambda k: (
            k.parent == table.oid,
            any(number[c] > 1 for c in k.columns) and _may_lack(table, k),
        )
    )


def _may_lack(table: Table, key: ForeignKey) -> bool:
    """Tell whether rows need no parent by a key."""
    some = [not table.column(c).not_null for c in key.columns]
    return all(some) if key.full else any(some)


def _loosens(table: Table, way: ForeignKey, key: ForeignKey) -> bool:
    """Tell whether rows that need no parent by one key need one by another, of fewer columns."""
    return _may_lack(table, way) and not _may_lack(table, key)


def _unshared(
    table: Table, column: str, key: ForeignKey, linked: Sequence[ForeignKey]
) -> NotAnswerable:
    """Refuse keys that say different things with a column that they share."""
    both = " and ".join(k.name for k in linked if column in k.columns)
    why = "is MATCH FULL" if key.full else "references another column of its own table with it"
    return NotAnswerable(
        f"column {column} of relation {table.shown} is in several foreign keys",
        detail=f"They are {both}; links that agree on it are not generated, because {key.name}"
        f" {why}.",
        hint="Leave one of them out whose other columns can be NULL: without =>"
        f" array['{key.name}'].",
    )


def _reaches(
    way: ForeignKey,
    key: ForeignKey,
    tables: Mapping[int, Table],
    left_out: set[str],
    seen: set[int],
) -> bool:
    """Tell whether rows that meet ``way`` meet ``key``, whose columns are among its own."""
    at = dict(zip(way.columns, way.parent_columns, strict=True))
    there = dict(zip((at[c] for c in key.columns), key.parent_columns, strict=True))
    if way.parent == key.parent and all(mine == theirs for mine, theirs in there.items()):
        return True
    if way.parent in seen or way.parent not in tables:
        return False
    parent = tables[way.parent]
    for further in parent.foreign_keys:
        if named(parent, further) in left_out or further.problem is not None:
            continue
        if set(there) <= set(further.columns) and not any(
            not parent.column(c).not_null for c in further.columns
        ):
            onward = ForeignKey(key.name, tuple(there), key.parent, tuple(there.values()))
            if _reaches(further, onward, tables, left_out, seen | {way.parent}):
                return True
    return False


def _leave_out(keys: Keys, table: Table, key: ForeignKey, why: str, covered: set[str]) -> None:
    """Make the columns of a key NULL, but for those that another key has."""
    free = [c for c in key.columns if c not in covered]
    empty = [c for c in free if not table.column(c).not_null and not table.column(c).generated]
    if free and not empty:
        raise _not_nullable(table, key, why, free)
    keys.missing.extend(c for c in empty if c not in keys.missing)
    where = f": {', '.join(empty)} of every row is NULL" if empty else ""
    text = f"the foreign key {key.name} of {table.shown} is not copied{where} ({why})"
    keys.notes.append(Note(text))


def _not_nullable(table: Table, key: ForeignKey, why: str, columns: Sequence[str]) -> Exception:
    names = ", ".join(columns)
    detail = f"Its foreign key {key.name} {why}, and {names} cannot be NULL."
    message = f"relation {table.shown} cannot be copied without the rows that it refers to"
    if why == "is left out":
        return InvalidParameter(
            f"the foreign key {key.name} of relation {table.shown} cannot be left out",
            detail=f"Column {names} is NOT NULL, and nothing else would give it a value.",
            hint="Leave out a key whose columns can be NULL.",
        )
    if key.problem is not None:
        hint = f"Mend the constraint {key.name}, or leave {table.shown} out of the list."
    elif key.protected:
        hint = f"Add '{key.parent_name}' to the list of relations."
    else:
        hint = (
            f"Let its owner protect '{key.parent_name}' and add it to the list of relations; or, if"
            f" it tells nothing of anybody: SELECT dp.declare_public('{key.parent_name}');"
        )
    return NotAnswerable(message, detail=detail, hint=hint)
