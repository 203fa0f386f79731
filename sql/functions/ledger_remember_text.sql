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
