-- Locks that are taken before rows are read (sql/hook/locks.c).

-- Locks relations, and the partitions, children, indexes, TOAST tables and catalogs that reading them can lock.  Called
-- before the charge, so that no charged question waits for a lock.
create or replace function dp.lock_members(relations oid[], before_rows boolean)
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_lock_members';
comment on function dp.lock_members(oid[], boolean) is 'internal: takes, before the charge, all locks that reading can need';

-- Keeps types, their schemas, and the types that they are over, as they are until the question ends (sql/hook/held.c).
create or replace function dp.hold_types(objects oid[])
returns void
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_hold_types';
comment on function dp.hold_types(oid[]) is 'internal: keeps the types among some objects as they are while a question reads';

-- Locks a relation for reading, without waiting.  Returns false if another transaction has locked it, or if it does not exist.
create or replace function dp.lock_at_once(relation oid)
returns boolean
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_lock_at_once';
comment on function dp.lock_at_once(oid) is 'internal: locks a relation for reading, without waiting; false if that is impossible';
