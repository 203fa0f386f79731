-- Internal: how partitions of partitions are cut: for each depth that all parts have and that is cut in one way, the
-- columns of it and of those above, what is equal for relations that are cut so, and in which of the places that it
-- makes each part is.
create or replace function dp.part_levels(relation oid)
returns table (depth integer, columns name[], layout text, parts oid[], places integer[])
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    with recursive tree as (
        select relation as oid, 0 as depth, '{}'::text[] as trail
        union all
        select c.oid, t.depth + 1, (t.trail || pg_get_expr(c.relpartbound, c.oid)) collate "default"
          from tree as t
          join pg_inherits as i on i.inhparent = t.oid
          join pg_class as c on c.oid = i.inhrelid),
    leaf as (select t.oid, t.depth, t.trail from tree as t join pg_class as c on c.oid = t.oid where c.relkind <> 'p'),
    node as (
        select t.depth, array_agg(a.attname order by k.n) as columns, count(*) = count(a.attname) as plain,
               concat_ws('|', p.partstrat,
                   string_agg(concat_ws(':', a.atttypid, a.atttypmod, p.partclass[k.n - 1], p.partcollation[k.n - 1]),
                              ',' order by k.n)) as keys
          from tree as t
          join pg_partitioned_table as p on p.partrelid = t.oid
         cross join unnest(p.partattrs) with ordinality as k(attnum, n)
          left join pg_attribute as a on a.attrelid = p.partrelid and a.attnum = k.attnum
         group by t.oid, t.depth, p.partstrat),
    uniform as (
        select n.depth + 1 as depth, min(n.columns) as columns, min(n.keys) as keys
          from node as n
         group by n.depth
        having bool_and(n.plain) and count(distinct (n.columns, n.keys)) = 1),
    placed as (
        select u.depth, l.oid, array_to_string(l.trail[1:u.depth], ' / ') as trail,
               dense_rank() over (partition by u.depth order by l.trail[1:u.depth]) as place
          from uniform as u cross join leaf as l
         where (select count(*) from uniform as above where above.depth <= u.depth) = u.depth
           and u.depth <= (select min(m.depth) from leaf as m))
    select p.depth,
           array(select x.name from uniform as u, unnest(u.columns) as x(name) where u.depth <= p.depth),
           (select string_agg(u.keys, '/' order by u.depth) from uniform as u where u.depth <= p.depth) || '|'
           || (select string_agg(q.trail, '|' order by q.place)
                 from (select distinct d.trail, d.place from placed as d where d.depth = p.depth) as q),
           array_agg(p.oid order by p.oid), array_agg(p.place::integer - 1 order by p.oid)
      from placed as p
     group by p.depth;
end
$$;
comment on function dp.part_levels(oid) is 'internal: how partitions of partitions are cut';

-- Internal: where the rows of a relation are, if some are on other servers and dp_executor may read each
-- part: the parts in an order that their bounds fix, the columns that tell the part of a row, and how (NULL
-- where something else than columns does); of parts of parts the "levels" that these are cut by.  Of foreign parts
-- nobody enforces bounds: they say what can be joined part by part, and no proof uses them (PRIVACY.md section 1).  A
-- relation that Citus keeps is one part: itself.
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
                                       || '|' || string_agg(p.bound, '|' order by p.bound, p.oid) end,
                   'levels', case when not bool_and(p.direct) and exists (select from cut)
                                  then (select json_agg(json_build_array(l.columns, l.layout,
                                                   (select json_agg(l.places[array_position(l.parts, q.oid)] order by q.bound, q.oid)
                                                      from part as q)) order by l.depth)
                                          from dp.part_levels(relation) as l) end)
          from part as p
        having (bool_or(p.ftserver is not null) or dp.kept_by_citus(relation))
           and bool_and(has_table_privilege('dp_executor', p.oid, 'select')
                        and has_schema_privilege('dp_executor', p.nspname, 'usage'))
           and not exists (select from pg_class as c
                            where c.oid = any (dp.statistics_members(relation)) and c.relkind = 'r' and c.relhassubclass));
end
$$;
comment on function dp.parts_of(oid) is 'internal: where the rows of a relation are';
