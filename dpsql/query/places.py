"""Joins of relations that are cut into parts in one way: part by part, by definition.

Two relations are *cut in one way* where their parts have the same bounds over columns of the same
types, operator classes and collations, and each pair of parts is on one server.  Parts of parts
pair to the depth to which this holds; in a pair, which is a *place*, all parts of both sides are
joined with each other.  Where such relations are joined on all these columns, the join query gets
one more join attribute: the number of the place that a row is stored in.  It changes no result of
rows that respect the bounds of their parts.  Of foreign parts nobody enforces these (PRIVACY.md
section 1), so no proof uses them: sensitivities, boundaries and groups are those of the query
*with* this attribute, which is an ordinary join query whatever is stored where
(docs/mathematics.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from math import prod

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, same_values
from dpsql.query.ir import TABLEOID, Expr, column, template
from dpsql.relation import Level, Relation

_TYPE = "integer"
#: Joins of parts that one statement may have for a join of relations.
MAX_JOINS = 256


def with_places(query: JoinQuery) -> JoinQuery:
    """Join on the number of the part, where parts can be joined one by one."""
    attributes = list(query.attributes)
    occurrences = list(query.occurrences)
    # one of several states is read once: pairs of parts would read a part for each other one
    left = [o for o in query.occurrences if o.relation.parts and not o.relation.by_steps]
    while True:
        members = _most_alike(query, left)
        if not members:
            break
        number = len(attributes)
        attributes.append(Attribute(number, _TYPE, join=True, place=True))
        for occurrence, level in members:
            relation = occurrence.relation
            if level.places != tuple(range(len(relation.parts))):
                relation = replace(relation, places=level.places)
            use = AttributeUse(number, _number(relation, occurrence.index), None)
            occurrences[occurrence.index] = replace(
                occurrence, relation=relation, uses=(*occurrence.uses, use)
            )
            left.remove(occurrence)
    if len(attributes) == len(query.attributes):
        return query
    return replace(query, occurrences=tuple(occurrences), attributes=tuple(attributes))


_Member = tuple[Occurrence, Level]


def _most_alike(query: JoinQuery, left: list[Occurrence]) -> list[_Member]:
    """Find those of most occurrences that are cut in one way, in as many places as possible."""
    alike: dict[tuple[object, ...], list[_Member]] = {}
    for occurrence in left:
        for level in _levels(occurrence.relation):
            key = _cut(query, occurrence, level)
            if key is not None:
                alike.setdefault(key, []).append((occurrence, level))
    found = [m for m in alike.values() if len(m) > 1 and _joins(m) <= MAX_JOINS]
    return max(found, key=lambda m: (len(m), len({*m[0][1].places})), default=[])


def _levels(relation: Relation) -> list[Level]:
    """List the ways in which a relation is cut: each part is a place, or several are."""
    own = Level(relation.cut_by, relation.layout, tuple(range(len(relation.parts))))
    return [own, *relation.levels] if relation.layout and relation.cut_by else [*relation.levels]


def _joins(members: Iterable[_Member]) -> int:
    counts = [Counter(level.places) for _, level in members]
    return sum(prod(count[place] for count in counts) for place in counts[0])


def together(members: Iterable[_Member]) -> list[tuple[int, dict[int, int]]]:
    """List what is joined: the place, and the part of each occurrence."""
    kept = [(o.index, level.places) for o, level in members]
    found = []
    for place in sorted({*kept[0][1]}):
        choices = [[(i, n) for n, at in enumerate(places) if at == place] for i, places in kept]
        found += [(place, dict(chosen)) for chosen in product(*choices)]
    return found


def joined_parts(query: JoinQuery, occurrences: Iterable[int]) -> list[tuple[int, dict[int, int]]]:
    """List what is joined of occurrences that share their place, or are one: as `together`."""
    members = []
    for i in sorted(occurrences):
        relation = query.occurrences[i].relation
        places = tuple(relation.place(n) for n in range(len(relation.parts)))
        members.append((query.occurrences[i], Level((), "", places)))
    return together(members)


def is_cut(occurrence: Occurrence) -> bool:
    """Tell whether rows of an occurrence are on other servers."""
    return bool(occurrence.relation.parts)


def is_far(occurrence: Occurrence) -> bool:
    """Tell whether other servers are read for an occurrence, by its parts or in its place."""
    return is_cut(occurrence) or bool(occurrence.relation.source)


def any_cut(query: JoinQuery) -> bool:
    """Tell whether rows of any occurrence are on other servers."""
    return any(is_far(occurrence) for occurrence in query.occurrences)


def place_of(query: JoinQuery, occurrence: Occurrence) -> int | None:
    """Return the attribute that numbers the part of an occurrence's rows."""
    for use in occurrence.uses:
        if query.attributes[use.attribute].place:
            return use.attribute
    return None


def shared_place(query: JoinQuery, occurrences: frozenset[int]) -> int | None:
    """Return the attribute that says of all occurrences in which part their rows are."""
    found = {place_of(query, query.occurrences[i]) for i in occurrences}
    return found.pop() if len(found) == 1 else None


def _cut(query: JoinQuery, occurrence: Occurrence, level: Level) -> tuple[object, ...] | None:
    """Return what is equal for occurrences that can be joined place by place."""
    types = {c.name: c.type_name for c in occurrence.relation.columns}
    found = []
    for name in level.cut_by:
        by = [
            use.attribute
            for use in occurrence.uses
            if use.column == name
            and query.attributes[use.attribute].join
            and same_values(types[name], query.attributes[use.attribute].type_name)
        ]
        if not by:
            return None
        found.append(by[0])
    servers: dict[int, int] = {}
    for part, place in zip(occurrence.relation.parts, level.places, strict=True):
        if servers.setdefault(place, part.server) != part.server:
            return None  # rows would be sent to be joined
    return level.layout, tuple(sorted(servers.items())), tuple(found)


def _number(relation: Relation, occurrence: int) -> Expr:
    """Return the number of a row's place; where parts are read one by one it is a constant."""
    oids = _array("oid[]", (part.oid for part in relation.parts))
    own = column(occurrence, TABLEOID, "oid", "oid", not_null=True)
    part = template(_TYPE, "pg_catalog.array_position(:a, :b)", oids, own)
    if not relation.places:
        return part
    places = _array("integer[]", (place + 1 for place in relation.places))
    return template(_TYPE, "(:a)[:b]", places, part)


def _array(type_: str, numbers: Iterable[int]) -> Expr:
    return Expr("literal", type_, data="{" + ",".join(map(str, numbers)) + "}")
