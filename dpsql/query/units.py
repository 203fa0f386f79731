"""Which privacy unit a result belongs to (PRIVACY.md sections 1 and 5).

Every row of a protected relation finds its unit along a path of keys
(:class:`dpsql.model.UnitPath`).  The parents on the path that the statement does not join
already are joined here: each row has at most one, because the path ends in a trusted key of
the parent, so no result is counted twice; of parents on other servers, where nobody enforces keys,
`dpsql.query.far_parents` has what their rows agree on.  A result belongs to the units of all its
rows; it leaves the answer with any of them.

A row without a parent, or with NULL on the way, belongs to nobody.  Where a foreign key and
NOT NULL exclude that, nothing is lost by the join.  Where they do not, or where the key is compared
in another type than the parent's, such rows are left out only if the owner said so; they are never
counted without a unit.  Equal units must be one value: the columns on the way have types and
collations for which grouping, joining and foreign keys agree (``dp.unit_column_problem``).

A caller that bounds by itself what the other units of a row change (PRIVACY.md section 8) says by
which way results are counted: then their units are those of that way alone.

If all rows of a result have the same unit, because the statement equates them or because they
find it through the same row, then one attribute names it, and what a unit contributes is a
count per value of this attribute.  Otherwise several attributes name the units of a result, which
are a set: two of one protected relation that are equal in a result are one unit there.

A unit is named as near to the row as the keys on the way equate it with one of the row's own
columns: parents that are joined for this name alone are removed by :mod:`dpsql.query.foreign_keys`
where foreign keys guarantee that they are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import UndeclaredRelation, UnsupportedConstruct
from dpsql.query.far_parents import agreed
from dpsql.query.graph import Graph, not_null, place, unite
from dpsql.query.ir import Expr, column_of
from dpsql.query.types import INTEGERS
from dpsql.relation import Hop, Relation, UnitPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpsql.query.catalog import Catalog

#: Units of one result that are told apart: with its count they are what ``dp.pack`` takes.
MOST_UNITS = 7


def attribute_units(graph: Graph, catalog: Catalog, ways: Sequence[UnitPath] = ()) -> None:
    """Set ``graph.unit``, or ``graph.units``, to what names the units of a result, if there are.

    Parameters
    ----------
    graph : Graph
    catalog : Catalog
    ways : sequence of UnitPath
        From rows of the first relation: results are counted by the unit that the first leads to,
        and the caller bounds what units by the others change.  Only where a result has no other
        units.

    Raises
    ------
    UnsupportedConstruct
        When some relations are protected row by row, or groups would belong to several units.
    UndeclaredRelation
        When rows may belong to nobody and the owner has not said what that means.
    """
    private = [i for i in graph.alive if graph.relations[i].private]
    with_units = [i for i in private if graph.relations[i].units]
    if not with_units:
        return
    if len(with_units) < len(private):
        rows = sorted({graph.relations[i].shown for i in private if i not in with_units})
        raise UnsupportedConstruct(
            "relations with privacy units cannot be joined to relations that are protected by rows",
            detail=f"Protected by rows: {', '.join(rows)}.",
            hint="Their owner can give them a unit: dp.unprotect(child), then"
            " dp.link(child, parent, columns).",
        )
    found: list[tuple[int, Expr]] = []
    for occurrence in with_units:
        for path in graph.relations[occurrence].units:
            unit = _follow(graph, catalog, occurrence, path)
            if not any(path.root == root and _equal(graph, unit, e) for root, e in found):
                found.append((path.root, unit))
    if len(found) == 1:
        graph.unit = found[0][1]
        return
    if ways and ways[0] in graph.relations[0].units:
        bounded = [_follow(graph, catalog, 0, path) for path in ways]
        if all(_among(graph, unit, bounded) for _, unit in found):
            graph.unit = bounded[0]
            return
    _require_answerable(graph, found)
    graph.units = found


def _among(graph: Graph, unit: Expr, others: Iterable[Expr]) -> bool:
    return any(_equal(graph, unit, other) for other in others)


def _require_answerable(graph: Graph, found: list[tuple[int, Expr]]) -> None:
    """Refuse what is not counted where a result can belong to several units."""
    if graph.keys:
        raise UnsupportedConstruct(
            "results that can belong to several privacy units are not grouped",
            detail="One unit could change many results of others: "
            f"{', '.join(sorted({_shown(graph, unit) for _, unit in found}))} may differ.",
            hint="Leave out GROUP BY and ask for each public group apart: with FILTER (WHERE ...),"
            " where n groups share dp.epsilon and each has an n-th of it, or with WHERE, where each"
            " question costs dp.epsilon"
            f"{equation([root for root, _ in found], 'WHERE a.customer = b.customer')}.",
        )
    if len(found) > MOST_UNITS:
        raise UnsupportedConstruct(
            f"a result of this join can belong to {len(found)} privacy units",
            detail=f"At most {MOST_UNITS} can be told apart in one result.",
            hint="Join fewer relations"
            f"{equation([root for root, _ in found], 'WHERE a.customer = b.customer')}.",
        )


def equation(roots: Sequence[int], example: str) -> str:
    """Say that units can be equated, which takes two of one protected relation."""
    if len(set(roots)) == len(roots):
        return ""
    return f"; or equate the units, for example with {example}"


def require_shared_groups(graph: Graph) -> None:
    """Refuse groups that are not public and of which each is one unit: none would ever be shown."""
    unit = graph.unit
    if unit is None:
        return
    for key in graph.keys:
        if key.kind == "col" and _equal(graph, unit, key):
            raise UnsupportedConstruct(
                f"{_shown(graph, key)} names the privacy unit, and its values are not public",
                detail="Each group would hold the rows of one unit, which are never shown.",
                hint="Group by what many units have in common, or leave GROUP BY out.",
            )


def _follow(graph: Graph, catalog: Catalog, occurrence: int, path: UnitPath) -> Expr:
    """Join the parents of the path that are not there yet and return the unit's column."""
    relation = graph.relations[occurrence]
    if path.loose and not path.excluded:
        raise UndeclaredRelation(
            f"rows of {relation.shown} may belong to no privacy unit",
            detail=f"On the way to it: {'; '.join(path.loose)}.",
            hint="Let the owner mend that, or have such rows never counted:"
            " dp.link(child, parent, columns, nulls => 'excluded'); problem in dp.relations has the"
            " statements.",
        )
    way = [occurrence]
    for n, hop in enumerate(path.hops, 1):
        onward = path.hops[n].columns if n < len(path.hops) else (path.column,)
        relation = _keyed(graph.relations[occurrence], hop, catalog, onward)
        parent = _parent(graph, relation, occurrence, hop)
        occurrence = _join(graph, relation, occurrence, hop) if parent is None else parent
        if relation.source:
            _equate(graph, occurrence, hop, onward)
        way.append(occurrence)
    occurrence, name = _nearest(graph, path, way)
    # where the way is loose, a NOT NULL may not be what it says
    place(graph, not_null(_column(graph, occurrence, name, trusted=not path.loose)))
    return _column(graph, occurrence, name)  # as joins name it


def _nearest(graph: Graph, path: UnitPath, way: Sequence[int]) -> tuple[int, str]:
    """Name the unit by the column of the nearest row on the way that its keys equate it with.

    Each key of the way is joined by ``=``, so in every result the child's column has the value of
    the parent's, and neither is NULL; in one type and in collations that tell texts apart (or as
    integers) equal values are one value (PRIVACY.md section 1).  Hence results have the same units
    by either name, and a condition that one is not NULL is that the other is not.
    """
    occurrence, name = way[-1], path.column
    for child, hop in zip(reversed(way[:-1]), reversed(path.hops), strict=True):
        if name not in hop.parent_columns:
            break
        mine = hop.columns[hop.parent_columns.index(name)]
        types = {_column(graph, *c).type for c in ((child, mine), (occurrence, name))}
        if len(types) > 1 and not types <= set(INTEGERS):
            break
        occurrence, name = child, mine
    return occurrence, name


def _parent(graph: Graph, relation: Relation, child: int, hop: Hop) -> int | None:
    """Find the parent among what is joined."""
    for other in graph.alive:
        if other != child and _is(graph.relations[other], relation, relation.source):
            pairs = zip(hop.columns, hop.parent_columns, strict=True)
            if all(
                _equal(graph, _column(graph, child, mine), _column(graph, other, theirs))
                for mine, theirs in pairs
            ):
                return other
    return None


def _is(one: Relation, other: Relation, source: str) -> bool:
    return (one.schema, one.name, one.source) == (other.schema, other.name, source)


def _keyed(child: Relation, hop: Hop, catalog: Catalog, onward: Sequence[str]) -> Relation:
    """Return the parent, of which a row has at most one: else it could belong to several units."""
    parent = catalog.relation(hop.schema, hop.name)
    if parent is not None and any(set(key) <= set(hop.parent_columns) for key in parent.keys):
        return parent
    if parent is not None and parent.parts:
        return agreed(parent, hop.parent_columns, onward)
    raise UndeclaredRelation(
        f"the privacy unit of {child.shown} cannot be found",
        detail=f"The columns {', '.join(hop.parent_columns)} of {hop.schema}.{hop.name}, which"
        " lead to it, are not a primary key or a valid unique key without NULL.",
        hint="Let the owner restore the key.",
    )


def _equate(graph: Graph, parent: int, hop: Hop, onward: Sequence[str]) -> None:
    """Say of the statement's own rows of a parent that they agree with what all agree on.

    Such a row has the key, so what all rows of the key agree on is what it says itself: nothing
    but rows that say NULL is lost, which have no unit of their own.
    """
    found = graph.relations[parent]
    for other in graph.alive:
        if _is(graph.relations[other], found, "") and all(
            _equal(graph, _column(graph, other, name), _column(graph, parent, name))
            for name in hop.parent_columns
        ):
            for name in onward:
                mine, theirs = _column(graph, other, name), _column(graph, parent, name)
                if not _equal(graph, mine, theirs):
                    unite(graph, mine, theirs)


def _join(graph: Graph, relation: Relation, child: int, hop: Hop) -> int:
    """Join the parent, of which each row has at most one."""
    parent = len(graph.relations)
    graph.relations = [*graph.relations, relation]  # the list is the statement's
    graph.alive.append(parent)
    for mine, theirs in zip(hop.columns, hop.parent_columns, strict=True):
        unite(graph, _column(graph, child, mine), _column(graph, parent, theirs))
    return parent


def _column(graph: Graph, occurrence: int, name: str, *, trusted: bool = True) -> Expr:
    relation = graph.relations[occurrence]
    for found in relation.columns:
        if found.name == name and not found.withheld:
            not_null = found.not_null and trusted and relation.kind != "f"
            return column_of(occurrence, found, not_null)
    raise UndeclaredRelation(
        f"relation {graph.relations[occurrence].shown} has no column {name} any more",
        hint="Let the owner protect the relation again.",
    )


def _equal(graph: Graph, one: Expr, other: Expr) -> bool:
    """Whether two columns are equal in every result."""
    if _place(one) == _place(other):
        return True
    for found in graph.classes:
        members = [_place(e) for _, e in found.members if e.kind == "col"]
        if _place(one) in members and _place(other) in members:
            return True
    return False


def _place(e: Expr) -> tuple[object, object]:
    """Return occurrence and name of a column, whatever is known of its NULLs."""
    occurrence, name = e.data[:2]  # type: ignore[index]
    return occurrence, name


def _shown(graph: Graph, unit: Expr) -> str:
    occurrence, name = unit.data[:2]  # type: ignore[index]
    return f"{graph.relations[occurrence].shown}.{name}"
