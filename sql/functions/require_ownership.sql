-- Internal: refuses callers who are not members of dp_owner, or do not own the relation.
create or replace function dp.require_ownership(relation regclass)
returns void
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    owner_oid oid;
begin
    perform dp.require_administrator();
    if relation is null then
        raise exception using errcode = 'PD040', message = 'parameter "relation" must not be null';
    end if;
    select c.relowner into owner_oid from pg_catalog.pg_class as c where c.oid = relation;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = pg_catalog.format('relation %s does not exist', relation);
    end if;
    if not pg_catalog.pg_has_role(dp.caller(), owner_oid, 'usage') then
        raise exception using
            errcode = 'PD070',
            message = pg_catalog.format('must be owner of relation %s', relation);
    end if;
end
$$;
comment on function dp.require_ownership(regclass) is 'internal: raises PD070 unless the caller owns the relation';
