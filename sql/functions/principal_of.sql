-- Internal: the stable ledger identity of a role, made if missing.  A role that was dropped and
-- made again, under its name or under one that it ever paid with, continues the old losses.
create or replace function dp.principal_of(role regrole)
returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    found_id integer;
    current_name name;
begin
    select r.rolname into current_name from pg_catalog.pg_roles as r where r.oid = role;
    if not found then
        raise exception using errcode = 'PD040', message = format('role %s does not exist', role);
    end if;
    select p.id into found_id from dp.principal as p where p.role_oid = role;
    if found then
        return found_id;
    end if;
    select p.id into found_id
      from dp.principal as p
     where (p.role_name = current_name
            or exists (select from dp.spend as s where s.principal = p.id and s.role_name = current_name))
       and not exists (select from pg_catalog.pg_roles as r where r.oid = p.role_oid)
     order by p.id desc
     limit 1;
    if found then
        update dp.principal as p set role_oid = role where p.id = found_id;
    else
        insert into dp.principal (role_oid, role_name) values (role, current_name)
        returning id into found_id;
    end if;
    return found_id;
end
$$;
comment on function dp.principal_of(regrole) is 'internal: ledger identity of a role';
