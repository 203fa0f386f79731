"""Joins of relations that are cut into parts in one way: part by part, by definition.

Two relations are *cut in one way* where their parts have the same bounds over columns of the same
types, operator classes and collations, and each pair of parts is on one server.  Where such
relations are joined on all these columns, the join query gets one more join attribute: the number
of the part that a row is stored in.  It changes no result of rows that respect the bounds of their
parts.  Of foreign parts nobody enforces these (PRIVACY.md section 1), so no proof uses them:
sensitivities, boundaries and groups are those of the query *with* this attribute, which is an
ordinary join query whatever is stored where (docs/mathematics.md).
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, same_values

_TYPE = "integer"


def with_places(query: JoinQuery) -> JoinQuery:
    """Join on the number of the part, where parts can be joined one by one."""
    alike: dict[tuple[object, ...], list[Occurrence]] = {}
    for occurrence in query.occurrences:
        key = _cut(query, occurrence)
        if key is not None:
            alike.setdefault(key, []).append(occurrence)
    attributes = list(query.attributes)
    uses = {o.index: list(o.uses) for o in query.occurrences}
    for members in alike.values():
        if len(members) < 2:
            continue
        number = len(attributes)
        attributes.append(Attribute(number, _TYPE, join=True, place=True))
        for occurrence in members:
            uses[occurrence.index].append(AttributeUse(number, _number(occurrence), None))
    if len(attributes) == len(query.attributes):
        return query
    occurrences = tuple(replace(o, uses=tuple(uses[o.index])) for o in query.occurrences)
    return replace(query, occurrences=occurrences, attributes=tuple(attributes))


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


def _cut(query: JoinQuery, occurrence: Occurrence) -> tuple[object, ...] | None:
    """Return what is equal for occurrences that can be joined part by part."""
    relation = occurrence.relation
    if not (relation.parts and relation.layout and relation.cut_by):
        return None
    types = {c.name: c.type_name for c in relation.columns}
    found = []
    for name in relation.cut_by:
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
    servers = tuple(part.server for part in relation.parts)
    return relation.layout, servers, tuple(found)


def _number(occurrence: Occurrence) -> str:
    """Write the number of a row's part; where parts are read one by one it is a constant."""
    oids = ",".join(str(part.oid) for part in occurrence.relation.parts)
    return f"pg_catalog.array_position('{{{oids}}}'::oid[], {occurrence.alias}.tableoid)"
