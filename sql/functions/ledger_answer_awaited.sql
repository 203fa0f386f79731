-- Internal: whether another service session that is alive computes the answer.  It ends with the backend that
-- asked, so nothing needs cleaning up.  A question that the calling session left open was given up.  (An advisory
-- lock would do too, but any role can take those and make everybody wait.)
-- Security definer on purpose: only its own role sees when a backend started.
create or replace function dp.ledger_answer_awaited(answer dp.answer)
returns boolean
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return answer.pending_spend is not null
       and answer.holder_pid <> pg_backend_pid()
       and exists (select from pg_stat_get_activity(answer.holder_pid) as a
                    where a.backend_start = answer.holder_start);
end
$$;
comment on function dp.ledger_answer_awaited(dp.answer) is 'internal: whether somebody alive computes an answer';
