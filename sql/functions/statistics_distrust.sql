-- Internal, event trigger: what a subscription writes fires no statement trigger.  While it may write
-- a relation, pg_subscription_rel says so (dp.statistics_problem); when that may have ended, nobody
-- knows any more what it wrote.  Security definer on purpose: whoever alters a subscription cannot
-- write what is known of relations.
create or replace function dp.distrust_changes()
returns event_trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into dp.change (relation, inserted, updated, uncounted)
    select distinct r.relation, 0, 0, true from dp.measured_relation as r;
end
$$;
comment on function dp.distrust_changes() is 'internal: makes statistics useless after a subscription';

do $$
begin
    if not exists (select from pg_catalog.pg_event_trigger as t where t.evtname = 'dpsql_distrust_changes') then
        create event trigger dpsql_distrust_changes on ddl_command_end
            when tag in ('ALTER SUBSCRIPTION', 'DROP SUBSCRIPTION')
            execute function dp.distrust_changes();
        alter event trigger dpsql_distrust_changes enable always;
    end if;
end
$$;
comment on event trigger dpsql_distrust_changes is 'dpsql: makes statistics useless after a subscription';
