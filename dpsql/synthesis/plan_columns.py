"""How the values of each column of a copy come about.

A foreign key's columns are its parent's, keys are made up, levels of public domains are drawn; of
all else nothing public is known, so that it is NULL or its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dpsql.errors import MissingDeclaration, NotAnswerable
from dpsql.synthesis.keys import MADE_UP, constant
from dpsql.synthesis.notes import CONSTANT, DEFAULT, KEYS, NO_NULL, NULL, Note
from dpsql.synthesis.notes import MADE_UP as MADE_UP_VALUES
from dpsql.synthesis.plan_keys import Keys, says_itself
from dpsql.synthesis.schema import Attribute, Column, Table, Unique, Use

_INTEGERS = ("int2", "int4", "int8")
_MEMBERS = {
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float4", "float8"), "0, 100"),
    **dict.fromkeys(("text", "varchar", "bpchar"), "array['a', 'b']"),
    "date": "date '2000-01-01', date '2000-12-31'",
    "timestamp": "'2000-01-01', '2000-12-31'",
    "timestamptz": "'2000-01-01', '2000-12-31'",
    "uuid": "array['00000000-0000-0000-0000-000000000000']",
}


def uses(
    table: Table, keys: Keys, *, placeholders: bool = False
) -> tuple[dict[str, Use], list[Note]]:
    """Choose a use for each column of a protected table.

    With ``placeholders`` values are made up where nothing public is known and there can be no NULL.

    Returns
    -------
    dict
        In the order of the columns.
    list of Note
        For whoever asks for the copy.

    Raises
    ------
    MissingDeclaration
        When a column can be neither NULL nor drawn nor made up, with the statements that declare
        domains.
    NotAnswerable
        When nothing makes a primary key.
    """
    known = {a.column: a for a in table.domains}
    found: dict[str, Use] = {}
    for column in table.columns:
        if column.generated:
            found[column.name] = Use.GENERATED
    found.update(
        (c, Use.REFERENCE) for k in keys.linked for c in k.columns if not says_itself(table, k, c)
    )
    found.update((c, Use.MISSING) for c in keys.missing)
    notes: list[Note] = []
    for unique in sorted(table.uniques, key=lambda u: (not u.primary, len(u.columns))):
        notes.extend(_made_up(table, unique, known, found))
    refused = []
    for column in table.columns:
        if column.name in found:
            continue
        if column.name in known:
            found[column.name] = Use.ATTRIBUTE
            notes.extend(_about_nulls(table, column, known[column.name]))
        elif not column.not_null:
            found[column.name] = Use.MISSING
            what = "is NULL in every row: nothing public is known of its values"
            notes.append(_note(table, column, what, NULL))
        elif column.identity or _numbered(column):
            found[column.name] = Use.KEY if column.base in _INTEGERS else Use.DEFAULT
        elif column.default is not None:
            found[column.name] = Use.DEFAULT
            what = "has its default in every row: nothing public is known of its values"
            notes.append(_note(table, column, what, DEFAULT))
        elif placeholders and column.base in MADE_UP and constant(column.base) is None:
            found[column.name] = Use.KEY
            what = "is made up: nothing public is known of its values"
            notes.append(_note(table, column, what, MADE_UP_VALUES))
        elif placeholders and constant(column.base) is not None:
            found[column.name] = Use.CONSTANT
            value = repr(constant(column.base))
            what = f"is {value} in every row: nothing public is known of its values"
            notes.append(_note(table, column, what, CONSTANT, way=False))
        else:
            refused.append(column)
    _require_keys(table, found)
    if refused:
        raise _undeclared(table, refused)
    return {c.name: found[c.name] for c in table.columns}, notes


def uses_of_public(table: Table) -> dict[str, Use]:
    """Tell what is known of the columns of a public table, which is not copied."""
    known = {a.column for a in table.domains}
    alone = {u.columns[0] for u in table.uniques if len(u.columns) == 1}
    return {
        c.name: Use.ATTRIBUTE if c.name in known else Use.KEY if c.name in alone else Use.MISSING
        for c in table.columns
    }


def _made_up(
    table: Table, unique: Unique, known: dict[str, Attribute], found: dict[str, Use]
) -> Iterable[Note]:
    """Make values up where those of a key must differ and nothing else makes them differ."""
    rest = [table.column(c) for c in unique.columns if c not in found]
    able = [c for c in rest if c.base in MADE_UP]
    unknown = [c for c in able if c.name not in known]
    taken = {found[c] for c in unique.columns if c in found}
    if not rest or (Use.MISSING in taken and unique.nulls_distinct):
        return []
    if unique.primary:
        chosen = unknown
    else:
        chosen = [c for c in unknown if c.not_null]
        if not chosen and Use.KEY not in taken:
            chosen = unknown[-1:]
    if not chosen and Use.KEY not in taken:
        if len(unique.columns) == 1:
            chosen = able
        elif unique.primary:
            chosen = [c for c in able if c.base in _INTEGERS][-1:]
    found.update((c.name, Use.KEY) for c in chosen)
    what = f"is made up, since {unique.name} has it: its declared values are not drawn"
    notes = [_note(table, c, what, KEYS, way=False) for c in chosen if c.name in known]
    if not chosen and Use.KEY not in taken and all(c.name in known for c in rest):
        text = (
            f"rows of {table.shown} that would be equal in {', '.join(unique.columns)} are copied"
            f" once ({unique.name})"
        )
        notes.append(Note(text))
    return notes


def _require_keys(table: Table, found: Mapping[str, Use]) -> None:
    """Refuse a primary key that nothing makes different in every row, saying why.

    Raises
    ------
    NotAnswerable
    """
    for unique in table.uniques:
        held = {found.get(c) for c in unique.columns}
        able = (Use.KEY, Use.REFERENCE, Use.ATTRIBUTE, Use.GENERATED)
        stuck = [table.column(c) for c in unique.columns if found.get(c) not in able]
        if not unique.primary or Use.KEY in held or not stuck:
            continue
        named = ", ".join(c.name for c in stuck)
        types = ", ".join(dict.fromkeys(c.type_name for c in stuck))
        raise NotAnswerable(
            f"no keys can be made up for {named} of relation {table.shown}",
            detail=f"The primary key {unique.name} has it, and of type {types} no different values"
            " are made.",
            hint="Leave the relation out of the list, or give it a key of numbers, texts, uuid,"
            " addresses, dates or times.",
        )


def _about_nulls(table: Table, column: Column, attribute: Attribute) -> Iterable[Note]:
    if column.not_null or attribute.nullable:
        return
    what = (
        "is NULL in no row, and nothing is learnt of rows where it is: its declared domain has no"
        " NULL (includes_null => true)"
    )
    yield _note(table, column, what, NO_NULL, way=False)


def _note(table: Table, column: Column, what: str, kind: str, *, way: bool = True) -> Note:
    """Tell something of a column, with the statement that declares its domain."""
    text = f"column {column.name} of {table.shown} {what}"
    return Note(text, kind, column.name, table.shown, _way(table, column) if way else "")


def _numbered(column: Column) -> bool:
    return column.default is not None and column.default.startswith("nextval(")


def _way(table: Table, column: Column) -> str:
    """Write the call that declares a column's domain, if there can be one."""
    if column.base not in _MEMBERS:
        return ""
    return (
        f"SELECT dp.set_domain({_text(table.shown)}, {_text(column.name)},"
        f" {_MEMBERS[column.base]});"
    )


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _undeclared(table: Table, refused: list[Column]) -> MissingDeclaration:
    several = len(refused) > 1
    names = ", ".join(c.name for c in refused)
    hints = [_way(table, c) for c in refused]
    hints += [
        f"ALTER TABLE {table.shown} ALTER COLUMN {c.name} DROP NOT NULL; -- or SET DEFAULT ..."
        for c, hint in zip(refused, hints, strict=True)
        if not hint
    ]
    return MissingDeclaration(
        f"{'columns' if several else 'column'} {names} of relation {table.shown}"
        f" {'have' if several else 'has'} no public values",
        detail="A copy draws values of declared domains, enums and booleans; these columns can be"
        " neither NULL nor made up, and have no default.",
        hint="Let the owner say which values there are: "
        + " ".join(h for h in hints if h)
        + " Or call it with placeholders => true, which makes values up.",
    )
