-- The body of dp.refresh_release_query, which alone calls it.  Charges the role in effect.
create or replace function dp.python_refresh_release_query(release_name text)
returns text
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "refresh_release", name=release_name)
$python$;

comment on function dp.python_refresh_release_query(text) is 'internal: dp.refresh_release_query';

alter function dp.python_refresh_release_query(text) owner to dp_executor;
