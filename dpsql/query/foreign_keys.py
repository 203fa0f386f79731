"""Remove joins that a foreign key proves to be without effect.

Let T be joined exactly on a key K that a foreign key F of another occurrence C
references, with nothing else said about T: no filter, no predicate, no group key, no
value, no further attribute.  F is validated, enforced, immediate and K is a trusted key
(:class:`dpsql.model.Relation`), so in every instance that satisfies the constraints each
row of C whose F is not NULL meets exactly one row of T, and one whose F is NULL meets
none; provided that the join compares F and K as the constraint does.  Hence the query equals
the one without T in which F IS NOT NULL filters C.

Instances range over those that satisfy the constraints that a proof uses (PRIVACY.md
section 1).  On all of them the two queries are the same function, so every mechanism for
the second is one for the first.  In particular no row of T influences the answer: a
neighbour that lacks a referenced row of T does not exist, one that lacks an unreferenced
row has the same answer.  T is therefore not among the roots that pay.

The same holds of parents that are joined to find the privacy unit of C
(:mod:`dpsql.query.units`) if the unit is named elsewhere: the function is then what every unit
contributes to every group.  A row of C with NULL in any column of F, which MATCH SIMPLE lets refer
to nothing, has no parent by the join, and is left out by F IS NOT NULL all the same.  A neighbour
lacks a unit with all its rows and satisfies the constraints, too.  C belongs to all units that T
belongs to by such a way, so the same roots pay.
"""

from __future__ import annotations

from dpsql.query.graph import AttributeClass, Graph, not_null, place
from dpsql.query.ir import Expr
from dpsql.query.types import INTEGERS
from dpsql.relation import ForeignKey, Relation, base


def remove_foreign_key_joins(graph: Graph) -> None:
    """Remove such occurrences, until none is left."""
    while any(_removed(graph, target) for target in graph.alive):
        pass


def remove_unit_joins(graph: Graph, stated: int) -> None:
    """Remove parents that were joined for a privacy unit which a child names as well.

    Parameters
    ----------
    graph : Graph
        With the names of the units, which are needed.
    stated : int
        The statement's own occurrences, which come first; these stay.
    """
    # those at the end of a way first: a parent between proves that they are there
    while any(_removed(graph, target) for target in reversed(graph.alive) if target >= stated):
        pass


def _removed(graph: Graph, target: int) -> bool:
    """Remove an occurrence if that changes nothing, and tell whether it does."""
    found = _redundant(graph, target)
    if found is not None:
        _remove(graph, target, found)
    return found is not None


def _plain(c: AttributeClass, occurrence: int) -> list[str]:
    """Plain columns of an occurrence in a class."""
    return [
        str(e.data[1])  # type: ignore[index]
        for e in c.of(occurrence)
        if e.kind == "col"
    ]


def _redundant(graph: Graph, target: int) -> tuple[int, ForeignKey] | None:
    """Find the occurrence and foreign key that make ``target`` redundant."""
    if graph.filters.get(target) or len(graph.alive) < 2:
        return None
    units = [] if graph.unit is None else [graph.unit]
    units += [unit for _, unit in graph.units]
    read = (*graph.spanning, *graph.keys, *graph.needed, *units)
    if any(target in e.occurrences() for e in read):
        return None
    joined: dict[str, AttributeClass] = {}
    for c in graph.classes:
        members = c.of(target)
        columns = _plain(c, target)
        if not members:
            continue
        if len(members) != 1 or len(columns) != 1 or len(c.occurrences) < 2:
            return None
        joined[columns[0]] = c
    relation = graph.relations[target]
    for source in graph.alive:
        if source == target:
            continue
        for key in graph.relations[source].foreign_keys:
            if key.target_oid != relation.oid or set(key.target_columns) != set(joined):
                continue
            if not any(set(k) == set(joined) for k in relation.keys):
                continue
            pairs = list(zip(key.columns, key.target_columns, strict=True))
            if all(
                column in _plain(joined[referenced], source)
                and compared_alike(graph.relations[source], column, relation, referenced)
                for column, referenced in pairs
            ):
                return source, key
    return None


def compared_alike(child: Relation, column: str, parent: Relation, key: str) -> bool:
    """Whether the join compares two columns as the foreign key does.

    A text refers to a ``char(n)`` whatever its blanks are, but is joined to it with them.
    """
    types = {
        base(c.type_name)
        for relation, name in ((child, column), (parent, key))
        for c in relation.columns
        if c.name == name
    }
    return len(types) == 1 or types <= set(INTEGERS) or types <= {"text", "character varying"}


def _remove(graph: Graph, target: int, found: tuple[int, ForeignKey]) -> None:
    source, key = found
    for c in graph.classes:
        for e in c.of(source):
            if any(o == target for o, _ in c.members) and _is_column(e, key.columns):
                place(graph, not_null(e))
        c.members = [(o, e) for o, e in c.members if o != target]
    graph.alive.remove(target)
    # a class of one expression says nothing that the IS NOT NULL above does not
    graph.classes = [c for c in graph.classes if len(c.members) > 1]


def _is_column(e: Expr, names: tuple[str, ...]) -> bool:
    return e.kind == "col" and e.data[1] in names  # type: ignore[index]
