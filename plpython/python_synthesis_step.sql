-- The body of dp.synthesis_step, which alone calls it.  Security invoker on purpose: the tables are the
-- caller's, and nothing on them runs with the rights of another role.
create or replace function dp.python_synthesis_step(job bigint)
returns boolean
language plpython3u volatile parallel unsafe security invoker
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "synthesis_step", job=job)
$python$;

comment on function dp.python_synthesis_step(bigint) is 'internal: dp.synthesis_step';
