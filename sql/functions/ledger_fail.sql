-- Notes that a charged question will not be answered.  The charge stays: private rows may have
-- been read (PRIVACY.md section 7).  If "counts" is false, the
-- asker or a timeout ended it, which is not a failure.  Only dp_ledger and service sessions may call it.
create or replace function dp.ledger_fail(spend_id bigint, counts boolean)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    update dp.spend as s set state = 'failed'
     where s.id = ledger_fail.spend_id and s.state = 'charged';
    update dp.answer as a
       set pending_spend = null, holder_pid = null, holder_start = null
     where a.pending_spend = ledger_fail.spend_id
       and a.key = (select s.key from dp.spend as s where s.id = ledger_fail.spend_id);
    if counts then
        update dp.failure as f set failed_at = clock_timestamp()
         where f.spend = ledger_fail.spend_id and f.failed_at is null;
    else
        delete from dp.failure as f where f.spend = ledger_fail.spend_id and f.failed_at is null;
    end if;
end
$$;
comment on function dp.ledger_fail(bigint, boolean) is 'internal: records that a charged question has no answer';

alter function dp.ledger_fail(bigint, boolean) owner to dp_ledger;
