-- Forgets the declared domain of a column.  Callers: the relation's owner, if a member of
-- dp_owner.  Security definer on purpose: writes the catalogue.
create or replace function dp.drop_domain(relation regclass, column_name name)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.require_ownership(relation);
    if column_name is null then
        raise exception using errcode = 'PD040', message = 'parameter "column_name" must not be null';
    end if;
    delete from dp.column_domain as d
     where d.relation = drop_domain.relation and d.column_name = drop_domain.column_name;
    if not found then
        raise exception using
            errcode = 'PD040', message = format('column %I of relation %s has no domain', column_name, relation);
    end if;
    perform dp.touch_catalogue();
end
$$;
comment on function dp.drop_domain(regclass, name) is 'take back dp.set_domain';
