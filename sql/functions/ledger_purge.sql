-- Deletes stored answers that can never be returned again: older than the owner of one of their
-- relations allows, or from before the last change of policy; those of releases that exist outlive
-- changes, which may be of what they do not read.  The spends stay, with all that they
-- cost.  (An answer that the author of a declaration computed before committing it counts as older
-- than that change.)  Returns how many were deleted.  Only dp_ledger may call it.
create or replace function dp.ledger_purge()
returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    current_version uuid := (select v.version from dp.catalog_version as v);
    purged bigint;
begin
    with old as materialized (
        select a.key, a.pending_spend is not null as awaited
          from dp.answer as a
         where a.payload is not null
           and (a.catalog_version is distinct from current_version and not exists (select from dp.stored_release as r where r.spend = a.spend)
                or not dp.ledger_answer_valid(a))
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
