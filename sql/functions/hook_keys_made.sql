-- The constraints that a command makes which pg_event_trigger_ddl_commands() tells of: those of ADD CONSTRAINT,
-- ADD COLUMN and CREATE TABLE, not what was there under another name or for a column of another type.
create or replace function dp.keys_made(command pg_ddl_command)
returns oid[]
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_keys_made';
comment on function dp.keys_made(pg_ddl_command) is 'internal: constraints that a command makes';
