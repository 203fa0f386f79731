"""Whose the rows of a copy's tables are: which ledgers, and what one neighbour takes with it.

A copy is over the privacy units of protected relations, or over the rows of one protected
relation with public ones around it (PRIVACY.md sections 1 and 8).  A unit goes *through* a foreign
key where the child's rows find it by way of the parent's row: then it takes parents with all their
children; by any other key it takes single links from parents that stay.

Where rows of a table belong to several units, of one root or of several, they are cut off by one
way to them, and constraints bound the rows that a unit has by any other: cutting off by two is not
stable (section 8, `dpsql.engine.synthesis_changes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from dpsql.engine.synthesis_bounds import Bounds
from dpsql.engine.synthesis_changes import Way
from dpsql.engine.synthesis_mending import unbounded, undivided
from dpsql.engine.synthesis_schema import relation_of
from dpsql.errors import UndeclaredRelation
from dpsql.relation import Hop, Relation, UnitPath
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
    roots : tuple of int
        The ledger identities that pay, each in full.
    by_rows : bool
        Whether single rows of one table are protected, else privacy units.
    ways : mapping
        From protected tables by OID to how a row finds its units: what is cut off by comes first.
        Empty where ``by_rows``.
    passages : mapping
        From (OID of the child, name of the foreign key): what units of the first way are to it.
    degrees : mapping
        From the same to how many children a parent can have, where constraints bound it.
    up : mapping
        From (OID, name) of foreign keys of tables to themselves to the ways of joined rows: of the
        row itself, then of the row that it refers to.
    read : tuple of int
        What bounds hang on, by OID.
    token : str
        Its fingerprint.
    """

    roots: tuple[int, ...]
    by_rows: bool
    ways: Mapping[int, tuple[Way, ...]]
    passages: Mapping[tuple[int, str], Passage]
    degrees: Mapping[tuple[int, str], int] = field(default_factory=dict)
    up: Mapping[tuple[int, str], tuple[Way, ...]] = field(default_factory=dict)
    read: tuple[int, ...] = ()
    token: str = ""


def units_of(tables: Sequence[Table], services: Services) -> Units:
    """Find the units that the rows of tables belong to.

    Raises
    ------
    NotAnswerable
        When single rows of one of several tables are protected; or rows of a table belong to
        several units and constraints bound the rows of none, or not of enough of them.
    UndeclaredRelation
        When rows may belong to nobody and the owner has not said what that means.
    """
    declared = {t.oid: relation_of(t, services) for t in tables}
    private = [t for t in tables if declared[t.oid].private]
    by_rows = [t for t in private if not declared[t.oid].units]
    roots = sorted({r for t in private for r in declared[t.oid].roots})
    if not private or (by_rows and len(private) > 1):
        raise undivided(private, declared, services)
    paths = {}
    if not by_rows:
        paths = {t.oid: _paths(t, declared[t.oid], services) for t in private}
    bounds = _bounds(private, paths, services)
    ways = {
        t.oid: _ordered(t, [_way(t, path, private, paths, bounds) for path in paths[t.oid]], bounds)
        for t in private
        if t.oid in paths
    }
    by_oid = {t.oid: t for t in tables}
    passages, degrees = {}, {}
    for table in private:
        for key in table.foreign_keys:
            parent = by_oid.get(key.parent)
            if parent is not None:
                passage = Passage.ACROSS
                if not declared[parent.oid].private:
                    passage = Passage.PUBLIC
                elif table.oid in ways and key.name in ways[table.oid][0].through:
                    passage = Passage.THROUGH
                passages[table.oid, key.name] = passage
                most = bounds.rows(table.schema, table.name, key.columns)
                if most is not None:
                    degrees[table.oid, key.name] = most
    up = _up(private, ways, declared, bounds, services)
    return Units(
        tuple(roots), bool(by_rows), ways, passages, degrees, up, bounds.read, bounds.token
    )


#: From ways as they are to the nearest names of their units to ways as they are declared.
_Paths = dict[UnitPath, tuple[UnitPath, ...]]


def _paths(table: Table, relation: Relation, services: Services) -> _Paths:
    """Return the ways to the units of a row, each with those declared ones that are the same."""
    found: dict[UnitPath, tuple[UnitPath, ...]] = {}
    for path in relation.units:
        nearest = _nearest(path, relation, services)
        found[nearest] = (*found.get(nearest, ()), path)
        if path.loose and not path.excluded:
            raise UndeclaredRelation(
                f"rows of {table.shown} may belong to no privacy unit",
                detail=f"On the way to it: {'; '.join(path.loose)}.",
                hint="Let the owner mend that, or have such rows never counted:"
                " dp.link(child, parent, columns, nulls => 'excluded'); problem in dp.relations has"
                " the statements.",
            )
    return found


def _bounds(private: Sequence[Table], paths: Mapping[int, _Paths], services: Services) -> Bounds:
    """Read what bounds the rows of units: of the tables, and of what lies on the ways."""
    names = {(t.schema, t.name) for t in private}
    for found in paths.values():
        names |= {(hop.schema, hop.name) for path in found for hop in path.hops}
    return Bounds(sorted(names), services)


def _way(
    table: Table,
    path: UnitPath,
    tables: Sequence[Table],
    paths: Mapping[int, _Paths],
    bounds: Bounds,
) -> Way:
    """Tell how many rows a unit can have by a way, and which parents it takes with them."""
    by_oid = {t.oid: t for t in tables}
    through: dict[str, int | None] = {}
    for key in table.foreign_keys:
        parent = by_oid.get(key.parent)
        for there, others in paths.get(key.parent, {}).items():
            if parent is None or parent.oid == table.oid:
                continue
            if any(_same(key, parent, path, p) for p in (there, *others)):
                through[key.name] = bounds.along(parent.schema, parent.name, there)
    declared = paths[table.oid][path]
    return Way(path, bounds.along(table.schema, table.name, path), through, declared)


def _up(
    private: Sequence[Table],
    ways: Mapping[int, tuple[Way, ...]],
    declared: Mapping[int, Relation],
    bounds: Bounds,
    services: Services,
) -> dict[tuple[int, str], tuple[Way, ...]]:
    """Find the units of rows that are joined to rows of their own table."""
    found = {}
    for table in private:
        for key in table.foreign_keys:
            if key.parent != table.oid or table.oid not in ways:
                continue
            hop = Hop(key.columns, table.schema, table.name, key.parent_columns)
            further = []
            for way in ways[table.oid]:
                raw = [replace(path, hops=(hop, *path.hops)) for path in way.declared]
                path = _nearest(raw[0], declared[table.oid], services)
                most = bounds.along(table.schema, table.name, path)
                further.append(Way(path, most, {}, tuple(raw)))
            found[table.oid, key.name] = (*ways[table.oid], *further)
    return found


def _ordered(table: Table, ways: Sequence[Way], bounds: Bounds) -> tuple[Way, ...]:
    """Put first what is cut off by: the one way that nothing bounds, or the least bounded."""
    if sum(way.most is None for way in ways) > 1:
        raise unbounded(table, ways, bounds)
    first = max(ways, key=lambda way: (way.most is None, way.most or 0))
    return (first, *(way for way in ways if way is not first))


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


def _same(key: ForeignKey, parent: Table, mine: UnitPath, there: UnitPath) -> bool:
    """Tell whether a child finds a unit by way of this parent, which finds it as given."""
    columns = dict(zip(key.parent_columns, key.columns, strict=True))
    start, rest = _start(there)
    if {c for c, _ in start} <= set(columns):
        # equal columns of parent and child name the unit, or lead on to it
        translated = frozenset((columns[c], further) for c, further in start)
        if (translated, rest) == _start(mine):
            return True
    if not mine.hops or (mine.hops[0].schema, mine.hops[0].name) != (parent.schema, parent.name):
        return False
    own = set(zip(mine.hops[0].columns, mine.hops[0].parent_columns, strict=True))
    onward = replace(mine, hops=mine.hops[1:])
    return own == set(zip(key.columns, key.parent_columns, strict=True)) and _start(
        onward
    ) == _start(there)


def _start(path: UnitPath) -> _Start:
    """Write where a way begins, and the rest of it."""
    if not path.hops:
        return frozenset({(path.column, "")}), ()
    first, rest = path.hops[0], path.hops[1:]
    pairs = frozenset(zip(first.columns, first.parent_columns, strict=True))
    return pairs, (first.schema, first.name, rest, path.column)
