-- The body of dp.estimate_query, which alone calls it; charges nothing, reads no protected row.
create or replace function dp.python_estimate_query(query text, source text)
returns table (
    column_name text, aggregate text, mechanism text, epsilon numeric, delta numeric, rho numeric,
    expected_error double precision, error_95 double precision, bias text, groups bigint,
    epsilon_remaining numeric, delta_remaining numeric, stored boolean, refused_by text, note text)
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "estimate", query=query)
$python$;

comment on function dp.python_estimate_query(text, text) is 'internal: dp.estimate_query';

alter function dp.python_estimate_query(text, text) owner to dp_executor;
