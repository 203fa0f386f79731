"""Whose the rows of a copy's tables are: one ledger, and what one neighbour takes with it.

A copy is over the privacy units of one protected relation, or over the rows of one protected
relation with public ones around it (PRIVACY.md sections 1 and 8).  A unit goes *through* a foreign
key where the child's rows find it by way of the parent's row: then it takes parents with all their
children; by any other key it takes single links from parents that stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from dpsql.engine.synthesis_schema import relation_of
from dpsql.errors import NotAnswerable, UndeclaredRelation
from dpsql.relation import Relation, UnitPath
from dpsql.synthesis.schema import ForeignKey, Table

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Columns that name the unit or lead to it, with the parent's that they equal; the rest of the way.
_Start = tuple[frozenset[tuple[str, str]], tuple[object, ...]]


class Passage(Enum):
    """What a privacy unit, or a row, is to the links of a foreign key."""

    THROUGH = "through"  #: takes the parent with all its children
    ACROSS = "across"  #: takes children only; their parents stay, with fewer links
    PUBLIC = "public"  #: the parent is public


@dataclass(frozen=True, slots=True)
class Units:
    """Whose rows the tables hold.

    Attributes
    ----------
    root : int
        The one ledger identity that pays.
    by_rows : bool
        Whether single rows of one table are protected, else privacy units.
    ways : mapping
        From protected tables by OID to how a row finds its unit; empty where ``by_rows``.
    passages : mapping
        From (OID of the child, name of the foreign key).
    """

    root: int
    by_rows: bool
    ways: Mapping[int, UnitPath]
    passages: Mapping[tuple[int, str], Passage]


def units_of(tables: Sequence[Table], services: Services) -> Units:
    """Find the units that the rows of tables belong to.

    Raises
    ------
    NotAnswerable
        When they belong to several roots, or rows of a table to several units.
    UndeclaredRelation
        When rows may belong to nobody and the owner has not said what that means.
    """
    declared = {t.oid: relation_of(t, services) for t in tables}
    private = [t for t in tables if declared[t.oid].private]
    roots = {r for t in private for r in declared[t.oid].roots}
    by_rows = [t for t in private if not declared[t.oid].units]
    if len(roots) != 1 or (by_rows and len(private) > 1):
        raise _several(private, declared, services)
    ways = {}
    if not by_rows:
        for table in private:
            ways[table.oid] = _way(table, declared[table.oid], services)
    by_oid = {t.oid: t for t in tables}
    passages = {}
    for table in private:
        for key in table.foreign_keys:
            parent = by_oid.get(key.parent)
            if parent is not None:
                passages[table.oid, key.name] = _passage(table, key, parent, declared, ways)
    return Units(roots.pop(), bool(by_rows), ways, passages)


def _several(
    private: Sequence[Table], declared: Mapping[int, Relation], services: Services
) -> NotAnswerable:
    """Say which relations belong to what, and what an owner can do."""
    names = _roots(sorted({r for t in private for r in declared[t.oid].roots}), services)
    parts = []
    for table in private:
        relation = declared[table.oid]
        if relation.units:
            of = " and ".join(names.get(r, "another relation") for r in relation.roots)
            parts.append(f"{table.shown} belongs to the privacy units of {of}")
        else:
            parts.append(f"{table.shown} is protected row by row")
    return NotAnswerable(
        "the relations do not belong to the same privacy units",
        detail=f"{'; '.join(parts)}. A copy is over the units of one relation, or over one"
        " relation that is protected row by row with public ones.",
        hint="Let the owner declare one privacy unit, dp.protect(relation, privacy_unit =>"
        " 'column'), that the others reach by foreign keys or by dp.link(child, parent, columns)"
        " over a UNIQUE column, after dp.unprotect of each of them; or declare relations public"
        " that tell nothing of anybody; or copy them in several calls.",
    )


def _roots(roots: Sequence[int], services: Services) -> dict[int, str]:
    """Name the relations and columns that units are of."""
    rows = services.database.execute(
        "select r.id, format('%I.%I', r.schema_name, r.relation_name)"
        " || case when r.unit_column is not null then format(' (%I)', r.unit_column) else '' end"
        " as name"
        " from dp.root as r where r.id = any ($1)",
        (("int4[]", list(roots)),),
    )
    return {int(str(root)): str(name) for root, name in rows}


def _way(table: Table, relation: Relation, services: Services) -> UnitPath:
    """Return the one way to the unit of a row."""
    ways = list(dict.fromkeys(_nearest(path, relation, services) for path in relation.units))
    if len(ways) > 1:
        shown = "; ".join(_shown(path) for path in ways)
        raise NotAnswerable(
            f"a row of relation {table.shown} can belong to several privacy units",
            detail=f"There are {len(ways)} ways to them: {shown}.",
            hint="Let the owner say of all keys but one that they lead to no unit: dp.link(child,"
            " parent, columns, follow => false); or leave the relation out of the list.",
        )
    path = ways[0]
    if path.loose and not path.excluded:
        raise UndeclaredRelation(
            f"rows of {table.shown} may belong to no privacy unit",
            detail=f"On the way to it: {'; '.join(path.loose)}.",
            hint="Let the owner mend that, or have such rows never counted:"
            " dp.link(child, parent, columns, nulls => 'excluded'); problem in dp.relations has the"
            " statements.",
        )
    return path


def _nearest(path: UnitPath, relation: Relation, services: Services) -> UnitPath:
    """Name the unit by the column of the nearest row that the keys on the way equate it with.

    A way over parents that all rows have, by columns of equal types (`dpsql.query.units`).
    """
    if path.loose:
        return path
    along = [relation]
    for hop in path.hops:
        parent = services.catalog.relation(hop.schema, hop.name)
        if parent is None:
            return path
        along.append(parent)
    hops, column = list(path.hops), path.column
    while hops and column in hops[-1].parent_columns:
        mine = hops[-1].columns[hops[-1].parent_columns.index(column)]
        if _type(along[len(hops) - 1], mine) != _type(along[len(hops)], column):
            break
        hops.pop()
        column = mine
    return replace(path, hops=tuple(hops), column=column)


def _type(relation: Relation, column: str) -> str:
    return next(c.type_name for c in relation.columns if c.name == column)


def _shown(path: UnitPath) -> str:
    """Write a way: the columns that it goes by."""
    hops = [f"{', '.join(h.columns)} to {h.schema}.{h.name}" for h in path.hops]
    return " and ".join(hops) or path.column


def _passage(
    table: Table,
    key: ForeignKey,
    parent: Table,
    declared: Mapping[int, Relation],
    ways: Mapping[int, UnitPath],
) -> Passage:
    """Tell whether a child's unit is found by way of this parent."""
    if not declared[parent.oid].private:
        return Passage.PUBLIC
    if parent.oid == table.oid or table.oid not in ways:
        return Passage.ACROSS
    mine = dict(zip(key.parent_columns, key.columns, strict=True))
    start, rest = _start(ways[parent.oid])
    if {c for c, _ in start} <= set(mine):
        # equal columns of parent and child name the unit, or lead on to it
        translated = frozenset((mine[c], there) for c, there in start)
        if (translated, rest) == _start(ways[table.oid]):
            return Passage.THROUGH
    hops = ways[table.oid].hops
    if hops and (hops[0].schema, hops[0].name) == (parent.schema, parent.name):
        own = set(zip(hops[0].columns, hops[0].parent_columns, strict=True))
        if own == set(zip(key.columns, key.parent_columns, strict=True)):
            return Passage.THROUGH
    return Passage.ACROSS


def _start(path: UnitPath) -> _Start:
    """Write where a way begins, and the rest of it."""
    if not path.hops:
        return frozenset({(path.column, "")}), ()
    first, rest = path.hops[0], path.hops[1:]
    pairs = frozenset(zip(first.columns, first.parent_columns, strict=True))
    return pairs, (first.schema, first.name, rest, path.column)
