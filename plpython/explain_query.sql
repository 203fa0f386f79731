-- Explain the cost and the guarantee of a statement; charges nothing, reads no protected row.
create or replace function dp.explain_query(query text)
returns table (item text, value text)
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
return GD["dpsql"].call(plpy, GD, "explain", query=query)
$python$;

comment on function dp.explain_query(text) is
    'says how a statement would be answered and what it would cost; free';

alter function dp.explain_query(text) owner to dp_executor;
