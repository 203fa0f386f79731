-- The body of dp.purge_answers, which alone calls it.  In the service session, so that no
-- transaction of the caller holds the ledger's rows.
create or replace function dp.python_purge_answers()
returns bigint
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "purge_answers")
$python$;

comment on function dp.python_purge_answers() is 'internal: dp.purge_answers';

alter function dp.python_purge_answers() owner to dp_executor;
