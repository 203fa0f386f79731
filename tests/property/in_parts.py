"""Random joins over tables in two parts, which lie here: what is written for parts, without shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg

from dpsql.model import JoinQuery
from dpsql.query.places import with_places
from dpsql.relation import Part, Relation
from tests.expressions import parsed


def in_parts(connection: psycopg.Connection[Any], query: JoinQuery) -> tuple[JoinQuery, JoinQuery]:
    """Cut every table in two; return the query over parts, and over what says whose part a row is."""
    for relation in {o.relation.sql: o.relation for o in query.occurrences}.values():
        connection.execute(
            f"ALTER TABLE {relation.sql} ADD place integer;"
            f" UPDATE {relation.sql} AS t SET place = 1 + (hashtext(t::text) & 1)"
        )
        columns = ", ".join(column.name for column in relation.columns)
        for part in (1, 2):
            connection.execute(
                f"CREATE TABLE {_part(relation, part).sql} AS"
                f" SELECT {columns} FROM {relation.sql} WHERE place = {part}"
            )

    def cut(relation: Relation) -> Relation:
        parts = (_part(relation, 1), _part(relation, 2))
        return replace(relation, keys=(), parts=parts, cut_by=("c0",), layout="alike")

    occurrences = tuple(replace(o, relation=cut(o.relation)) for o in query.occurrences)
    placed = with_places(replace(query, occurrences=occurrences))
    told = tuple(
        replace(
            o,
            uses=tuple(
                replace(u, expression=parsed(f"r{o.index}.place"))
                if placed.attributes[u.attribute].place
                else u
                for u in o.uses
            ),
        )
        for o in placed.occurrences
    )
    return placed, replace(placed, occurrences=told)


def _part(relation: Relation, number: int) -> Part:
    return Part(number, relation.schema, f"{relation.name} part {number}", 1)
