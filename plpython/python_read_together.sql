-- What waits in the session, read in the snapshots that dp.meet_shards took, for dp.read_together alone.  STABLE, so that
-- all statements in it read in the snapshot of its caller.
create or replace function dp.python_read_together()
returns boolean
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "read_together")
$python$;

comment on function dp.python_read_together() is 'internal: reads parts on several servers as of one moment';

alter function dp.python_read_together() owner to dp_executor;
