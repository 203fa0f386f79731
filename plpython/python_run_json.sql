-- The body of dp.run_json, which alone calls it and tells its errors by means of the source.
-- All rows in one array of texts, as of dp.python_run; dp.run_json makes them.
create or replace function dp.python_run_json(query text, intervals double precision, source text)
returns text[]
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "run_json", query=query, intervals=intervals)
$python$;

comment on function dp.python_run_json(text, double precision, text) is 'internal: dp.run_json';

alter function dp.python_run_json(text, double precision, text) owner to dp_executor;
