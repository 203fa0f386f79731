-- The body of dp.synthesis_report, which alone calls it.  Security invoker on purpose: the synthetic tables, and
-- the original ones if their owner asks for that, are read with the rights of whoever asks.
-- All rows in one array of texts, as of dp.python_run; dp.synthesis_report makes them.
create or replace function dp.python_synthesis_report(target name, true_data boolean)
returns text[]
language plpython3u volatile parallel unsafe security invoker
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "synthesis_report", target=target, true_data=true_data)
$python$;

comment on function dp.python_synthesis_report(name, boolean) is 'internal: dp.synthesis_report';
