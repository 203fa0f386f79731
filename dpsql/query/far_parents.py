"""Parents on other servers: what all rows of one key agree on (docs/shards.md, "Links").

Nobody enforces a key over several servers, so a row could have parents of several units.  Whoever
owns such parents could multiply the rows of others.  Read in the place of the parent is, of each
key, what *all* its rows without NULL say, and nothing where two of them disagree: a function of the
key by construction.  A row that reaches two units has no parent then, and is never counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.errors import UndeclaredRelation
from dpsql.relation import Relation, quote_identifier


def agreed(parent: Relation, key: Sequence[str], onward: Sequence[str]) -> Relation:
    """Return what is read in the place of a parent: one row of each key whose rows agree.

    Parameters
    ----------
    parent : Relation
        With parts on other servers.
    key : sequence of str
        The columns that rows refer to.
    onward : sequence of str
        Those that name the unit, or lead on to it.

    Returns
    -------
    Relation
        With these columns, never NULL, and ``key`` as its key.
    """
    found = {column.name: column for column in parent.columns if not column.withheld}
    names = tuple(dict.fromkeys((*key, *onward)))
    gone = [name for name in names if name not in found]
    if gone:
        raise UndeclaredRelation(
            f"relation {parent.shown} has no column {gone[0]} any more",
            hint="Let the owner protect the relation again.",
        )
    return replace(
        parent,
        columns=tuple(replace(found[name], not_null=True) for name in names),
        keys=(tuple(key),),
        foreign_keys=(),
        domains=(),
        parts=(),
        cut_by=(),
        layout="",
        source=_source(parent, names, len(set(key))),
    )


def _source(parent: Relation, names: Sequence[str], keys: int) -> str:
    """Write the values of each key; of each part its groups are sent."""
    quoted = [quote_identifier(name) for name in names]
    all_, own = ", ".join(quoted), ", ".join(quoted[:keys])
    filled = " AND ".join(f"{name} IS NOT NULL" for name in quoted)
    parts = " UNION ALL ".join(
        f"SELECT {all_} FROM {part.sql} WHERE {filled} GROUP BY {all_}" for part in parent.parts
    )
    values = f"SELECT {all_} FROM ({parts}) AS v GROUP BY {all_}"
    if len(quoted) == keys:
        return f"({values})"
    # of one value any type has the first, but not all have a smallest one
    only = ", ".join(f"(pg_catalog.array_agg({name}))[1] AS {name}" for name in quoted[keys:])
    return f"(SELECT {own}, {only} FROM ({values}) AS w GROUP BY {own} HAVING count(*) = 1)"
