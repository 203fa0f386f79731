-- The doors: each calls the PL/Python function dp.python_<its name>, with the rights and the pinned
-- settings of that one, makes rows of its texts where it returns rows, and raises its refusals as PostgreSQL's own (message, detail, hint, cursor).
-- None is pinned on purpose: a door finds its function in the schema of the extension, whatever the search_path is,
-- and that function pins its own; warnings and notices look up no name.

-- Answer one SELECT with dp_count aggregates privately; the hook sends every such query here.
-- STABLE, so that everything is read in the snapshot of the calling statement.
create or replace function dp.run(query text, parameters text[] default null)
returns setof record
language c stable parallel unsafe security invoker
cost 1000000 rows 100
as 'MODULE_PATHNAME', 'dpsql_door';

comment on function dp.run(text, text[]) is
    'internal: answers one SELECT with dp_count aggregates privately, charging the role in effect';

-- The same, one JSON object per row; dp.query calls it with text that was analysed under the
-- caller's search_path.  Here and below the source is what the caller wrote: errors point into it.
create or replace function dp.run_json(query text, intervals double precision, source text)
returns setof jsonb
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_ask_json';

comment on function dp.run_json(text, double precision, text) is
    'internal: answers one SELECT with dp_count aggregates privately; rows as jsonb';

-- Cost and guarantee of a statement; charges nothing, reads no protected row.
create or replace function dp.explain_query(query text, source text)
returns table (item text, value text)
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_ask_about';

comment on function dp.explain_query(text, text) is
    'internal: says how a statement would be answered and what it would cost; free';

-- Cost and expected error of each aggregate of a statement; charges nothing, reads no protected row.
create or replace function dp.estimate_query(query text, source text)
returns table (
    column_name text, aggregate text, mechanism text, epsilon numeric, delta numeric, rho numeric,
    expected_error double precision, error_95 double precision, bias text, groups bigint,
    epsilon_remaining numeric, delta_remaining numeric, stored boolean, refused_by text, note text)
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_ask_about';

comment on function dp.estimate_query(text, text) is
    'internal: cost and expected error of each aggregate of a statement; free';

-- The smooth sensitivity itself, without noise: owners of every private relation only.
create or replace function dp.sensitivity_of(
    query text, method text, beta double precision, use_keys boolean, source text
)
returns double precision
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_text';

comment on function dp.sensitivity_of(text, text, double precision, boolean, text) is
    'internal: smooth sensitivity of a counting query, for owners';

-- Delete stored answers that have expired; gives no budget back.  Callers: members of dp_owner.
create or replace function dp.purge_answers()
returns bigint
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';

comment on function dp.purge_answers() is
    'deletes stored answers that have expired; what they cost stays spent';

-- Build sketches of the relations of a query: owners of all of them only.
create or replace function dp.create_sketch_of(
    query text, estimators integer, rows integer, source text
)
returns void
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_text';

comment on function dp.create_sketch_of(text, integer, integer, text) is
    'internal: builds sketches of the relations of a counting query, for owners';

-- Build the caller's sketches anew with new seeds; those that cannot be built answer nothing any more,
-- and a warning names each.  Returns of how many statements there are sketches now that were built.
create or replace function dp.rotate_sketch_seeds()
returns bigint
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';

comment on function dp.rotate_sketch_seeds() is
    'draws new secret seeds for the sketches of your relations and builds them anew';

-- A warning for the client before it pays.  For dp_executor: public facts only, since it is
-- shown although dp.python_run pins client_min_messages.
create or replace function dp.warn(message text, detail text, hint text)
returns void
language c volatile strict parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_warn';

comment on function dp.warn(text, text, text) is 'internal: a warning from public facts';

-- A notice for the client, in the same way: when a stored answer was taken.
create or replace function dp.note(message text, detail text, hint text)
returns void
language c volatile strict parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_note';

comment on function dp.note(text, text, text) is 'internal: a notice from public facts';

-- Measures a workload and publishes it; returns the table's name.  dp.release calls it.
create or replace function dp.release_query(
    name text, query text, epsilon text, delta text, mechanism text, postprocess text, weights double precision[],
    source text
)
returns text
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_text';

comment on function dp.release_query(text, text, text, text, text, text, double precision[], text) is
    'internal: dp.release with its statement deparsed';

-- What every mechanism would cost for a workload; charges nothing, reads no protected row.
create or replace function dp.plan_release_query(
    query text, epsilon text, delta text, mechanism text, weights double precision[], postprocess text, source text
)
returns table (
    mechanism_name text, noise text, cost_epsilon double precision, cost_delta double precision, rho double precision, rmse double precision,
    ratio double precision, cells bigint, chosen boolean, note text)
language c stable parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_rows';

comment on function dp.plan_release_query(text, text, text, text, double precision[], text, text) is
    'internal: dp.plan_release with its statement deparsed';

-- Measures a release again.
create or replace function dp.refresh_release_query(name text)
returns text
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';

comment on function dp.refresh_release_query(text) is 'internal: dp.refresh_release';

-- Lets another role read a release and charges it.
create or replace function dp.share_release_with(name text, role oid)
returns void
language c volatile parallel unsafe security invoker
as 'MODULE_PATHNAME', 'dpsql_door_value';

comment on function dp.share_release_with(text, oid) is 'internal: dp.share_release';
