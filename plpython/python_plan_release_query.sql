-- The body of dp.plan_release_query, which alone calls it; charges nothing, reads no protected row.
-- All rows in one array of texts; dp.plan_release_query makes them.
create or replace function dp.python_plan_release_query(
    query text, epsilon text, delta text, mechanism text, weights double precision[], postprocess text,
    source text
)
returns text[]
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "plan_release", query=query, terms=(epsilon, delta, mechanism, postprocess, weights))
$python$;

comment on function dp.python_plan_release_query(text, text, text, text, double precision[], text, text) is
    'internal: dp.plan_release_query';

alter function dp.python_plan_release_query(text, text, text, text, double precision[], text, text)
    owner to dp_executor;
