-- Internal: refuses callers who are not members of dp_owner.
create or replace function dp.require_administrator()
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if not dp.caller_administers() then
        raise exception using
            errcode = 'PD070',
            message = 'permission denied',
            detail = 'Only members of dp_owner may administer privacy.',
            hint = 'Ask a superuser for GRANT dp_owner TO <role>.';
    end if;
end
$$;
comment on function dp.require_administrator() is 'internal: raises PD070 unless the caller administers';
