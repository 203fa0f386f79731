-- What dp.read_as_owner runs, which alone calls it, as the owner of what is read.
create or replace function dp.python_read_as_owner()
returns boolean
language plpython3u volatile parallel unsafe security invoker
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "read_as_owner")
$python$;

comment on function dp.python_read_as_owner() is 'internal: reads for dp.synthesis_report';
