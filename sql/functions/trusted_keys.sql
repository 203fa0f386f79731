-- Internal: the column sets that no two rows share, for good: valid, immediate unique indexes without predicate,
-- expression or NULL, of tables without children.  Keys with a derived column are left out: a plan that
-- orders or selects rows by such a key would depend on other rows.
create or replace function dp.trusted_keys(relation oid)
returns json
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return (
        select json_agg(k.columns order by i.indexrelid)
          from pg_index as i
          join pg_class as c on c.oid = i.indrelid
         cross join lateral (
            select json_agg(a.attname order by u.n) as columns,
                   bool_and(dp.never_null(a.attrelid, a.attnum)) as filled
              from unnest(i.indkey::int2[]) with ordinality as u(attnum, n)
              join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = u.attnum
             where u.n <= i.indnkeyatts) as k
         where i.indrelid = trusted_keys.relation and i.indisunique and i.indisvalid and i.indisready and i.indislive
           and i.indimmediate and i.indpred is null and i.indexprs is null
           and c.relkind in ('r', 'p') and not (c.relkind = 'r' and c.relhassubclass)
           and k.filled and not i.indkey::int2[] && dp.derived_columns(trusted_keys.relation)
           and not dp.kept_by_citus(c.oid));  -- two steps may see two versions of one row
end
$$;
comment on function dp.trusted_keys(oid) is 'internal: unique keys of a relation that plans may rely on';

-- Internal: the columns of a relation's primary key in the order of its index, or NULL.
create or replace function dp.primary_key(relation oid)
returns name[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select array_agg(a.attname order by u.n)
          from pg_index as i
         cross join lateral unnest(i.indkey::int2[]) with ordinality as u(attnum, n)
          join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = u.attnum
         where i.indrelid = primary_key.relation and i.indisprimary and u.n <= i.indnkeyatts);
end
$$;
comment on function dp.primary_key(oid) is 'internal: columns of a primary key';
