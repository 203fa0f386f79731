-- The stored answer for an exact text, if this role has paid for it: reads only, so that a
-- repeated question costs one round trip and no commit.  No row: use ledger_open.
-- Only dp_ledger may call it.
create or replace function dp.ledger_peek(role_oid oid, text_key bytea)
returns table (spend_id bigint, payload text, taken_at timestamptz)
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    me integer;
    asked_key bytea;
    found_answer dp.answer;
begin
    if not dp.ledger_in_place() then
        return;
    end if;
    select p.id into me
      from dp.principal as p join dp.role_budget as b on b.principal = p.id
     where p.role_oid = ledger_peek.role_oid;
    select t.key into asked_key from dp.answer_text as t where t.text_key = ledger_peek.text_key;
    select a.* into found_answer from dp.answer as a where a.key = dp.ledger_own_key(asked_key, me);
    if not found or not dp.ledger_answer_valid(found_answer) then
        select a.* into found_answer from dp.answer as a where a.key = asked_key;
    end if;
    -- By itself: as a condition above, it was planned as a join with all that was ever charged.
    if found and exists (select from dp.spend as s where s.source = found_answer.spend and s.principal = me)
       and dp.ledger_answer_valid(found_answer) then
        spend_id := found_answer.spend;
        payload := found_answer.payload;
        taken_at := found_answer.taken_at;
        return next;
    end if;
end
$$;
comment on function dp.ledger_peek(oid, bytea) is 'internal: stored answer for an exact text';

alter function dp.ledger_peek(oid, bytea) owner to dp_ledger;
