-- Internal: the tokens of stored answers that are valid under the current declarations of these objects.  No question
-- finds a stored answer of the same objects that has another token.  The second token is for answers of releases: it leaves
-- dp.declared_text out, because they stay valid after changes of domains that they do not read.
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

-- Internal: deletes stored answers with their texts, and tells how many.  Of one that is being computed anew the row stays,
-- without the old answer.  The caller holds their rows.
create or replace function dp.ledger_delete_answers(keys bytea[])
returns bigint
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with emptied as (
        update dp.answer as a set spend = null, payload = null, taken_at = null
         where a.key = any (keys) and a.pending_spend is not null
        returning a.key),
    deleted as (
        delete from dp.answer as a where a.key = any (keys) and a.pending_spend is null
        returning a.key),
    forgotten as (
        delete from dp.answer_text as t where t.key = any (keys))
    select (select count(*) from emptied) + (select count(*) from deleted)
$$;
comment on function dp.ledger_delete_answers(bytea[]) is 'internal: deletes stored answers and their texts';

-- Deletes stored answers that can never be returned again: those that are older than the owner of one of their relations
-- allows, and those from before the last change of the declarations of their relations.  Answers of existing releases stay
-- valid after such a change.  The spends and their costs stay.  Only dp_ledger and service sessions may call it.
-- One call looks at 100 answers with keys above "after": analysts decide how many answers there are, and a call must end
-- before a timeout.  Returns the number of deleted answers and the last key that was looked at (NULL: no key was left).
create or replace function dp.ledger_purge(after bytea, out purged bigint, out last_key bytea)
language plpgsql volatile parallel unsafe security definer
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
        select l.key
          from looked_at as l left join standing as s on s.objects = l.objects
         where not dp.ledger_answer_valid(row(l.*)::dp.answer)
            or l.token <> all (s.tokens) and not exists (select from dp.stored_release as r where r.spend = l.spend))
    select dp.ledger_delete_answers(array(select o.key from old as o)),
           (select l.key from looked_at as l order by l.key desc limit 1)
      into purged, last_key;
end
$$;
comment on function dp.ledger_purge(bytea) is 'internal: deletes stored answers that have expired';

alter function dp.ledger_purge(bytea) owner to dp_ledger;
