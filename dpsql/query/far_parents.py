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
from dpsql.sqltree import aliased, all_of, column, render, sql, subquery, table, union_all


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
    columns = [column("", name) for name in quoted]
    filled = all_of(sql(":v IS NOT NULL", v=v) for v in columns)
    parts = [
        sql(
            "SELECT :columns FROM :part WHERE :filled GROUP BY :columns",
            columns=columns,
            part=table(part.sql),
            filled=filled,
        )
        for part in parent.parts
    ]
    values = sql(
        "SELECT :columns FROM :parts AS v GROUP BY :columns",
        columns=columns,
        parts=union_all(parts),
    )
    if len(quoted) == keys:
        return render(subquery(values))
    # of one value any type has the first, but not all have a smallest one
    others = [
        aliased(sql("(pg_catalog.array_agg(:v))[1]", v=v), name)
        for v, name in zip(columns[keys:], quoted[keys:], strict=True)
    ]
    agreed = sql(
        "SELECT :own, :others FROM :listed AS w GROUP BY :own HAVING count(*) = 1",
        own=columns[:keys],
        others=others,
        listed=values,
    )
    return render(subquery(agreed))
