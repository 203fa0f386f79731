"""What a sketch of a query is made of, and where it is hopeless: public facts only."""

from __future__ import annotations

import json
from dataclasses import dataclass

from dpsql.core.sketching import MAX_OCCURRENCES, families, joining, summed
from dpsql.errors import NotAnswerable
from dpsql.model import AttributeUse, JoinQuery
from dpsql.query.ir import tree
from dpsql.query.places import is_cut
from dpsql.query.source_sql import typed
from dpsql.relation import Relation
from dpsql.sqltree import Tree, column, sql

#: More values than a sketch usually has estimators: a norm may be 300 times the largest frequency.
HUGE_DOMAIN = 100_000

# Types whose values hardly ever repeat, whatever the data.
_HARDLY_REPEAT = frozenset({"uuid", "timestamp without time zone", "timestamp with time zone"})

#: Norms are kept for every set of columns that is held fixed.
MAX_COLUMNS = 6

#: Types of which equal values have one text, under the settings that every answering function pins.
_ONE_TEXT = frozenset(
    {
        "smallint",
        "integer",
        "bigint",
        "oid",
        "boolean",
        "date",
        "uuid",
        "name",
        "text",
        "character varying",
        "character",  # without its blanks at the end, which do not count
        "bpchar",
        "timestamp without time zone",
    }
)


@dataclass(frozen=True, slots=True)
class Part:
    """One occurrence's share of a sketch: its relation's join columns, by name.

    ``attributes[k]`` is joined on ``columns[k]``, as the type ``types[k]``; ``values`` are over
    ``alias``.
    """

    relation: Relation
    alias: str
    attributes: tuple[int, ...]
    columns: tuple[str, ...]
    types: tuple[str, ...]
    values: tuple[Tree, ...]


def parts(query: JoinQuery) -> tuple[Part, ...]:
    """Return the part of each occurrence.

    Raises
    ------
    NotAnswerable
        When a join column has no sketch; the message names it.
    """
    shared = joining(query.shape())
    found = []
    for occurrence, attributes in zip(query.occurrences, shared, strict=True):
        if is_cut(occurrence):
            raise NotAnswerable(
                f"relation {occurrence.relation.shown} cannot be sketched",
                detail="It has rows on other servers, where changes are not counted.",
                hint="Without a sketch, SET dp.method = sketch counts what it needs.",
            )
        uses: dict[int, AttributeUse] = {}
        for use in occurrence.uses:
            if use.attribute in attributes:
                uses.setdefault(use.attribute, use)
        for use in uses.values():
            if use.column is None:
                raise NotAnswerable(
                    f"a join of relation {occurrence.relation.shown} cannot be sketched",
                    detail="It compares an expression, not a column.",
                    hint="Use another method, or join on columns.",
                )
        if len(uses) > MAX_COLUMNS:
            raise NotAnswerable(
                f"relation {occurrence.relation.shown} cannot be sketched",
                detail=f"It is joined on {len(uses)} columns; at most {MAX_COLUMNS} are possible.",
                hint="Use another method.",
            )
        ordered = sorted(uses.values(), key=lambda use: (use.column or "", use.attribute))
        found.append(
            Part(
                relation=occurrence.relation,
                alias=occurrence.alias,
                attributes=tuple(use.attribute for use in ordered),
                columns=tuple(use.column or "" for use in ordered),
                types=tuple(query.attributes[use.attribute].type_name for use in ordered),
                values=tuple(
                    tree(typed(use, query.attributes[use.attribute], occurrence)) for use in ordered
                ),
            )
        )
    return tuple(found)


def text_sql(part: Part, place: int) -> Tree:
    """Write the text of the key ``k<place>`` of a row ``g``: the same for equal values."""
    value, family = column("g", f"k{place}"), _family(part.types[place])
    found: Tree
    if family in _ONE_TEXT:
        found = sql(":value_::pg_catalog.text", value_=value)
    elif family == "numeric":
        found = sql("pg_catalog.trim_scale(:value_)::pg_catalog.text", value_=value)
    elif family == "timestamp with time zone":
        found = sql("(:value_ AT TIME ZONE 'UTC')::pg_catalog.text", value_=value)
    else:
        raise NotAnswerable(
            f"column {part.columns[place]} of relation {part.relation.shown} cannot be sketched",
            detail=f"Equal values of type {part.types[place]} may have different texts.",
            hint="Use another method.",
        )
    return found


def _family(type_name: str) -> str:
    """Return the type's name without its modifier: ``character(3)`` is ``character``."""
    head, bracket, tail = type_name.partition("(")
    return head.rstrip() + tail.partition(")")[2] if bracket else head


def identity(query: JoinQuery) -> str:
    """Name what is sketched: relations, join columns, their types and which of them are equal.

    Filters and groups do not matter: sketches are of whole relations.
    """
    numbers: dict[int, int] = {}
    described = [
        [
            part.relation.oid,
            [
                [numbers.setdefault(a, len(numbers)), column, type_name]
                for a, column, type_name in zip(
                    part.attributes, part.columns, part.types, strict=True
                )
            ],
        ]
        for part in parts(query)
    ]
    return json.dumps(described, separators=(",", ":"))


def hopeless(query: JoinQuery, estimator: str = "exact_norm") -> str | None:
    """Say why sketches are of no use for a query, from public facts; ``None`` if they may be.

    The norm over a column is at least the root of the number of rows where its values hardly
    repeat, and elastic sensitivity has a factor near 1 there.  Keys, what refers to them, declared
    domains and types tell; whatever was counted does not.
    """
    shape = query.shape()
    single = (k for o in query.occurrences for k in query.identifying_keys(o) if len(k) == 1)
    referred = frozenset[int]().union(*single)
    for occurrence, attributes in zip(query.occurrences, summed(shape, estimator), strict=True):
        keys = query.identifying_keys(occurrence)
        foreign = {f.columns for f in occurrence.relation.foreign_keys if len(f.columns) == 1}
        for use in occurrence.uses:
            if use.attribute not in attributes or use.column is None:
                continue
            place = f"column {use.column} of relation {occurrence.relation.shown}"
            if frozenset({use.attribute}) in keys:
                return (
                    f"{place} is a key: its values do not repeat, so its norm is needlessly large"
                )
            if use.attribute in referred or (use.column,) in foreign:
                return f"{place} refers to a key: its domain grows with the data"
            huge = _huge_domain(occurrence.relation, use.column)
            if huge is not None:
                return f"{place} {huge}"
    if len(query.occurrences) > MAX_OCCURRENCES:
        return f"the join has more than {MAX_OCCURRENCES} relations"
    if not families(shape):
        return "no relation is joined on a column"
    try:
        for part in parts(query):
            for key in range(len(part.columns)):
                text_sql(part, key)
    except NotAnswerable as error:
        return error.message
    return None


def _huge_domain(relation: Relation, column: str) -> str | None:
    """Say that a column may have too many values; what was declared goes before its type."""
    for domain in relation.domains:
        if domain.column == column and domain.listed:
            number = len(domain.values)
            return f"has a declared domain of {number} values" if number > HUGE_DOMAIN else None
    for known in relation.columns:
        if known.name == column and _family(known.type_name) in _HARDLY_REPEAT:
            return f"is of type {known.type_name}, whose values hardly repeat"
    return None
