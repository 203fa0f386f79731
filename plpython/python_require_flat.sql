-- The body of dp.require_flat, which alone calls it; reads no row.
create or replace function dp.python_require_flat(query text)
returns void
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "require_flat", query=query)
$python$;

comment on function dp.python_require_flat(text) is 'internal: dp.require_flat';

alter function dp.python_require_flat(text) owner to dp_executor;
