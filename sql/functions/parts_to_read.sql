-- Internal: the parts of a relation that dp_executor reads one by one, as some are foreign: those that the caller
-- may let it read.
create or replace function dp.parts_to_read(relation oid)
returns regclass[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    members constant oid[] := dp.statistics_members(relation);
begin
    if not exists (select from pg_foreign_table as f where f.ftrelid = any (members) and f.ftrelid <> relation) then
        return '{}';
    end if;
    return array(select c.oid::regclass from pg_class as c
                  where c.oid = any (members) and c.oid <> relation and c.relkind in ('r', 'f')
                    and pg_has_role(dp.caller(), c.relowner, 'usage')
                  order by c.oid);
end
$$;
comment on function dp.parts_to_read(oid) is 'internal: the parts of a relation that dp_executor reads one by one';
