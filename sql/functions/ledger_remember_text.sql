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
