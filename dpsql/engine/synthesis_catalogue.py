"""What the catalogue says of tables that are copied, and whose code their expressions run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import NotAnswerable, PermissionDenied
from dpsql.relation import show_name
from dpsql.synthesis.schema import Plan, Planned

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Types whose copied columns get sequences of their own.
_COUNTED = ("int2", "int4", "int8")
COLUMNS = """
with recursive base(attnum, oid, modifier) as (
    select a.attnum, a.atttypid, a.atttypmod
      from pg_attribute as a where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
    union all
    select b.attnum, t.typbasetype, t.typtypmod
      from base as b join pg_type as t on t.oid = b.oid where t.typtype = 'd')
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type_name,
  t.typname::text as base, format_type(t.oid, -1) as base_type, b.modifier::int4 as modifier,
  a.attnotnull as not_null, a.attidentity::text as identity, a.attgenerated::text as generated,
  pg_get_expr(d.adbin, d.adrelid) as expression, d.oid::int8 as default_oid,
  (select format('%I.%I', n.nspname, c.collname) from pg_collation as c
     join pg_namespace as n on n.oid = c.collnamespace
    where c.oid = a.attcollation and a.attcollation <> o.typcollation) as collation,
  case when a.attstorage <> o.typstorage then
    case a.attstorage when 'p' then 'PLAIN' when 'e' then 'EXTERNAL' when 'm' then 'MAIN'
      else 'EXTENDED' end end as storage,
  col_description(a.attrelid, a.attnum) as comment,
  -- the default takes numbers from a sequence
  exists (select from pg_depend as p
            join pg_class as s on s.oid = p.refobjid and s.relkind = 'S'
           where p.classid = 'pg_attrdef'::regclass and p.objid = d.oid
             and p.refclassid = 'pg_class'::regclass) as serial
  from pg_attribute as a
  join base as b on b.attnum = a.attnum
  join pg_type as t on t.oid = b.oid and t.typtype <> 'd'
  join pg_type as o on o.oid = a.atttypid
  left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
 order by a.attnum
"""
CONSTRAINTS = """
select k.oid::int8 as oid, k.conname::text as name, k.contype::text as kind,
  pg_get_constraintdef(k.oid) as definition, pg_get_expr(k.conbin, k.conrelid) as expression,
  obj_description(k.oid, 'pg_constraint') as comment,
  (select json_agg(a.attname order by a.attnum) from pg_attribute as a
    where a.attrelid = k.conrelid and a.attnum = any (k.conkey))::text as columns
  from pg_constraint as k
 where k.conrelid = $1::oid and k.contype in ('c', 'p', 'u', 'x')
 order by k.contype <> 'p', k.conname
"""
#: Columns whose types are domains: the type that these are over, and each constraint on the way.
DOMAINS = """
with recursive over(attnum, name, oid, modifier, step) as (
    select a.attnum, a.attname, a.atttypid, a.atttypmod, 0
      from pg_attribute as a where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
    union all
    select o.attnum, o.name, t.typbasetype, t.typtypmod, o.step + 1
      from over as o join pg_type as t on t.oid = o.oid where t.typtype = 'd')
select o.name::text as name, format_type(p.oid, p.modifier) as plain, k.label, k.expression
  from over as o
  join pg_type as t on t.oid = o.oid and t.typtype = 'd'
 cross join lateral (select b.oid, b.modifier from over as b where b.attnum = o.attnum
                      order by b.step desc limit 1) as p
 cross join lateral (
    select format('%s of the domain %s', c.conname, format_type(t.oid, null)) as label,
           pg_get_expr(c.conbin, 0) as expression
      from pg_constraint as c where c.contypid = t.oid and c.contype = 'c'
    union all
    select format('NOT NULL of the domain %s', format_type(t.oid, null)), 'VALUE IS NOT NULL'
     where t.typnotnull
    union all
    select null, null) as k
 order by o.attnum, o.step desc, k.label
"""
#: What of that still holds in a table of that name.
STILL = """
select array(select k.conname::text from pg_constraint as k
              where k.conrelid = c.oid and k.contype = 'c') as checks,
  array(select a.attname::text from pg_attribute as a join pg_type as t on t.oid = a.atttypid
         where a.attrelid = c.oid and a.attnum > 0 and t.typtype = 'd') as domains
  from pg_class as c where c.oid = to_regclass($1)
"""
INDEXES = """
select i.indexrelid::int8 as oid, c.relname::text as name,
  pg_get_indexdef(i.indexrelid) as definition,
  format('CREATE %sINDEX %I ON ', case when i.indisunique then 'UNIQUE ' end, c.relname) as head,
  format('%I.%I USING ', n.nspname, t.relname) as place, i.indisunique as distinct_rows,
  i.indexprs is not null or i.indpred is not null as expressions
  from pg_index as i
  join pg_class as c on c.oid = i.indexrelid
  join pg_class as t on t.oid = i.indrelid
  join pg_namespace as n on n.oid = t.relnamespace
 where i.indrelid = $1::oid and i.indisvalid
   and not exists (select from pg_constraint as k
                    where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))
 order by c.relname
"""
FOREIGN_KEYS = """
select k.conname::text as name,
  case when k.confmatchtype = 'f' then ' MATCH FULL' else '' end
  || ' ON UPDATE ' || case k.confupdtype when 'a' then 'NO ACTION' when 'r' then 'RESTRICT'
       when 'c' then 'CASCADE' when 'n' then 'SET NULL' else 'SET DEFAULT' end
  || ' ON DELETE ' || case k.confdeltype when 'a' then 'NO ACTION' when 'r' then 'RESTRICT'
       when 'c' then 'CASCADE' when 'n' then 'SET NULL' else 'SET DEFAULT' end
  || case when k.condeferrable then ' DEFERRABLE' else '' end
  || case when k.condeferred then ' INITIALLY DEFERRED' else '' end as terms
  from pg_constraint as k where k.conrelid = $1::oid and k.contype = 'f'
"""
# what an object needs, through types to their constraints: the first function of a stranger
_FOREIGN = """
with recursive used(class, object) as (
    select $1::regclass::oid, $2::oid
    union
    select next.class, next.object
      from used as u
     cross join lateral (
        select d.refclassid, d.refobjid
          from pg_depend as d
         where d.classid = u.class and d.objid = u.object and d.refobjid >= 16384
           and d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass,
                                'pg_opclass'::regclass, 'pg_opfamily'::regclass,
                                'pg_type'::regclass)
        union all
        select 'pg_constraint'::regclass, k.oid from pg_constraint as k
         where u.class = 'pg_type'::regclass and k.contypid = u.object
        union all
        select 'pg_type'::regclass, t.typelem from pg_type as t
         where u.class = 'pg_type'::regclass and t.oid = u.object and t.typelem >= 16384
        union all
        -- casts apply wherever a text is read again that has one
        select 'pg_proc'::regclass, k.castfunc from pg_cast as k
         where u.class = 'pg_type'::regclass and k.castfunc >= 16384
           and (u.object in (k.castsource, k.casttarget)
                or exists (select from pg_type as t where t.oid = u.object and t.typarray <> 0
                              and t.typarray in (k.castsource, k.casttarget)))
        union all
        select 'pg_proc'::regclass, f.amproc from pg_amproc as f
         where u.class = 'pg_opfamily'::regclass and f.amprocfamily = u.object and f.amproc >= 16384
        union all
        select 'pg_operator'::regclass, f.amopopr from pg_amop as f
         where u.class = 'pg_opfamily'::regclass and f.amopfamily = u.object and f.amopopr >= 16384
     ) as next(class, object))
select pg_describe_object(u.class, u.object, 0) as name
  from used as u
  left join pg_proc as f on u.class = 'pg_proc'::regclass and f.oid = u.object
  left join pg_operator as o on u.class = 'pg_operator'::regclass and o.oid = u.object
  left join pg_opclass as c on u.class = 'pg_opclass'::regclass and c.oid = u.object
  left join pg_opfamily as y on u.class = 'pg_opfamily'::regclass and y.oid = u.object
  join pg_roles as r on r.oid = coalesce(f.proowner, o.oprowner, c.opcowner, y.opfowner)
 where u.object >= 16384 and not r.rolsuper and r.oid <> dp.caller()
 order by u.class, u.object
 limit 1
"""
_TYPES = """
select a.attname::text as name, a.atttypid::int8 as type_oid,
  format_type(a.atttypid, a.atttypmod) as shown,
  has_type_privilege(dp.caller(), a.atttypid, 'usage') as usable
  from pg_attribute as a
 where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped and a.atttypid >= 16384
 order by a.attnum
"""


def require_types(plan: Plan, services: Services) -> None:
    """Refuse columns whose types the caller may not use, or that run code of others.

    Raises
    ------
    PermissionDenied, NotAnswerable
    """
    for planned in plan.tables:
        if planned.table.public:
            continue
        require_types_of(planned.table.oid, planned, services)


def require_types_of(table: int, planned: Planned, services: Services) -> None:
    """Refuse types of one table, or of its copy, as `require_types`.

    Raises
    ------
    PermissionDenied, NotAnswerable
    """
    for name, oid, shown, usable in services.database.execute(_TYPES, [("int8", table)]):
        column = show_name(planned.table.schema, planned.table.name, str(name))
        if not usable:
            raise PermissionDenied(
                f"permission denied for type {shown}",
                detail=f"It is the type of {column}, which the copy has as well.",
                hint=f"Ask the type's owner for GRANT USAGE ON TYPE {shown} TO <role>.",
            )
        if code := foreign_code("pg_type", int(str(oid)), services):
            raise NotAnswerable(
                f"the type of {column} runs code of another role",
                detail=f"Writing or reading a value of type {shown} runs {code} with your rights.",
                hint="Ask a superuser to own that function, or leave the relation out.",
            )


def foreign_code(catalog: str, oid: int, services: Services) -> str | None:
    """Name a function that an object needs and that belongs to neither caller nor superuser."""
    found = services.database.execute(_FOREIGN, [("text", catalog), ("int8", oid)])
    return str(found[0][0]) if found else None


def counts_itself(base: str, *, serial: bool) -> bool:
    """Whether the copy of a column takes numbers from a sequence of its own."""
    return serial and base in _COUNTED


def default_needs(default_oid: int, services: Services, *, serial: bool) -> str | None:
    """Name what keeps the copy of a column from having its default; ``None``: nothing does."""
    return "another sequence" if serial else foreign_code("pg_attrdef", default_oid, services)
