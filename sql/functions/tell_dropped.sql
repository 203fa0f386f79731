-- Internal, event trigger: tells what dropping a relation with privacy units means for those that belonged to them, as
-- dp.unprotect does.  The keys are gone by then: members are what was linked, and what lost a constraint to the
-- dropped and could be asked about until now.
-- Security definer on purpose: reads the catalogue of units.
create or replace function dp.tell_dropped()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    ended text;
    children oid[];
begin
    if not exists (select from dp.root as r where r.neighbours = 'unit') then
        return;
    end if;
    select string_agg(d.shown, ', ' order by d.shown) into ended
      from dp.dropped_relations() as d
      join dp.policy as p on p.relation = d.relation and p.kind = 'protected'
      join dp.root as r on r.id = p.root and r.neighbours = 'unit';
    if ended is null then
        return;
    end if;
    children := array(
        select c.oid
          from pg_event_trigger_dropped_objects() as d
          join pg_namespace as n on n.nspname = d.address_names[1]
          join pg_class as c on c.relnamespace = n.oid and c.relname = d.address_names[2]
         where d.object_type = 'table constraint'
        union
        select l.child from dp.unit_link as l
          join dp.dropped_relations() as d on d.relation = l.parent
         where l.follow);
    children := array(select distinct t.top from unnest(children) as u(oid), unnest(dp.topmost(u.oid)) as t(top));
    perform dp.tell_members(ended, array(
        select distinct m.oid
          from unnest(children) as u(oid), unnest(u.oid || dp.unit_dependants(u.oid)) as m(oid)
          join pg_class as c on c.oid = m.oid
         where has_table_privilege('dp_executor', m.oid, 'select')));
end
$$;
comment on function dp.tell_dropped() is 'internal: tells members of units that ended by DROP';

do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_tell_dropped') then
        create event trigger dpsql_tell_dropped on sql_drop execute function dp.tell_dropped();
    end if;
end
$$;
comment on event trigger dpsql_tell_dropped is 'dpsql: tells members of units that ended by DROP';
