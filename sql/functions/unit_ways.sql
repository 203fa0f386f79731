-- Internal: one way to a privacy unit in words: what it is a unit of, and each column that the way goes through.
-- "hops" and "unit_column" are as dp.unit_paths gives them.
create or replace function dp.shown_way(
    relation oid, hops jsonb, unit_column name, root_relation oid, root_column name)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        with step as (
            select u.n, u.hop -> 'columns' as columns,
                   coalesce(lag((u.hop ->> 'parent')::oid) over (order by u.n), relation) as at
              from jsonb_array_elements(hops) with ordinality as u(hop, n)
            union all
            select 1 + jsonb_array_length(hops), jsonb_build_array(unit_column), l.at
              from (select coalesce((hops -> -1 ->> 'parent')::oid, relation)) as l(at)
             where l.at <> root_relation
        )
        select concat_ws(' by ', format('%I.%I', r.relname, root_column), (
                   select string_agg(format(case jsonb_array_length(s.columns) when 1 then '%I.%s' else '%I.(%s)' end,
                                            c.relname, (select string_agg(quote_ident(k.name), ', ' order by k.m)
                                                          from jsonb_array_elements_text(s.columns)
                                                               with ordinality as k(name, m))), ', ' order by s.n)
                     from step as s join pg_class as c on c.oid = s.at))
          from pg_class as r where r.oid = root_relation);
end
$$;
comment on function dp.shown_way(oid, jsonb, name, oid, name) is 'internal: a way to a privacy unit in words';
