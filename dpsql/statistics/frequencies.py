"""Maximum frequencies of a relation: of every column, key and foreign key, and the row count."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.ports import Database
from dpsql.query.types import SIMPLE
from dpsql.relation import Relation, base, quote_identifier
from dpsql.sqltree import all_of, column, render, sql, table
from dpsql.statistics.stored import frequency_identity


def frequencies(
    relation: Relation, database: Database, tell: Callable[[int, int], None] = lambda *_: None
) -> dict[str, int]:
    """Count the maximum frequencies that a join of the relation may ask for.

    A set of columns that holds a trusted key has frequency 1 and is not read.  Rows with a
    NULL in a column of the set join nothing and are left out.

    Parameters
    ----------
    relation : Relation
        The relation, partitions and children included.
    database : Database
        Reads one snapshot.
    tell : callable
        Told how many sets of columns are done, of how many.

    Returns
    -------
    dict of str to int
        By ``stored.frequency_identity``.
    """
    found: dict[str, int] = {}
    sets = column_sets(relation)
    for done, columns in enumerate(sets):
        tell(done, len(sets))
        if any(set(key) <= set(columns) for key in relation.keys):
            value = 1
        else:
            value = int(str(database.execute(_sql(relation, columns))[0][0]))
        found[frequency_identity(relation.oid, [(name, "") for name in columns])] = value
        database.tick()
    return found


def column_sets(relation: Relation) -> list[tuple[str, ...]]:
    """List the sets of columns: none, single ones, keys and foreign keys; sorted names."""
    types = {c.name: base(c.type_name) for c in relation.columns}
    sets = {(), *((name,) for name in types)}
    sets |= {tuple(sorted(set(key))) for key in relation.keys}
    sets |= {tuple(sorted(set(key.columns))) for key in relation.foreign_keys}
    return sorted(s for s in sets if all(types.get(name) in SIMPLE for name in s))


def _sql(relation: Relation, columns: tuple[str, ...]) -> str:
    source = table(relation.sql)
    if not columns:
        return render(sql("SELECT pg_catalog.count(*) FROM :source", source=source))
    keys = [column("", quote_identifier(name)) for name in columns]
    statement = sql(
        "SELECT coalesce(pg_catalog.max(f.n), 0) AS most FROM (SELECT pg_catalog.count(*) AS n"
        " FROM :source WHERE :present GROUP BY :keys) AS f",
        source=source,
        present=all_of(sql(":key IS NOT NULL", key=key) for key in keys),
        keys=keys,
    )
    return render(statement)
