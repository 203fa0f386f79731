-- Stores a computed (perturbed) answer; returns when it was taken, NULL if the charge is unknown or was given up.  The
-- commit may be lost in a crash of the server: the charge stays and asking again is charged again, which the ledger shows
-- as "charged" but never answered.  Only dp_ledger and service sessions may call it.
create or replace function dp.ledger_finish(spend_id bigint, payload text)
returns timestamptz
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    spent dp.spend;
    now timestamptz := clock_timestamp();
begin
    perform set_config('synchronous_commit', 'off', true);
    delete from dp.failure as f where f.spend = ledger_finish.spend_id;
    update dp.spend as s set state = 'answered'
     where s.id = ledger_finish.spend_id and s.state = 'charged'
    returning s.* into spent;
    if not found then
        return null;
    end if;
    update dp.answer as a
       set spend = spent.id, payload = ledger_finish.payload, taken_at = now,
           pending_spend = null, holder_pid = null, holder_start = null
     where a.key = spent.key and a.pending_spend = spent.id;
    return now;
end
$$;
comment on function dp.ledger_finish(bigint, text) is 'internal: stores a computed answer';

alter function dp.ledger_finish(bigint, text) owner to dp_ledger;
