-- The stored answer for an exact text, if this role has paid for it: reads only, so that a
-- repeated question costs one round trip and no commit.  No row: use ledger_open.
-- Only dp_ledger and service sessions may call it.
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
    found_answer := dp.ledger_paid_answer(asked_key, me);
    if found_answer.spend is not null then
        spend_id := found_answer.spend;
        payload := found_answer.payload;
        taken_at := found_answer.taken_at;
        return next;
    end if;
end
$$;
comment on function dp.ledger_peek(oid, bytea) is 'internal: stored answer for an exact text';

alter function dp.ledger_peek(oid, bytea) owner to dp_ledger;
