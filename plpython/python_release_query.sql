-- The body of dp.release_query, which alone calls it.  Charges the role in effect.  What it reads it
-- reads through dp.python_measure_release, in one snapshot.
create or replace function dp.python_release_query(
    release_name text, query text, epsilon text, delta text, mechanism text, postprocess text, weights double precision[],
    source text
)
returns text
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "release", name=release_name, query=query, terms=(epsilon, delta, mechanism, postprocess, weights))
$python$;

comment on function dp.python_release_query(text, text, text, text, text, text, double precision[], text) is
    'internal: dp.release_query';

alter function dp.python_release_query(text, text, text, text, text, text, double precision[], text)
    owner to dp_executor;
