-- Pages that reading leaves as they are (sql/hook/dead_rows.c).

-- Until the transaction ends, this session removes no dead rows of these relations.  Returns NULL, or the relation that has dead
-- rows on more pages than a session may pin.
create or replace function dp.keep_dead_rows(relations oid[])
returns regclass
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_keep_dead_rows';
comment on function dp.keep_dead_rows(oid[]) is 'internal: keeps reading from removing dead rows, whose places new rows would take';
