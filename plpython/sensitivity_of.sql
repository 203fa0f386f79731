-- The smooth sensitivity itself, without noise: owners of every private relation only.
create or replace function dp.sensitivity_of(query text, method text, beta double precision, use_keys boolean)
returns double precision
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "sensitivity", query=query, method=method, beta=beta, use_keys=use_keys)
$python$;

comment on function dp.sensitivity_of(text, text, double precision, boolean) is
    'smooth sensitivity of a counting query, for owners';

alter function dp.sensitivity_of(text, text, double precision, boolean) owner to dp_executor;
