-- Answer one SELECT with dp_count aggregates privately; the hook sends every such query here.
-- Charges the role in effect. Text and parameters are analysed afresh: nothing in them is trusted.
-- STABLE, so that everything is read in the snapshot of the calling statement.
create or replace function dp.run(query text, parameters text[] default null)
returns setof record
language plpython3u stable parallel unsafe security definer
cost 1000000 rows 100
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
set datestyle = 'ISO, YMD'
set intervalstyle = postgres
set extra_float_digits = 1
set transform_null_equals = off
set quote_all_identifiers = off
set row_security = off
set client_min_messages = error
set debug_print_parse = off
set debug_print_rewritten = off
set debug_print_plan = off
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "run", query=query, parameters=parameters)
$python$;

comment on function dp.run(text, text[]) is
    'answers one SELECT with dp_count aggregates privately, charging the role in effect';

alter function dp.run(text, text[]) owner to dp_executor;
