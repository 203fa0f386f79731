-- Pages that reading leaves as they are (sql/hook/dead_rows.c).

-- Until the transaction ends, this session removes no dead rows of shared relations, their partitions and children, nor of what
-- values of the relations that it reads need from catalogs.  Returns NULL, or a relation for which it would have to pin too many pages.
create or replace function dp.keep_dead_rows(shared oid[], read oid[])
returns regclass
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_keep_dead_rows';
comment on function dp.keep_dead_rows(oid[], oid[]) is 'internal: keeps reading from removing dead rows, whose places new rows would take';
