-- The body of dp.share_release_with, which alone calls it.  Charges the role that is named; reads no
-- protected row.
create or replace function dp.python_share_release_with(release_name text, role oid)
returns void
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "share_release", name=release_name, role=role)
$python$;

comment on function dp.python_share_release_with(text, oid) is 'internal: dp.share_release_with';

alter function dp.python_share_release_with(text, oid) owner to dp_executor;
