-- The bytes of double precision numbers, in the machine's order, as an array: what a release writes.
create or replace function dp.floats(bytes bytea)
returns double precision[]
language c immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_floats';
comment on function dp.floats(bytea) is 'internal: numbers from their bytes';
