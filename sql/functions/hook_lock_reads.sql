-- Takes the predicate locks of whole relations before their rows are read in a SERIALIZABLE
-- transaction: those of single rows would show in pg_locks which rows there are.
create or replace function dp.lock_reads(relations oid[])
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_lock_reads';
comment on function dp.lock_reads(oid[]) is 'internal: no trace of single rows in pg_locks';
