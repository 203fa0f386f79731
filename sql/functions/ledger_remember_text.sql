-- Internal: remembers that an exact text asks a known question; a standby cannot, and looks again.
create or replace function dp.ledger_remember_text(text_key bytea, key bytea)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if text_key is null or pg_is_in_recovery() or exists (
        select from dp.answer_text as t
         where t.text_key = ledger_remember_text.text_key and t.key = ledger_remember_text.key) then
        return;
    end if;
    -- Other words are free, so that their number is limited; further ones are analysed again.
    if (select count(*) from (select from dp.answer_text as t where t.key = ledger_remember_text.key limit 64) as known) = 64 then
        return;
    end if;
    insert into dp.answer_text as t (text_key, key)
    values (ledger_remember_text.text_key, ledger_remember_text.key)
    on conflict on constraint answer_text_pkey do update set key = excluded.key;
end
$$;
comment on function dp.ledger_remember_text(bytea, bytea) is 'internal: maps an exact text to its question';

-- Internal: the key of a role's own answer to a question, which it asked again although another role has paid for the
-- answer that is stored.
create or replace function dp.ledger_own_key(key bytea, principal integer)
returns bytea
language sql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
return sha256(key || int4send(principal));
comment on function dp.ledger_own_key(bytea, integer) is 'internal: key of an answer that one role alone is shown';

-- Internal: whether a stored answer is valid and another role has paid for it.
create or replace function dp.ledger_others_paid(answer dp.answer, principal integer)
returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (select from dp.spend as s
                    where s.source = answer.spend and s.principal <> ledger_others_paid.principal)
       and dp.ledger_answer_valid(answer);
end
$$;
comment on function dp.ledger_others_paid(dp.answer, integer) is 'internal: whether other roles keep a stored answer';

-- Internal: the valid stored answer to a question that a role has paid for; NULL if there is none.  If it has paid for
-- the shared answer and for one of its own, the newer.
create or replace function dp.ledger_paid_answer(key bytea, principal integer)
returns dp.answer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    candidate bytea;
    found_answer dp.answer;
    newest dp.answer;
begin
    foreach candidate in array array[dp.ledger_own_key(ledger_paid_answer.key, principal), ledger_paid_answer.key] loop
        select a.* into found_answer from dp.answer as a where a.key = candidate;
        -- By itself: as a condition above, it was planned as a join with all that was ever charged.
        if (newest.taken_at is null or newest.taken_at < found_answer.taken_at)
           and exists (select from dp.spend as s
                        where s.source = found_answer.spend and s.principal = ledger_paid_answer.principal)
           and dp.ledger_answer_valid(found_answer) then
            newest := found_answer;
        end if;
    end loop;
    return newest;
end
$$;
comment on function dp.ledger_paid_answer(bytea, integer) is 'internal: stored answer that a role has paid for';
