-- Bounds of a confidence interval (level dp.confidence) around a dp_count or dp_sum of the same statement:
-- select dp_count(*), dp_interval_low(dp_count(*)), dp_interval_high(dp_count(*)) from ...
-- They exist only inside statements that the hook or dp.query answers; executed, they raise PD060.
create or replace function public.dp_interval_low(count bigint)
returns bigint
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_low was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_low(bigint) is
    'lower bound of the dp.confidence interval around a dp_count; free, needs a public noise scale';

create or replace function public.dp_interval_high(count bigint)
returns bigint
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_high was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_high(bigint) is
    'upper bound of the dp.confidence interval around a dp_count; free, needs a public noise scale';

create or replace function public.dp_interval_low(sum numeric)
returns numeric
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_low was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_low(numeric) is
    'lower bound of the dp.confidence interval around a dp_sum; free, needs a public noise scale';

create or replace function public.dp_interval_low(sum double precision)
returns double precision
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_low was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_low(double precision) is
    'lower bound of the dp.confidence interval around a dp_sum; free, needs a public noise scale';

create or replace function public.dp_interval_low(sum real)
returns real
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_low was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_low(real) is
    'lower bound of the dp.confidence interval around a dp_sum; free, needs a public noise scale';

create or replace function public.dp_interval_high(sum numeric)
returns numeric
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_high was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_high(numeric) is
    'upper bound of the dp.confidence interval around a dp_sum; free, needs a public noise scale';

create or replace function public.dp_interval_high(sum double precision)
returns double precision
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_high was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_high(double precision) is
    'upper bound of the dp.confidence interval around a dp_sum; free, needs a public noise scale';

create or replace function public.dp_interval_high(sum real)
returns real
language plpgsql immutable strict parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'dp_interval_high was not intercepted' using
        errcode = 'PD060',
        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
end
$body$;

comment on function public.dp_interval_high(real) is
    'upper bound of the dp.confidence interval around a dp_sum; free, needs a public noise scale';
