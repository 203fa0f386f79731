-- Delete stored answers that have expired; gives no budget back.  Members of dp_owner.
-- On the ledger's own connection, so that no transaction of the caller holds the ledger's rows.
create or replace function dp.purge_answers()
returns bigint
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "purge_answers")
$python$;

comment on function dp.purge_answers() is
    'deletes stored answers that have expired; what they cost stays spent';

alter function dp.purge_answers() owner to dp_executor;
