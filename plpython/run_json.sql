-- Answer one statement privately, one JSON object per row; dp.query calls it with text that was
-- analysed under the caller's search_path.
create or replace function dp.run_json(query text)
returns setof jsonb
language plpython3u stable parallel unsafe security definer
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
return GD["dpsql"].call(plpy, GD, "run_json", query=query)
$python$;

comment on function dp.run_json(text) is
    'answers one SELECT with dp_count aggregates privately; rows as jsonb';

alter function dp.run_json(text) owner to dp_executor;
