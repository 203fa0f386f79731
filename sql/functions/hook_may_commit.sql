-- Whether the procedure that asks can commit: not in a transaction block, nor called from a function.
create or replace function dp.may_commit()
returns boolean
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_may_commit';
comment on function dp.may_commit() is 'internal: whether the procedure that asks can commit';
