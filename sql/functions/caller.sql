-- The role that asks: the SET ROLE target if there is one, else the session user.  Inside a
-- definer function current_user is the definer and would be wrong, and the setting "role" holds a
-- name that may belong to another role by now.  Evaluated at execution.
create or replace function dp.caller()
returns oid
language c stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_caller';
comment on function dp.caller() is 'internal: role that budgets and permissions are looked up for';
