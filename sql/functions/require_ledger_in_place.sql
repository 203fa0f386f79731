-- Internal: refuses changes of budgets while role oids may be another cluster's.
create or replace function dp.require_ledger_in_place()
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from dp.ledger_identity) and not dp.ledger_in_place() then
        raise exception using
            errcode = 'PD051',
            message = 'the privacy ledger was restored or promoted and nobody acknowledged it',
            detail = 'Spends that were made since the backup are missing from it.',
            hint = 'SELECT dp.acknowledge_restore(''<what happened>''); then dp.record_loss for what is known to be missing.';
    end if;
end
$$;
comment on function dp.require_ledger_in_place() is 'internal: raises PD051 after an unacknowledged restore';
