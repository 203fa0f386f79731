-- The body of dp.measure_statistics, which alone calls it.  STABLE, so that everything is counted in
-- the snapshot of the calling statement.
create or replace function dp.python_measure_statistics(relation oid, questions jsonb)
returns jsonb
language plpython3u stable parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "measure_statistics", relation=relation, questions=questions)
$python$;

comment on function dp.python_measure_statistics(oid, jsonb) is 'internal: dp.measure_statistics';

alter function dp.python_measure_statistics(oid, jsonb) owner to dp_executor;
