-- The smooth sensitivity itself, without noise: owners of every private relation only.
create or replace function dp.sensitivity_of(query text, method text, beta double precision, use_keys boolean)
returns double precision
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
return GD["dpsql"].call(plpy, GD, "sensitivity", query=query, method=method, beta=beta, use_keys=use_keys)
$python$;

comment on function dp.sensitivity_of(text, text, double precision, boolean) is
    'smooth sensitivity of a counting query, for owners';

alter function dp.sensitivity_of(text, text, double precision, boolean) owner to dp_executor;
