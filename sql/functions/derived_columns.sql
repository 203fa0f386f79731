-- Internal: returns the attnums of the columns whose values in one row depend on other rows.  If a unit were missing,
-- rows of other units would have other values there, so questions must not read them (PRIVACY.md section 10).  They are
--
-- - columns in which dp.set_degree_bound numbers rows, until they are dropped, and columns with its names, which copies
--   of a table and foreign tables have without a record;
-- - generated columns computed from one, and columns of a foreign key that refers to one;
-- - the same column of partitions, children and parents;
-- - all columns of a view or materialized view whose definition reads one.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.derived_columns(relation oid)
returns int2[]
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    if not exists (select from dp.numbered_column)
       and not exists (select from pg_attribute as a
                        where a.attrelid = derived_columns.relation and a.attname like 'dp\_slot\_%' and not a.attisdropped) then
        return '{}';
    end if;
    return array(
        with recursive derived(relation, attnum) as (
            select a.attrelid, a.attnum
              from dp.numbered_column as n
              join pg_attribute as r on r.attrelid = n.relation and r.attnum = n.attnum and not r.attisdropped
              join pg_attribute as a on a.attrelid = n.relation and (a.attnum = n.attnum or a.attname = n.column_name)
            union
            select a.attrelid, a.attnum
              from pg_attribute as a
             where a.attrelid = derived_columns.relation and a.attname like 'dp\_slot\_%'
            union
            select next.relation, next.attnum
              from derived as d
             cross join lateral (
                select g.adrelid, g.adnum
                  from pg_depend as p join pg_attrdef as g on g.oid = p.objid
                  join pg_attribute as a on a.attrelid = g.adrelid and a.attnum = g.adnum and a.attgenerated <> ''
                 where p.classid = 'pg_attrdef'::regclass and p.refclassid = 'pg_class'::regclass
                   and p.refobjid = d.relation and p.refobjsubid = d.attnum
                union all
                select k.conrelid, k.conkey[array_position(k.confkey, d.attnum)]
                  from pg_constraint as k
                 where k.contype = 'f' and k.confrelid = d.relation and d.attnum = any (k.confkey)
                union all
                select b.attrelid, b.attnum
                  from pg_attribute as a
                  join pg_inherits as i on a.attrelid in (i.inhrelid, i.inhparent)
                  join pg_attribute as b on b.attrelid in (i.inhrelid, i.inhparent) and b.attname = a.attname
                 where a.attrelid = d.relation and a.attnum = d.attnum
                union all
                select b.attrelid, b.attnum
                  from pg_depend as p join pg_rewrite as r on r.oid = p.objid
                  join pg_class as v on v.oid = r.ev_class and v.relkind in ('v', 'm')
                  join pg_attribute as b on b.attrelid = v.oid
                 where p.classid = 'pg_rewrite'::regclass and p.refclassid = 'pg_class'::regclass
                   and p.refobjid = d.relation and p.refobjsubid = d.attnum
             ) as next(relation, attnum))
        select d.attnum
          from derived as d
          join pg_attribute as a on a.attrelid = d.relation and a.attnum = d.attnum
         where d.relation = derived_columns.relation and d.attnum > 0 and not a.attisdropped
         order by d.attnum);
end
$$;
comment on function dp.derived_columns(oid) is 'internal: columns whose values depend on other rows';

-- Internal: records a column that numbers rows.  The record outlives the bound, because the numbers stay in the column
-- when an owner drops the key or the trigger.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.remember_numbered(relation regclass, column_name name)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.require_ownership(relation);
    insert into dp.numbered_column (relation, attnum, column_name)
    select a.attrelid, a.attnum, a.attname
      from pg_attribute as a
     where a.attrelid = remember_numbered.relation and a.attname = remember_numbered.column_name and a.attnum > 0
    on conflict do nothing;
end
$$;
comment on function dp.remember_numbered(regclass, name) is 'internal: records a column that numbers rows';
