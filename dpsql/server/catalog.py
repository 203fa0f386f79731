"""The catalogue through SPI: declared relations, trusted constraints, functions, analysis.

Everything is read in the snapshot of the calling statement, so a constraint that a plan
relies on holds for the rows that the plan counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsql.errors import SyntaxInvalid, UndeclaredRelation
from dpsql.model import Column, Domain, ForeignKey, Relation

if TYPE_CHECKING:
    from dpsql.server.spi import SpiDatabase

_RELATION = """
select c.oid::int8 as oid, n.nspname, c.relname, c.relkind, p.kind, p.root,
  c.relrowsecurity or c.relforcerowsecurity as rls,
  (select json_agg(json_build_array(a.attname, a.atttypid::int8,
            format_type(a.atttypid, a.atttypmod), a.attnotnull) order by a.attnum)
     from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
  (select json_agg((select json_agg(a.attname order by k.n)
            from unnest(i.indkey::int2[]) with ordinality as k(attnum, n)
            join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
            where k.n <= i.indnkeyatts))
     from pg_index i
    where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indisready and i.indislive
      and i.indimmediate and i.indpred is null and i.indexprs is null
      and c.relkind in ('r', 'p') and not (c.relkind = 'r' and c.relhassubclass)
      and not exists (select from unnest(i.indkey::int2[]) with ordinality as k(attnum, n)
            join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
            where k.n <= i.indnkeyatts and not a.attnotnull)) as keys,
  (select json_agg(json_build_array(
            (select json_agg(a.attname order by k.n) from unnest(f.conkey) with ordinality as k(attnum, n)
               join pg_attribute a on a.attrelid = f.conrelid and a.attnum = k.attnum),
            f.confrelid::int8,
            (select json_agg(a.attname order by k.n) from unnest(f.confkey) with ordinality as k(attnum, n)
               join pg_attribute a on a.attrelid = f.confrelid and a.attnum = k.attnum)))
     from pg_constraint f
    where f.conrelid = c.oid and f.contype = 'f' and f.convalidated and not f.condeferrable
      and c.relkind = 'r' and not c.relhassubclass
      and not exists (select from pg_trigger t where t.tgconstraint = f.oid
                        and t.tgenabled not in ('O', 'A'))) as foreign_keys,
  (select json_agg(json_build_array(d.column_name, d.domain_values, d.includes_null)
            order by d.column_name)
     from dp.column_domain d where d.relation = c.oid) as domains,
  case when c.relkind = 'v' then pg_get_viewdef(c.oid) end as view
from pg_class c join pg_namespace n on n.oid = c.relnamespace
left join dp.policy p on p.relation = c.oid
where c.oid = $1::oid
"""

_FINGERPRINT = """
select concat_ws('|', (select version from dp.catalog_version),
  (select string_agg(c.oid || ':' || c.xmin || ':' || c.relrowsecurity, ',' order by c.oid)
     from pg_class c where c.oid = any ($1::oid[])),
  (select string_agg(a.attrelid || ':' || a.attnum || ':' || a.xmin, ',' order by a.attrelid, a.attnum)
     from pg_attribute a where a.attrelid = any ($1::oid[]) and a.attnum > 0),
  (select string_agg(i.indexrelid || ':' || i.xmin || ':' || i.indisvalid, ',' order by i.indexrelid)
     from pg_index i where i.indrelid = any ($1::oid[])),
  (select string_agg(k.oid || ':' || k.xmin, ',' order by k.oid)
     from pg_constraint k where k.conrelid = any ($1::oid[])),
  (select string_agg(t.oid || ':' || t.xmin || ':' || t.tgenabled, ',' order by t.oid)
     from pg_trigger t where t.tgrelid = any ($1::oid[])),
  (select string_agg(r.oid || ':' || r.xmin, ',' order by r.oid)
     from pg_rewrite r where r.ev_class = any ($1::oid[]))) as token
"""

_OWNS = """
select coalesce(bool_and(pg_has_role($1::oid, c.relowner, 'USAGE')), true)
   and (select rolsuper from pg_roles where oid = $1::oid) is not null as owns
from pg_class c where c.oid = any ($2::oid[])
"""


class SpiCatalog:
    """What the analyser and the engine may know of the database."""

    def __init__(self, database: SpiDatabase) -> None:
        self._database = database
        self._relations: dict[int, Relation | str | None] = {}

    @property
    def seen(self) -> tuple[int, ...]:
        """OIDs of the relations that were looked up for the statement at hand."""
        return tuple(self._relations)

    def analyze(self, text: str) -> dict[str, Any]:
        """Let the server analyse a statement under the pinned search_path.

        Errors of parsing and of name resolution concern the caller's text only; they keep
        PostgreSQL's message except those about privileges, which could name hidden objects.
        """
        try:
            rows = self._database.execute("select dp.analyze($1) as analysis", (("text", text),))
        except Exception as error:
            raise _analysis_error(error) from None
        analysis: dict[str, Any] = json.loads(str(rows[0][0]))
        return analysis

    def reanalyse(self, sql: str) -> str:
        """Return the server's own deparsed form of ``sql`` (for the round-trip check)."""
        return str(self.analyze(sql)["sql"])

    def fingerprint(self, oids: Sequence[int]) -> str:
        """See `dpsql.engine.services.ServerCatalog.fingerprint`."""
        return str(self._database.execute(_FINGERPRINT, (("oid[]", list(oids)),))[0][0])

    def owns(self, role: int, oids: Sequence[int]) -> bool:
        """Whether the role has the rights of the owner of each relation."""
        rows = self._database.execute(_OWNS, (("oid", role), ("oid[]", list(oids))))
        return bool(rows[0][0])
