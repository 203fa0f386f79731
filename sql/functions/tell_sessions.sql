-- Internal: the version of the system catalogue and of the tables below that the caller's snapshot shows; what was
-- found in one version holds as long as it is shown (sql/hook/version.c).  NULL: it is not known, on a standby, in a
-- transaction that writes, while a change is being committed, and without dpsql in shared_preload_libraries.
create or replace function dp.catalogue_version()
returns bigint
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_catalogue_version';
comment on function dp.catalogue_version() is 'internal: the version of the catalogue that a snapshot shows';

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
