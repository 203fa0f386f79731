-- Internal: whether a stored answer hangs on what is declared no more, so that no question finds it.  Answers of
-- releases outlive changes of domains that they do not read: their token goes without dp.declared_text.
-- Security definer on purpose: reads the catalogue, for readers of dp.ledger_status too.
create or replace function dp.ledger_answer_lost(answer dp.answer)
returns boolean
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    standing text;
begin
    if answer.objects is null or answer.token is null then
        return false;
    end if;
    standing := regexp_replace(dp.fingerprint_text(answer.objects), '#[^#]*$', '');
    return answer.token not in (
        sha256(convert_to(standing, 'UTF8')), sha256(convert_to(substr(standing, 1 + strpos(standing, '|')), 'UTF8')));
end
$$;
comment on function dp.ledger_answer_lost(dp.answer) is 'internal: whether a change of declarations ended a stored answer';

-- Deletes stored answers that can never be returned again: older than the owner of one of their
-- relations allows, or from before the last change of what is declared of these; those of releases that exist
-- outlive such changes.  The spends stay, with all that they cost.  Returns how many were deleted.  Only dp_ledger may call it.
create or replace function dp.ledger_purge()
returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    purged bigint;
begin
    with old as materialized (
        select a.key, a.pending_spend is not null as awaited
          from dp.answer as a
         where a.payload is not null
           and (not dp.ledger_answer_valid(a)
                or not exists (select from dp.stored_release as r where r.spend = a.spend) and dp.ledger_answer_lost(a))
         order by a.key
           for update skip locked),
    emptied as (
        update dp.answer as a
           set spend = null, payload = null, taken_at = null
          from old
         where a.key = old.key and old.awaited
        returning a.key),
    deleted as (
        delete from dp.answer as a using old where a.key = old.key and not old.awaited
        returning a.key),
    forgotten as (
        delete from dp.answer_text as t using old where t.key = old.key)
    select (select count(*) from emptied) + (select count(*) from deleted) into purged;
    return purged;
end
$$;
comment on function dp.ledger_purge() is 'internal: deletes stored answers that have expired';
