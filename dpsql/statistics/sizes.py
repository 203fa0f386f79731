"""Size facts of the catalogue: they choose between plans with identical results, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.query.decomposition import Sizes

_FILTER_SELECTIVITY = 0.4
#: Rows that a page of a table nobody analysed is taken to hold.
_ROWS_PER_PAGE = 60.0
#: Rows of a foreign table that nobody analysed, and of what is not in the catalogue.
_UNKNOWN_ROWS = 100_000.0

# Rows, and pages where they are known, of the parts that hold them: what the server counted last,
# for as many pages as there are now.  A foreign table's pages are what its last ANALYZE guessed.
_FACTS = f"""
SELECT c.oid::bigint AS oid, t.tuples, t.blocks,
       s.attname::text AS name, s.n_distinct::float8 AS number
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 CROSS JOIN LATERAL (
       SELECT pg_catalog.sum(CASE
                  WHEN p.relkind = 'f' AND p.reltuples < 0 THEN {_UNKNOWN_ROWS}
                  WHEN p.relkind = 'f' THEN p.reltuples
                  WHEN b.blocks > 0 AND p.relpages > 0 AND p.reltuples >= 0
                      THEN p.reltuples / p.relpages * b.blocks
                  WHEN p.reltuples > 0 THEN p.reltuples
                  ELSE b.blocks * {_ROWS_PER_PAGE} END)::float8 AS tuples,
              pg_catalog.sum(b.blocks)::bigint AS blocks
         FROM pg_catalog.pg_class p
        CROSS JOIN LATERAL (
              SELECT CASE WHEN p.relkind IN ('r', 'm') THEN pg_catalog.pg_relation_size(p.oid)
                       / pg_catalog.current_setting('block_size')::bigint ELSE 0 END AS blocks
              OFFSET 0) AS b
        WHERE p.oid = ANY (CASE WHEN c.relkind <> 'p' THEN ARRAY[c.oid] ELSE ARRAY(
              SELECT l.relid FROM pg_catalog.pg_partition_tree(c.oid) AS l WHERE l.isleaf) END)
       ) AS t
  LEFT JOIN pg_catalog.pg_stats s
         ON s.schemaname = n.nspname AND s.tablename = c.relname
        AND s.attname = ANY ($1) AND s.inherited = (c.relkind = 'p')
 WHERE c.oid = ANY ($2::oid[])
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """Estimated rows, pages (0 when unknown) and distinct values by column, per relation OID.

    Those of a partitioned table are the sums over its parts.
    """

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
            whole = max(1.0, self.rows.get(oid, _UNKNOWN_ROWS))
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
    oids = sorted({o.relation.oid for o in query.occurrences})
    names = sorted({u.column for o in query.occurrences for u in o.uses if u.column is not None})
    rows: dict[int, float] = {}
    pages: dict[int, int] = {}
    distinct: dict[tuple[int, str], float] = {}
    parameters = (("text[]", names), ("bigint[]", oids))
    for oid, tuples, blocks, name, number in database.execute(_FACTS, parameters):
        key = int(str(oid))
        if tuples is not None:
            rows[key], pages[key] = float(str(tuples)), int(str(blocks))
        if name is not None and number is not None:
            distinct[key, str(name)] = float(str(number))
    return Facts(rows, pages, distinct)
