-- Internal: takes SELECT on a relation, and USAGE on its schema once nothing there is declared,
-- away from dp_executor.
create or replace function dp.stop_executor_reading(relation regclass)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    schema_name name;
    schema_oid oid;
    part regclass;
begin
    select n.nspname, n.oid into schema_name, schema_oid
      from pg_catalog.pg_class as c
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
     where c.oid = relation;
    execute format('revoke select on %s from dp_executor', relation);
    foreach part in array dp.parts_to_read(relation) loop
        execute format('revoke select on %s from dp_executor', part);
    end loop;
    if not exists (
        select
          from dp.declarations() as p
          join pg_catalog.pg_class as c on c.oid = p.relation
         where c.relnamespace = schema_oid
           and p.kind in ('protected', 'public')
           and p.relation <> stop_executor_reading.relation) then
        execute format('revoke usage on schema %I from dp_executor', schema_name);
    end if;
end
$$;
comment on function dp.stop_executor_reading(regclass) is 'internal: revokes what dp_executor was granted';
