"""Groups of public relations: those that the public part of a query has results in.

A result of the query assigns a row to every occurrence, so it restricts to the occurrences
of public relations, where it satisfies whatever the query says about those alone: their
filters, the conditions that join them to each other, and equalities that reach from one to
the other over a private relation.  Hence the groups with a non-zero count, seen through
the keys that are columns of public relations or equal to one in every result, are among
the groups of the *public part*: the query over the public occurrences with these
conditions.  A group outside it has count 0 in every instance with these public relations,
so leaving it out loses nothing.

The public part reads no protected row.  It is a function of the query's text, the schema
and the contents of public relations, which are facts that may leave the database (PRIVACY.md
section 2 (c)); neighbours have the same public relations, hence the same reported groups
(PRIVACY.md sections 1 and 6, "a declared or public domain is reported in full").  What a
private relation adds to a condition (its filters, conditions that span it) is left out,
which can only make the public part larger.

Occurrences that no condition connects are independent: their groups are combined by the
reader (:mod:`dpsql.engine.groups`), and one without a group key says nothing about groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpsql.model import GroupDomain
from dpsql.query.canonical import describe
from dpsql.query.emit import emit, has_identity_equality
from dpsql.query.graph import AttributeClass, Graph, bare, not_null
from dpsql.query.ir import TRUE, Expr, map_columns
from dpsql.query.types import INTEGERS, modifier

_TEXTS = frozenset(("text", "character varying"))


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A group key that equals ``expression`` over a public ``occurrence`` in every result."""

    position: int
    occurrence: int
    expression: Expr


def joined_to(graph: Graph, position: int, key: Expr) -> PublicKey | None:
    """Find a public relation that a private group key is joined to on equality."""
    (occurrence,) = key.occurrences()
    found = graph.class_of(occurrence, bare(key))
    for other, member in found.members if found else ():
        if not graph.relations[other].private and _same_text(member, key):
            return PublicKey(position, other, member)
    return None


def _same_text(one: Expr, other: Expr) -> bool:
    """Tell whether equal values of two expressions are written alike as group keys."""
    if one.type == other.type == "numeric":  # 1.00 of numeric(3,2), 1 of numeric
        return _scale(one) == _scale(other)
    types = {one.type, other.type}
    return len(types) == 1 or types <= set(INTEGERS) or types <= _TEXTS


def _scale(e: Expr) -> int | None:
    """Return the digits that a numeric key is written with, ``None`` if they are trimmed."""
    source = bare(e)
    if not has_identity_equality(e) or source.type in INTEGERS:
        return None  # an integer has nothing to trim
    return modifier(str(source.data[3]))[1]  # type: ignore[index]


def public_domains(
    graph: Graph, keys: Sequence[PublicKey], declared: Iterable[Expr]
) -> list[GroupDomain]:
    """List the groups of the public part, one domain for each connected part with a key.

    Parameters
    ----------
    graph : Graph
        The settled graph of the whole query.
    keys : sequence of PublicKey
        The keys that public relations tell.
    declared : iterable of Expr
        Conditions that declared domains add to private columns; where such a column is
        joined to a public one they hold for that as well.
    """
    implied = [c for condition in declared for c in _transferred(graph, condition)]
    domains = []
    for part in _parts(graph):
        mine = sorted((k for k in keys if k.occurrence in part), key=lambda k: k.position)
        if mine:
            emitted = emit(_public_part(graph, part, mine, implied))
            positions = tuple(k.position for k in mine)
            domains.append(GroupDomain(positions, describe(emitted), query=emitted.query))
    return domains


def _parts(graph: Graph) -> list[set[int]]:
    """Group the public occurrences by the conditions between them."""
    public = {o for o in graph.alive if not graph.relations[o].private}
    links = [c.occurrences & public for c in graph.classes]
    links += [set(e.occurrences()) for e in graph.spanning if e.occurrences() <= public]
    parts = [{o} for o in sorted(public)]
    for link in links:
        touched = [p for p in parts if p & link]
        if len(touched) > 1:
            parts = [p for p in parts if not p & link] + [set().union(*touched)]
    return parts


def _public_part(
    graph: Graph, part: set[int], keys: Sequence[PublicKey], implied: Iterable[Expr]
) -> Graph:
    """Write the query over the public occurrences of one part."""
    public = Graph(graph.relations, [k.expression for k in keys], sorted(part))
    public.contradiction = graph.contradiction
    public.spanning = [e for e in graph.spanning if e.occurrences() <= part]
    filters = {o: list(graph.filters.get(o, ())) for o in part}
    for condition in implied:
        if condition.occurrences() <= part:
            filters[min(condition.occurrences())].append(condition)
    for c in graph.classes:
        members = [(o, e) for o, e in c.members if o in part]
        if len({o for o, _ in members}) > 1:
            public.classes.append(AttributeClass(members, c.type))
        else:  # joined to a private relation only: NULL joins nothing
            for occurrence, member in members:
                filters[occurrence].append(not_null(member))
    public.filters = {o: [f for f in dict.fromkeys(fs) if f != TRUE] for o, fs in filters.items()}
    return public


def _transferred(graph: Graph, condition: Expr) -> list[Expr]:
    """Say of joined public columns what a condition says of one private column."""
    columns = {e for e in condition.walk() if e.kind == "col"}
    if len(columns) != 1:
        return []
    (column,) = columns
    (occurrence,) = column.occurrences()
    found = graph.class_of(occurrence, column)
    if found is None or not has_identity_equality(column):
        return []
    return [
        map_columns(condition, lambda _, member=member: member)  # type: ignore[misc]
        for other, member in found.members
        if not graph.relations[other].private and member.type == column.type
    ]
