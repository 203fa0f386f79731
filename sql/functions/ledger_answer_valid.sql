-- Internal: whether a stored answer may still be returned.
create or replace function dp.ledger_answer_valid(answer dp.answer)
returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return answer.payload is not null
       and (answer.expires_at is null or answer.expires_at > clock_timestamp());
end
$$;
comment on function dp.ledger_answer_valid(dp.answer) is 'internal: whether a stored answer has not expired';
