-- Internal, event trigger: a relation that a new foreign key makes a member of privacy units can be asked about like
-- those that were there at dp.protect, if the units, all on the way to them and itself belong to one role and
-- whoever makes the key may act as that role.  A right that was taken back stays taken back: only
-- the statement that makes the key counts, and only for what was no member before.
-- Each has a view in the schema dpv that refuses its rows, as those have.
-- Security definer on purpose: reads the catalogue of units, and makes these views.
create or replace function dp.let_new_members_be_read()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    keys oid[];
    members oid[];
    member record;
begin
    -- most statements make no foreign key, and should not even lock anything of ours
    keys := array(
        select k.oid
          from pg_event_trigger_ddl_commands() as d
         cross join unnest(dp.keys_made(d.command)) as u(oid)
          join pg_constraint as k on k.oid = u.oid and k.contype = 'f');
    if keys = '{}' or not exists (select from dp.root as r where r.neighbours = 'unit') or not dp.ledger_in_place() then
        return;
    end if;
    members := array(select distinct m.oid
                       from pg_constraint as k
                      cross join unnest(dp.topmost(k.conrelid)) as r(oid)
                      cross join unnest(r.oid || dp.unit_dependants(r.oid)) as m(oid)
                      where k.oid = any (keys) and dp.unit_roots(r.oid) is not null);
    for member in
        select c.oid::regclass as name, dp.of_one_owner(c.oid) as complete
          from pg_class as c
         where c.oid = any (dp.made_members(members, keys))
           and pg_has_role(dp.caller(), c.relowner, 'usage')
           and dp.own_problem(c.oid) is null
           and (select s.kind from dp.standing(c.oid) as s) = 'protected'
           and not has_table_privilege('dp_executor', c.oid, 'select')
         order by 1
    loop
        if member.complete then
            perform dp.let_executor_read(member.name);
            raise notice using
                message = format('relation %s belongs to privacy units and can be asked about %s', member.name,
                                 case when (select q.problem from dp.asking_problem(member.name) as q) is null
                                      then 'from now on' else 'once the problem told next is mended' end),
                hint = format('To keep it from being asked about: REVOKE SELECT ON %s FROM dp_executor;', member.name);
        else
            raise notice using
                message = format('relation %s belongs to privacy units, but cannot be asked about yet', member.name),
                detail = 'The units, or what leads to them, belong to another role.',
                hint = format('To let it be asked about: GRANT SELECT ON %s TO dp_executor;', member.name);
        end if;
    end loop;
    if members <> '{}' then
        -- a view that an extension's script makes would be that extension's
        if not exists (select from pg_event_trigger_ddl_commands() as d where d.in_extension) then
            perform dp.show_refusing(array(select m.oid from unnest(members) as m(oid)
                                            where (select s.kind from dp.standing(m.oid) as s) = 'protected'));
        end if;
        perform dp.tell_problems(members, '{}');
    end if;
end
$$;
comment on function dp.let_new_members_be_read() is 'internal: lets dp_executor read new members of units';

do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_let_new_members_be_read') then
        create event trigger dpsql_let_new_members_be_read on ddl_command_end
            when tag in ('ALTER TABLE', 'CREATE TABLE', 'CREATE SCHEMA')
            execute function dp.let_new_members_be_read();
    end if;
end
$$;
comment on event trigger dpsql_let_new_members_be_read is 'dpsql: lets dp_executor read new members of units';
