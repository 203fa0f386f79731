-- The version of the library that the server holds in memory; an update compares it with its own.
create or replace function dp.library_version()
returns text
language c stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_library_version';
comment on function dp.library_version() is 'version of the library that the server has loaded; the extension must be of the same';
