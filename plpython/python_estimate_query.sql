-- The body of dp.estimate_query, which alone calls it; charges nothing, reads no protected row.
-- All rows in one array of texts, as of dp.python_run; dp.estimate_query makes them.
create or replace function dp.python_estimate_query(query text, source text)
returns text[]
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "estimate", query=query)
$python$;

comment on function dp.python_estimate_query(text, text) is 'internal: dp.estimate_query';

alter function dp.python_estimate_query(text, text) owner to dp_executor;
