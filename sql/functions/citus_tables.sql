-- Internal: whether Citus keeps the rows of a relation or of one of its parts, on other servers or as
-- a shard of its own.  To PostgreSQL they look like ordinary tables, but Citus reads each shard in a
-- snapshot of its own, and each step of a statement again: what a statement counts in two steps are
-- two states of the data (docs/citus.md).
create or replace function dp.kept_by_citus(relation oid)
returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found boolean := false;
begin
    if to_regclass('pg_catalog.pg_dist_partition') is not null then
        execute 'select exists (select from pg_catalog.pg_dist_partition as d'
                ' where d.logicalrelid::oid = any ($1))'
           into found using dp.statistics_members(relation);
    end if;
    return found;
end
$$;
comment on function dp.kept_by_citus(oid) is 'internal: whether Citus keeps rows of a relation';
