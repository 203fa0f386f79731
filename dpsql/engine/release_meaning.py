"""What the columns are that a release reads, so that a renamed one is not taken for another.

Names of columns and labels of enums can change places after a release; questions are compared with
it by name.  Whose the rows are counts too: units are cut off, and rows without one can be left
out, so that by other units it is another count.  Facts of the catalogue, which are public
(PRIVACY.md section 2 (c)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.ports import Database
    from dpsql.query.asked import Reads

_MEANING = """
select md5(coalesce(string_agg(x.fact, ',' order by x.fact), '')) as meaning from (
  select format('%s %s %I %s %s %s', a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod,
                a.attcollation) as fact
    from pg_attribute as a
   where a.attrelid = any ($1) and a.attname::text = any ($2) and a.attnum > 0
  union all
  select format('%s %s %L %s', e.enumtypid, e.oid, e.enumlabel, e.enumsortorder)
    from pg_enum as e
   where e.enumtypid in (select a.atttypid from pg_attribute as a
                          where a.attrelid = any ($1) and a.attname::text = any ($2))
  union all
  select format('%s %s %I %s %s', r.oid, u.root, u.unit_column, u.excluded,
                (select jsonb_agg(h.hop - array['schema', 'name', 'loose'] order by h.n)
                   from jsonb_array_elements(u.hops) with ordinality as h(hop, n)))
    from unnest($1) as r(oid), dp.unit_paths(r.oid) as u) as x
"""


def meaning(reads: Reads, database: Database) -> str:
    """Name the columns that are read, and the ways from rows to units, in one text."""
    relations, names = _read(reads)
    arrays = [("oid[]", list(relations)), ("text[]", list(names))]
    return str(database.execute(_MEANING, arrays)[0][0])


def meaning_known(reads: Reads, services: Services) -> str:
    """Return `meaning`, kept for a version of the catalogue (``sql/hook/version.c``)."""
    return services.facts.once(
        ("meaning", *_read(reads)), lambda: meaning(reads, services.database)
    )


def _read(reads: Reads) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the relations and the names of columns that are read."""
    expressions = (*reads.keys, *reads.conditions, *(c for own in reads.own for c in own))
    names = {name for e in expressions for _, name in e.columns()}
    return tuple(sorted(set(reads.relations))), tuple(sorted(names))
