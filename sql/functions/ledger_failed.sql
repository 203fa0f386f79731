-- Internal: whether a charge without an answer counts as a failure.  It does if it was recorded as failed, or if its
-- service session has ended.  A service session ends with the backend that asked.  Everybody is told the same:
-- the owner is shown what refuses the next question.  A standby sees no backends of its primary.
-- Security definer on purpose: only its own role sees when a backend started.
create or replace function dp.ledger_failed(failure dp.failure)
returns boolean
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return failure.failed_at is not null
        or not pg_is_in_recovery()
           and not exists (select from pg_stat_get_activity(failure.holder_pid) as a
                            where a.backend_start = failure.holder_start);
end
$$;
comment on function dp.ledger_failed(dp.failure) is 'internal: whether a charge counts as a failure';
