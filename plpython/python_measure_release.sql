-- What dp.python_release_query reads, for it alone.  STABLE, so that everything is read in the
-- snapshot of the calling statement.
create or replace function dp.python_measure_release()
returns boolean
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "measure_release")
$python$;

comment on function dp.python_measure_release() is 'internal: reads for dp.release';

alter function dp.python_measure_release() owner to dp_executor;
