-- Internal: whether a stored answer may still be returned: not once it is older than the owner of
-- any of its relations allows, as of now.  A change of policy gives questions other keys, and that
-- data changed never matters (PRIVACY.md section 7).
create or replace function dp.ledger_answer_valid(answer dp.answer)
returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return answer.payload is not null
       and not exists (
           select
             from dp.spend as s
             join dp.root as r on r.id = any (s.roots)
            where s.id = answer.spend
              and answer.taken_at + r.answer_lifetime <= clock_timestamp());
end
$$;
comment on function dp.ledger_answer_valid(dp.answer) is 'internal: whether a stored answer has not expired';
