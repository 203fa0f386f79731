-- Whether the caller may administer (member of dp_owner, or superuser) and so see everything.
create or replace function dp.caller_administers()
returns boolean
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return pg_has_role(dp.caller(), 'dp_owner', 'usage');
end
$$;
comment on function dp.caller_administers() is 'internal: whether the caller is a member of dp_owner';
