-- The triggers that count changes (sql/hook/changes.c).  Security definer on purpose: whoever writes a
-- relation cannot write what is known of it.  The settings make one text of one key.
create or replace function dp.count_inserts()
returns trigger
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_count_changes';

comment on function dp.count_inserts() is 'internal: counts inserted rows, and that rows were truncated';

create or replace function dp.count_updates()
returns trigger
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = postgres
set extra_float_digits = 1
set bytea_output = hex
as 'MODULE_PATHNAME', 'dpsql_count_changes';

comment on function dp.count_updates() is 'internal: counts updated rows and logs their keys';

alter function dp.count_inserts() owner to dp_executor;
alter function dp.count_updates() owner to dp_executor;

-- Whether this transaction has written any of these relations itself, or still does: it holds the lock
-- of those that write.  Not pinned on purpose: it looks at locks by OID and looks up no name.
create or replace function dp.changed_here(relations oid[])
returns boolean
language c volatile strict parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_changed_here';

comment on function dp.changed_here(oid[]) is
    'internal: whether this transaction itself changed any of the relations';
