-- A line in the server's log that no setting can bring to a client, at most
-- 2000 bytes, without the running statement.  For dp_executor.
-- Not pinned on purpose: it writes a line and looks up no name.
create or replace function dp.server_log(message text) returns void
    language c volatile strict parallel restricted security invoker
    as 'MODULE_PATHNAME', 'dpsql_server_log';

comment on function dp.server_log(text) is 'internal: write to the server log only';
