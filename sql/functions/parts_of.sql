-- Internal: where the rows of a relation are, if some are on other servers and dp_executor may read each
-- part: the parts in an order that their bounds fix, the columns that tell the part of a row, and how (NULL
-- where something else than columns does).  Of foreign parts nobody enforces bounds: they say what can be joined
-- part by part, and no proof uses them (PRIVACY.md section 1).  A relation that Citus keeps is one part: itself.
create or replace function dp.parts_of(relation oid)
returns json
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        with part as (
            select c.oid, n.nspname, c.relname, f.ftserver, pg_get_expr(c.relpartbound, c.oid) as bound,
                   exists (select from pg_inherits as i where i.inhrelid = c.oid and i.inhparent = relation) as direct
              from unnest(dp.statistics_members(relation)) as m(oid)
              join pg_class as c on c.oid = m.oid
              join pg_namespace as n on n.oid = c.relnamespace
              left join pg_foreign_table as f on f.ftrelid = c.oid
             where c.relkind <> 'p'),
        cut as (
            select p.partstrat,
                   array_agg(a.attname order by k.n) as columns,
                   string_agg(concat_ws(':', a.atttypid, a.atttypmod, p.partclass[k.n - 1], p.partcollation[k.n - 1]),
                              ',' order by k.n) as keys
              from pg_partitioned_table as p
             cross join unnest(p.partattrs) with ordinality as k(attnum, n)
              join pg_attribute as a on a.attrelid = p.partrelid and a.attnum = k.attnum
             where p.partrelid = relation and 0 <> all (p.partattrs)
             group by p.partstrat)
        select json_build_object(
                   'parts', json_agg(json_build_array(p.oid::int8, p.nspname, p.relname, coalesce(p.ftserver, 0)::int8)
                                     order by p.bound, p.oid),
                   'cut_by', (select to_json(c.columns) from cut as c),
                   'layout', case when bool_and(p.direct)
                                  then (select concat_ws('|', c.partstrat, c.keys) from cut as c)
                                       || '|' || string_agg(p.bound, '|' order by p.bound, p.oid) end)
          from part as p
        having (bool_or(p.ftserver is not null) or dp.kept_by_citus(relation))
           and bool_and(has_table_privilege('dp_executor', p.oid, 'select')
                        and has_schema_privilege('dp_executor', p.nspname, 'usage'))
           and not exists (select from pg_class as c
                            where c.oid = any (dp.statistics_members(relation)) and c.relkind = 'r' and c.relhassubclass));
end
$$;
comment on function dp.parts_of(oid) is 'internal: where the rows of a relation are';
