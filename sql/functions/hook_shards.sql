-- Finds out, without reading a row, whether all servers with parts of the relations can be read, and takes snapshots of
-- one moment on those of the relations "together", here as well.  Writers through this server wait meanwhile.
create or replace function dp.meet_shards(relations oid[], together oid[])
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_meet_shards';
comment on function dp.meet_shards(oid[], oid[]) is 'internal: snapshots of one moment on several servers';

-- Runs what waits in the session (Session.wait) in those snapshots.
create or replace function dp.read_together()
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_read_together';
comment on function dp.read_together() is 'internal: reads parts on several servers as of one moment';

-- The server with parts of the relations that does not answer any more, or several; NULL if all do.
create or replace function dp.failed_shard(relations oid[])
returns text
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_failed_shard';
comment on function dp.failed_shard(oid[]) is 'internal: which server failed, if one did';
