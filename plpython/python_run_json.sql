-- The body of dp.run_json, which alone calls it and tells its errors by means of the source.
create or replace function dp.python_run_json(query text, source text)
returns setof jsonb
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "run_json", query=query)
$python$;

comment on function dp.python_run_json(text, text) is 'internal: dp.run_json';

alter function dp.python_run_json(text, text) owner to dp_executor;
