-- The body of dp.sensitivity_of, which alone calls it: owners of every private relation only.
create or replace function dp.python_sensitivity_of(
    query text, method text, beta double precision, use_keys boolean, source text
)
returns double precision
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "sensitivity", query=query, method=method, beta=beta, use_keys=use_keys)
$python$;

comment on function dp.python_sensitivity_of(text, text, double precision, boolean, text) is
    'internal: dp.sensitivity_of';

alter function dp.python_sensitivity_of(text, text, double precision, boolean, text)
    owner to dp_executor;
