-- Takes a role's budget away; what it spent stays recorded.  Membership in dp_analyst belongs to
-- the whole cluster and stays.  Callers: members of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.revoke_budget(role regrole)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.require_administrator();
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
end
$$;
comment on function dp.revoke_budget(regrole) is 'take the privacy budget of a role away';
