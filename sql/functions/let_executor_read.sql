-- Internal: lets dp_executor read a declared relation with its parts on other servers, and tells the owner when analysts could
-- not even name it for lack of USAGE on its schema.
create or replace function dp.let_executor_read(relation regclass)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    schema_name name;
    schema_oid oid;
    part record;
begin
    select n.nspname, n.oid into schema_name, schema_oid
      from pg_catalog.pg_class as c
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
     where c.oid = relation;
    execute format('grant usage on schema %I to dp_executor', schema_name);
    execute format('grant select on %s to dp_executor', relation);
    -- parts on other servers are counted one by one
    for part in
        select c.oid::regclass as name, n.nspname
          from dp.foreign_parts(relation) as p
          join pg_catalog.pg_class as c on c.oid = p.part
          join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
         where c.oid <> relation and pg_has_role(dp.caller(), c.relowner, 'usage')
    loop
        execute format('grant usage on schema %I to dp_executor', part.nspname);
        execute format('grant select on %s to dp_executor', part.name);
    end loop;
    if not has_schema_privilege('dp_analyst', schema_oid, 'usage') then
        raise notice using
            message = format('analysts cannot name relations of schema %I yet', schema_name),
            hint = format('GRANT USAGE ON SCHEMA %I TO dp_analyst;', schema_name);
    end if;
end
$$;
comment on function dp.let_executor_read(regclass) is 'internal: grants dp_executor what it needs';
