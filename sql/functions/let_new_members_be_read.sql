-- Internal, event trigger: a relation that a new foreign key makes a member of privacy units can be asked about like
-- those that were there at dp.protect, if it belongs to the owner of the units.  A right that was taken back
-- stays taken back: only the statement that makes the key counts.
-- Security definer on purpose: reads the catalogue of units.
create or replace function dp.let_new_members_be_read()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    made oid[];
    members oid[];
    member record;
begin
    -- most statements make no foreign key, and should not even lock anything of ours
    made := array(
        select distinct t.top
          from pg_event_trigger_ddl_commands() as d
          join pg_constraint as k on k.conrelid = d.objid
         cross join unnest(dp.topmost(k.conrelid)) as t(top)
         where d.classid = 'pg_class'::regclass and k.contype = 'f' and k.xmin = pg_current_xact_id()::xid);
    if made = '{}' or not exists (select from dp.root as r where r.neighbours = 'unit') or not dp.ledger_in_place() then
        return;
    end if;
    members := array(select distinct m.oid
                       from unnest(made) as r(oid)
                      cross join unnest(r.oid || dp.unit_dependants(r.oid)) as m(oid)
                      where dp.unit_roots(r.oid) is not null);
    for member in
        select c.oid::regclass as name
          from pg_class as c
         where c.oid = any (members)
           and dp.own_problem(c.oid) is null
           and (select s.kind from dp.standing(c.oid) as s) = 'protected'
           and not has_table_privilege('dp_executor', c.oid, 'select')
           and not exists (select from dp.policy as p join pg_class as r on r.oid = p.relation
                            where p.root = any (dp.unit_roots(c.oid)) and r.relowner <> c.relowner)
         order by 1
    loop
        perform dp.let_executor_read(member.name);
        raise notice using
            message = format('relation %s belongs to privacy units and can be asked about from now on', member.name),
            hint = format('To keep it from being asked about: REVOKE SELECT ON %s FROM dp_executor;', member.name);
    end loop;
    if members <> '{}' then
        perform dp.tell_problems(members, '{}');
    end if;
end
$$;
comment on function dp.let_new_members_be_read() is 'internal: lets dp_executor read new members of units';

do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_let_new_members_be_read') then
        create event trigger dpsql_let_new_members_be_read on ddl_command_end
            when tag in ('ALTER TABLE', 'CREATE TABLE')
            execute function dp.let_new_members_be_read();
    end if;
end
$$;
comment on event trigger dpsql_let_new_members_be_read is 'dpsql: lets dp_executor read new members of units';
