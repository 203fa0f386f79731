-- Internal: whether a charge without an answer will have none: it failed, or its ledger connection is gone, whose
-- process ends with the backend that asked.  This very connection asks again, so it gave up what it left open.  A
-- standby sees no backends of its primary.
-- Security definer on purpose: when a backend began is shown to its own role only.
create or replace function dp.ledger_failed(failure dp.failure)
returns boolean
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return failure.failed_at is not null
        or failure.holder_pid = pg_backend_pid()
        or not pg_is_in_recovery()
           and not exists (select from pg_stat_get_activity(failure.holder_pid) as a
                            where a.backend_start = failure.holder_start);
end
$$;
comment on function dp.ledger_failed(dp.failure) is 'internal: whether a charge will have no answer';
