-- Takes a role's budget away; what it spent stays recorded.  Membership in dp_analyst belongs to
-- the whole cluster and stays; so does the right to read releases, of which a NOTICE tells.  Callers: members of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.revoke_budget(role regrole)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    readable name[];
begin
    perform dp.require_administrator();
    if role is null then
        raise exception using errcode = 'PD040', message = 'parameter "role" must not be null';
    end if;
    perform dp.require_ledger_in_place();
    delete from dp.role_budget as b
     using dp.principal as p
     where p.id = b.principal and p.role_oid = role;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('role %s has no budget', role),
            hint = 'SELECT * FROM dp.budgets shows all budgets.';
    end if;
    perform dp.touch_catalogue(declarations => false);
    readable := array(
        select r.name from dp.stored_release as r join pg_class as c on c.oid = to_regclass(format('dpv.%I', r.name))
         where exists (select from aclexplode(c.relacl) as g
                        where g.privilege_type = 'SELECT' and g.grantee <> c.relowner
                          and (g.grantee = 0 or pg_has_role(role, g.grantee, 'usage')))
         order by r.name);
    if cardinality(readable) > 0 then
        raise notice using
            message = format('role %s can still read %s', role,
                             case cardinality(readable) when 1 then 'a release' else cardinality(readable) || ' releases' end),
            detail = format('They are paid for, and questions that they answer cost nothing: %s%s.',
                            (select string_agg(format('dpv.%I', u.name), ', ') from unnest(readable[:10]) as u(name)),
                            case when cardinality(readable) > 10 then ', ...' else '' end),
            hint = format('The owner of what they read takes that away: SELECT dp.unshare_release(%L, %L);',
                          readable[1], role::text);
    end if;
end
$$;
comment on function dp.revoke_budget(regrole) is 'take the privacy budget of a role away';
