-- Stores a computed (perturbed) answer; returns when it was taken: "as_of", or now.  If the payload is
-- NULL, the answer is not stored, because its rows may never be committed (PRIVACY.md section 7).  With "durable" false the
-- commit may be lost in a crash of the server: the charge stays and asking again is charged again,
-- which the ledger shows as "charged" but never answered.  Only dp_ledger may call it.
create or replace function dp.ledger_finish(
    spend_id bigint,
    payload text,
    durable boolean,
    as_of timestamptz default null)
returns timestamptz
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    spent dp.spend;
    now timestamptz := coalesce(as_of, clock_timestamp());
begin
    reset idle_session_timeout;
    if not durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    delete from dp.failure as f where f.spend = ledger_finish.spend_id;
    update dp.spend as s set state = 'answered'
     where s.id = ledger_finish.spend_id and s.state = 'charged'
    returning s.* into spent;
    if not found then
        return null;
    end if;
    if payload is null then
        delete from dp.answer as a where a.key = spent.key and a.pending_spend = spent.id;
        return now;
    end if;
    update dp.answer as a
       set spend = spent.id, payload = ledger_finish.payload, taken_at = now,
           pending_spend = null, holder_pid = null, holder_start = null
     where a.key = spent.key and a.pending_spend = spent.id;
    return now;
end
$$;
comment on function dp.ledger_finish(bigint, text, boolean, timestamptz) is 'internal: stores a computed answer';

alter function dp.ledger_finish(bigint, text, boolean, timestamptz) owner to dp_ledger;
