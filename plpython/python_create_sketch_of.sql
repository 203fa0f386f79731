-- The body of dp.create_sketch_of, which alone calls it: owners of all its relations only.
create or replace function dp.python_create_sketch_of(
    query text, estimators integer, rows integer, source text
)
returns void
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "create_sketch", query=query, estimators=estimators, rows=rows)
$python$;

comment on function dp.python_create_sketch_of(text, integer, integer, text) is
    'internal: dp.create_sketch_of';

alter function dp.python_create_sketch_of(text, integer, integer, text) owner to dp_executor;
