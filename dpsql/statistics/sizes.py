"""Size facts of the catalogue: they choose between plans with identical results, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.decomposition import Sizes

_FILTER_SELECTIVITY = 0.4

_FACTS = """
SELECT c.oid::bigint AS oid, greatest(c.reltuples, 0)::float8 AS tuples,
       greatest(c.relpages, 0) AS analysed,
       CASE WHEN c.relkind IN ('r', 'm') THEN pg_catalog.pg_relation_size(c.oid) ELSE 0 END
         / pg_catalog.current_setting('block_size')::bigint AS blocks,
       s.attname::text AS name, s.n_distinct::float8 AS number
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_stats s
         ON s.schemaname = n.nspname AND s.tablename = c.relname
        AND s.attname = ANY ($1) AND s.inherited = (c.relkind = 'p')
 WHERE c.oid = ANY ($2::oid[])
"""

#: Rows that a page of a table nobody analysed is taken to hold.
_ROWS_PER_PAGE = 60.0
_UNKNOWN_ROWS = 100_000.0


@dataclass(frozen=True, slots=True)
class Facts:
    """Estimated rows, pages (0 when unknown) and distinct values by column, per relation OID."""

    rows: dict[int, float]
    pages: dict[int, int]
    distinct: dict[tuple[int, str], float]

    def sizes(self, query: JoinQuery) -> Sizes:
        """Translate to occurrences and attributes."""
        rows = []
        distinct: dict[tuple[int, int], float] = {}
        for occurrence in query.occurrences:
            oid = occurrence.relation.oid
            parts = occurrence.relation.parts
            whole = self.rows.get(oid, _UNKNOWN_ROWS)
            if parts:  # of a foreign table that nobody analysed nothing is known
                sizes = [self.rows.get(part.oid, 0.0) for part in parts]
                whole = sum(sizes) if all(sizes) else max(whole, sum(sizes)) or _UNKNOWN_ROWS
            whole = max(1.0, whole)
            rows.append(max(1.0, whole * _FILTER_SELECTIVITY ** min(3, len(occurrence.filters))))
            keys = query.identifying_keys(occurrence)
            for use in occurrence.uses:
                number = self.distinct.get((oid, use.column or ""), 0.0)
                if query.attributes[use.attribute].place:
                    distinct[occurrence.index, use.attribute] = (
                        1.0  # the columns it is cut by tell it
                    )
                    continue
                if parts and not number and use.column in occurrence.relation.cut_by:
                    number = whole
                if frozenset({use.attribute}) in keys:
                    number = whole
                elif number < 0:
                    number *= -whole
                elif not number:
                    number = whole**0.75
                distinct[occurrence.index, use.attribute] = max(1.0, number)
        return Sizes(rows=tuple(rows), distinct=distinct)


def read_facts(query: JoinQuery, database: Database) -> Facts:
    """Read the facts about all relations of a query, one statement."""
    oids = {o.relation.oid for o in query.occurrences}
    oids.update(part.oid for o in query.occurrences for part in o.relation.parts)
    names = sorted({u.column for o in query.occurrences for u in o.uses if u.column is not None})
    rows: dict[int, float] = {}
    pages: dict[int, int] = {}
    distinct: dict[tuple[int, str], float] = {}
    parameters = (("text[]", names), ("bigint[]", sorted(oids)))
    for oid, tuples, analysed, blocks, name, number in database.execute(_FACTS, parameters):
        key, size = int(str(oid)), int(str(blocks))
        pages[key] = size
        counted, then = float(str(tuples)), int(str(analysed))
        if size and then:
            rows[key] = counted / then * size
        else:
            rows[key] = counted or size * _ROWS_PER_PAGE
        if name is not None and number is not None:
            distinct[key, str(name)] = float(str(number))
    return Facts(rows, pages, distinct)
