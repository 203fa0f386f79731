-- Internal: lets dp_executor read a declared relation and the parts that are read one by one, and tells the owner when analysts could
-- not even name it for lack of USAGE on its schema.
create or replace function dp.let_executor_read(relation regclass)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    schema_name name;
    schema_oid oid;
    part regclass;
    usage text;
begin
    select n.nspname, n.oid into schema_name, schema_oid
      from pg_catalog.pg_class as c
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
     where c.oid = relation;
    foreach part in array array[relation] || dp.parts_to_read(relation) loop
        -- not where it has been: a GRANT waits for the questions that read relations of the schema
        usage := (select format('grant usage on schema %I to dp_executor', n.nspname)
                   from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
                  where c.oid = part
                    and not exists (select from pg_catalog.aclexplode(n.nspacl) as a
                                     where a.grantee = 'dp_executor'::regrole and a.privilege_type = 'USAGE'));
        if usage is not null then
            execute usage;
        end if;
        execute format('grant select on %s to dp_executor', part);
    end loop;
    if not has_schema_privilege('dp_analyst', schema_oid, 'usage') then
        raise notice using
            message = format('analysts cannot name relations of schema %I yet', schema_name),
            hint = format('GRANT USAGE ON SCHEMA %I TO dp_analyst;', schema_name);
    end if;
end
$$;
comment on function dp.let_executor_read(regclass) is 'internal: grants dp_executor what it needs';
