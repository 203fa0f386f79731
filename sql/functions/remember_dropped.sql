-- Internal, event trigger: writes down under which name a relation is dropped, because that name is
-- how its root with all losses is found again (PRIVACY.md section 7: a root survives rename and
-- drop).  Security definer on purpose: whoever drops a table cannot write the catalogue.
create or replace function dp.remember_dropped()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update dp.root as r
       set schema_name = d.schema_name, relation_name = d.relation_name,
           earlier_names = r.earlier_names || format('%I.%I', r.schema_name, r.relation_name)
      from dp.dropped_relations() as d
      join dp.policy as p on p.relation = d.relation
     where p.root = r.id
       and (r.schema_name, r.relation_name) is distinct from (d.schema_name, d.relation_name);
    update dp.covered as c
       set relation = null, schema_name = d.schema_name, relation_name = d.relation_name
      from dp.dropped_relations() as d
     where c.relation = d.relation::regclass;
end
$$;
comment on function dp.remember_dropped() is 'internal: keeps the last name of a dropped relation';

do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_remember_dropped') then
        create event trigger dpsql_remember_dropped on sql_drop execute function dp.remember_dropped();
    end if;
end
$$;
comment on event trigger dpsql_remember_dropped is 'dpsql: keeps the last name of a dropped relation';
