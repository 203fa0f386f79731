-- Internal: why a relation itself cannot be (or stay) declared as a base relation, or NULL.  Looked at when
-- it is declared and again when it is read, because row security can be enabled and partitions attached
-- and indexes added later.  A row that belongs to two declared relations would be one neighbour of both
-- (PRIVACY.md section 1): parts of a relation are covered by their parent only.
create or replace function dp.own_problem(relation oid)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return (
    select case
               when c.relnamespace in (select n.oid from pg_catalog.pg_namespace as n
                                        where n.nspname in ('pg_catalog', 'information_schema',
                                                            'pg_toast', 'dp', 'dpv'))
                   then 'it is a system relation'
               when c.relpersistence = 't' then 'it is a temporary table'
               when c.relkind = 'v' then 'it is a view'
               when c.relkind = 'm' then 'it is a materialized view'
               when c.relkind not in ('r', 'p', 'f') then 'it is not a table'
               when c.relispartition then 'it is a partition of another table'
               when exists (select from pg_catalog.pg_inherits as i where i.inhrelid = c.oid)
                   then 'it inherits from another table'
               when c.relrowsecurity then 'it has row-level security'
               when c.relkind = 'p'
                and exists (select from pg_catalog.pg_class as part
                             where part.relrowsecurity
                               and part.oid = any (dp.statistics_members(c.oid)))
                   then 'one of its partitions has row-level security'
               when dp.has_shared_part(c.oid)
                   then 'one of its children is declared itself or inherits from several tables'
               else coalesce(dp.citus_problem(c.oid), dp.foreign_code(c.oid))
           end
      from pg_catalog.pg_class as c
     where c.oid = relation);
end
$$;
comment on function dp.own_problem(oid) is 'internal: what a relation itself is against being declared, or NULL';

-- The same, or what its privacy units forbid.
create or replace function dp.relation_problem(relation oid)
returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(dp.own_problem(relation), (select s.problem from dp.standing(relation) as s));
end
$$;
comment on function dp.relation_problem(oid) is 'internal: why a relation cannot be declared, or NULL';
