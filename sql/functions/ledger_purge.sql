-- Internal: tokens of the answers that rely on what is declared of these objects now.  A stored answer of the same objects
-- with another token is found by no question any more.  Answers of releases outlive changes of domains that they do not
-- read: their token goes without dp.declared_text.
-- Security definer on purpose: reads the catalogue, for readers of dp.ledger_status too.
create or replace function dp.ledger_standing_tokens(objects oid[])
returns bytea[]
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    standing constant text := regexp_replace(dp.fingerprint_text(objects), '#[^#]*$', '');
begin
    return array[
        sha256(convert_to(standing, 'UTF8')), sha256(convert_to(substr(standing, 1 + strpos(standing, '|')), 'UTF8'))];
end
$$;
comment on function dp.ledger_standing_tokens(oid[]) is 'internal: tokens of stored answers that no change of declarations ended';

-- Deletes stored answers that can never be returned again: older than the owner of one of their
-- relations allows, or from before the last change of what is declared of these; those of releases that exist
-- outlive such changes.  The spends stay, with all that they cost.  Only dp_ledger may call it.
-- Looks at 100 answers with keys above "after", since analysts decide how many there are, and one call must end in time.
-- Returns how many were deleted and the last key that was looked at; NULL if none was.
create or replace function dp.ledger_purge(after bytea, out purged bigint, out last_key bytea)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    with looked_at as materialized (
        select a.* from dp.answer as a
         where a.payload is not null and a.key > after
         order by a.key limit 100
           for update skip locked),
    standing as materialized (
        select o.objects, dp.ledger_standing_tokens(o.objects) as tokens
          from (select distinct l.objects from looked_at as l where l.objects is not null and l.token is not null) as o),
    old as materialized (
        select l.key, l.pending_spend is not null as awaited
          from looked_at as l left join standing as s on s.objects = l.objects
         where not dp.ledger_answer_valid(row(l.*)::dp.answer)
            or l.token <> all (s.tokens) and not exists (select from dp.stored_release as r where r.spend = l.spend)),
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
    select (select count(*) from emptied) + (select count(*) from deleted),
           (select l.key from looked_at as l order by l.key desc limit 1)
      into purged, last_key;
end
$$;
comment on function dp.ledger_purge(bytea) is 'internal: deletes stored answers that have expired';
