"""Counting SQL for each part of a relation, in the form that postgres_fdw sends away whole.

It sends a grouping of one foreign table, or of a join of foreign tables of one server, and then
only groups come back; of a partitioned table it would fetch every row.  What parts say is added
up here: a value that is in several parts, whatever their bounds promise, is one value.  Where the
number of the part is among the values, no value is in several; of the largest count then each part
sends one row.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.model import JoinQuery
from dpsql.query.elimination import Base, Placed
from dpsql.query.joined_sql import joined_sql
from dpsql.query.places import is_cut


def base_parts(query: JoinQuery, base: Base, number: str) -> list[str]:
    """Write a grouped occurrence part by part; nothing if all its rows are here."""
    occurrence = query.occurrences[base.occurrence]
    if not is_cut(occurrence):
        return []
    return _parts(query, base, number, len(occurrence.relation.parts))


def placed_parts(query: JoinQuery, placed: Placed, number: str) -> list[str]:
    """Write a join part by part."""
    one = query.occurrences[min(placed.occurrences)]
    return _parts(query, placed, number, len(one.relation.parts))


def _parts(query: JoinQuery, factor: Base | Placed, number: str, parts: int) -> list[str]:
    found = []
    own = [a for a in factor.output if query.attributes[a].place]
    others = [a for a in factor.output if a not in own]
    for part in range(parts):
        text = joined_sql(query, factor.occurrences, others, number, part)
        if own:
            numbers = "".join(f"{part + 1}::integer AS a{a}, " for a in own)
            text = f"SELECT {numbers}{text.removeprefix('SELECT ')}"
            if not others:
                text += " HAVING count(*) > 0"  # a value that is nowhere is no value
        found.append(text)
    return found


def over_parts(
    query: JoinQuery, factor: Base | Placed, parts: Sequence[str], sums: Sequence[str], number: str
) -> str:
    """Write the whole factor: columns ``a<i>``, ``n`` and the sums."""
    together = " UNION ALL ".join(parts)
    if any(query.attributes[a].place for a in factor.output):
        return together
    keys = ", ".join(f"u.a{a}" for a in factor.output)
    columns = [f"u.a{a} AS a{a}" for a in factor.output]
    if keys:
        columns += [f"sum(u.n)::{number} AS n", *(f"sum(u.{name}) AS {name}" for name in sums)]
    else:
        columns.append(f"coalesce(sum(u.n), 0)::{number} AS n")
        columns += [f"coalesce(sum(u.{name}), 0) AS {name}" for name in sums]
    grouped = f" GROUP BY {keys}" if keys else ""
    return f"SELECT {', '.join(columns)} FROM ({together}) AS u{grouped}"


def largest_of(parts: Sequence[str]) -> str:
    """Write for a FROM clause the rows with the largest counts, one of each part."""
    most = (f"({part} ORDER BY n DESC LIMIT 1)" for part in parts)
    return f"({' UNION ALL '.join(most)})"
