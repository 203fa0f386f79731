-- Internal: counts changes of which this session was told: of the system catalogue, and of the tables below.  What
-- was found at one count holds as long as it is the same (sql/hook/state.c).  NULL: nothing can be concluded, since the
-- transaction keeps an old snapshot or changed something itself, or on a standby.
create or replace function dp.catalogue_state()
returns bigint
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_catalogue_state';
comment on function dp.catalogue_state() is 'internal: counts changes of the catalogue';

-- Internal: whether the caller's snapshot shows all that one taken now would show.
create or replace function dp.snapshot_is_new()
returns boolean
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_snapshot_is_new';
comment on function dp.snapshot_is_new() is 'internal: whether a snapshot shows all that one taken now shows';

-- Internal, trigger: tells all sessions, when the transaction commits, that rows of a table have changed that say
-- something about relations.
create or replace function dp.tell_sessions()
returns trigger
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_tell_sessions';
comment on function dp.tell_sessions() is 'internal: lets sessions know that declarations changed';

do $$
declare
    declared name;
begin
    foreach declared in array array['policy', 'root', 'unit_link', 'column_domain', 'shown_relation', 'ledger_incarnation', 'ledger_identity', 'shards', 'numbered_column'] loop
        execute format('create or replace trigger tell_sessions after insert or update or delete or truncate on dp.%I'
                       ' for each statement execute function dp.tell_sessions()', declared);
        execute format('alter table dp.%I enable always trigger tell_sessions', declared);
    end loop;
end
$$;
