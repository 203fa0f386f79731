-- Runs what waits in the session (Session.as_owner) with the rights of a relation's owner, as ANALYZE does: code that
-- the owner put into indexes, statistics or policies gets no rights of whoever calls.  Where nothing waits it fails.
create or replace function dp.read_as_owner(relation oid)
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_read_as_owner';
comment on function dp.read_as_owner(oid) is 'internal: reads with the rights of a relation''s owner';
