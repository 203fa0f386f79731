-- The service session: answers one question of the session that it serves, and commits for itself.
-- Security invoker, because a procedure that commits can be nothing else; only dp_executor, as which only the
-- server logs in, may call it.
-- Not pinned on purpose: a procedure that commits can pin nothing; its session has the settings (sql/hook/service.c).
create or replace procedure dp.serve(
    inout rows text[], handler text, query text, parameters text[], arguments text, role oid, asker integer,
    wrote boolean, database oid, settings text, zone text)
language c security invoker
as 'MODULE_PATHNAME', 'dpsql_serve';
comment on procedure dp.serve(text[], text, text, text[], text, oid, integer, boolean, oid, text, text) is
    'internal: answers one question in a service session';

-- Whether the next transaction writes the ledger, or reads.
create or replace function dp.serve_phase(writes boolean)
returns void
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_serve_phase';
comment on function dp.serve_phase(boolean) is 'internal: the kind of the next transaction';

-- Ends the session when its question has been answered.
create or replace function dp.end_service()
returns void
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_end_service';
comment on function dp.end_service() is 'internal: ends the service session after its question';

-- In the backend of whoever asks, for functions of ours: what the service session does for them.
create or replace function dp.ask_service(handler text, query text, arguments text)
returns text[]
language c volatile strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_ask_service';
comment on function dp.ask_service(text, text, text) is 'internal: has the service session do something for a function of ours';
