-- Internal: whether the caller is, or is a member of, the role that made something that was paid for.  Roles are known
-- by oid in the database where it was made, and by name in one that it was restored into.
-- Security definer on purpose: reads the catalogue.
create or replace function dp.caller_made(role_oid oid, role_name name, incarnation uuid)
returns boolean
language sql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from pg_roles as r
                    where dp.is_maker(r.oid, caller_made.role_oid, caller_made.role_name, caller_made.incarnation)
                      and pg_has_role(dp.caller(), r.oid, 'usage'))
$$;
comment on function dp.caller_made(oid, name, uuid) is 'internal: whether the caller made a release or a synthesis';

-- Internal: whether a role is the one that made a release or a synthesis; in a restored database by its name.
create or replace function dp.is_maker(role oid, role_oid oid, role_name name, incarnation uuid)
returns boolean
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when is_maker.incarnation = (select i.token from dp.ledger_incarnation as i)
                then role = role_oid else pg_get_userbyid(role) = role_name end
$$;
comment on function dp.is_maker(oid, oid, name, uuid) is 'internal: whether a role made a release or a synthesis';

-- Internal: whether the caller is a member of dp_owner and owns every protected relation that a release or a synthesis
-- reads.  Security definer on purpose: reads the catalogue.
create or replace function dp.caller_owns(relations oid[], protected text[], incarnation uuid)
returns boolean
language sql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    select dp.caller_administers()
       and coalesce(bool_and(c.oid is not null and pg_has_role(dp.caller(), c.relowner, 'usage')), false)
      from unnest(protected) as u(name)
      -- a relation that took the name later is another one; in a restored database names are all there is
      left join pg_class as c on c.oid = to_regclass(u.name)
           and (c.oid = any (relations)
                or caller_owns.incarnation is distinct from (select i.token from dp.ledger_incarnation as i))
$$;
comment on function dp.caller_owns(oid[], text[], uuid) is
    'internal: whether the caller owns the protected relations of a release or a synthesis';
