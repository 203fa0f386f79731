-- What a call of ours locks (sql/hook/locks.c).

-- Locks relations with the partitions, children and indexes that reading them will lock: before the charge.
create or replace function dp.lock_members(relations oid[])
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_lock_members';
comment on function dp.lock_members(oid[]) is 'internal: what has to be waited for is so before the charge';

-- Whether a relation is there and can be read without waiting for anybody; locks it if so.
create or replace function dp.lock_at_once(relation oid)
returns boolean
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_lock_at_once';
comment on function dp.lock_at_once(oid) is 'internal: whether a relation can be read without waiting for anybody';
