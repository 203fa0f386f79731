-- The body of dp.explain_query, which alone calls it; charges nothing, reads no protected row.
-- All rows in one array of texts, as of dp.python_run; dp.explain_query makes them.
create or replace function dp.python_explain_query(query text, source text)
returns text[]
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "explain", query=query)
$python$;

comment on function dp.python_explain_query(text, text) is 'internal: dp.explain_query';

alter function dp.python_explain_query(text, text) owner to dp_executor;
