-- Internal: the relations that a DROP took away; only event triggers on sql_drop may ask.
create or replace function dp.dropped_relations()
returns table (relation oid, schema_name text, relation_name text, shown text)
language sql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select d.objid, d.schema_name, d.object_name, d.object_identity
      from pg_event_trigger_dropped_objects() as d
     where d.classid = 'pg_class'::regclass and d.objsubid = 0
$$;
comment on function dp.dropped_relations() is 'internal: relations that a DROP took away';
