-- Whether the caller may administer (member of dp_owner, or superuser) and so see everything.
create or replace function dp.caller_administers()
returns boolean
language sql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
    select pg_catalog.pg_has_role(dp.caller(), 'dp_owner', 'usage')
$$;
comment on function dp.caller_administers() is 'whether the caller is a member of dp_owner';
