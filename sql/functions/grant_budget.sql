-- Sets what a role may spend in total in this database, now and in future; what it spent before
-- counts.  Makes the role a member of dp_analyst.  A grant counts for questions that are asked
-- after it was committed.  "composition" says how spends add up: "basic" (sums of epsilon and
-- delta) or "zcdp" (sums of rho, better for many small questions); NULL keeps what the role has,
-- "basic" at first.  Replacing a grant tells the caller what was before.
-- Callers: members of dp_owner.
-- Security definer on purpose: writes the catalogue and grants membership.
create or replace function dp.grant_budget(
    role regrole,
    epsilon numeric,
    delta numeric default 1e-6,
    composition text default null)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    principal_id integer;
    before dp.role_budget;
    after dp.role_budget;
begin
    perform dp.require_administrator();
    if role is null or epsilon is null or delta is null then
        raise exception using errcode = 'PD040', message = 'parameters of dp.grant_budget must not be null';
    end if;
    perform dp.require_loss('dp.grant_budget', epsilon, delta);
    perform dp.require_composition('dp.grant_budget', composition);
    if role::text in ('dp_owner', 'dp_analyst', 'dp_executor', 'dp_ledger') or role::oid = 0 then
        raise exception using
            errcode = 'PD040',
            message = format('role %s cannot have a budget', role),
            hint = 'Grant the budget to the role that asks.';
    end if;
    perform dp.require_ledger_in_place();
    principal_id := dp.principal_of(role);
    select b.* into before from dp.role_budget as b where b.principal = principal_id;
    insert into dp.role_budget as b (principal, epsilon, delta, granted_by, composition)
    values (principal_id, epsilon, delta, (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller()),
            coalesce(grant_budget.composition, before.composition, 'basic'))
    on conflict on constraint role_budget_pkey do update
       set epsilon = excluded.epsilon, delta = excluded.delta, composition = excluded.composition,
           granted_by = excluded.granted_by, granted_at = pg_catalog.clock_timestamp()
    returning b.* into after;
    if before.principal is not null then
        raise notice using
            message = format('the budget of role %s was replaced', role),
            detail = format('Before: %s; now: %s.',
                            dp.account_text(before.epsilon, before.delta, before.composition, before.rho_limit),
                            dp.account_text(after.epsilon, after.delta, after.composition, after.rho_limit))
                     || dp.composition_warning(
                            before.composition, after.composition, before.delta, after.delta,
                            exists (select from dp.role_total as t
                                     where t.principal = principal_id and t.spends > 0)),
            hint = 'What the role has spent counts against it'
                   || case when before.composition <> after.composition
                           then ', at its price under the new composition.' else '.' end;
    end if;
    if not pg_has_role(role, 'dp_analyst', 'member') then
        execute format('grant dp_analyst to %s', role);
        raise notice using message = format('role %s is now a member of dp_analyst', role);
    end if;
    perform dp.touch_catalogue(declarations => false);
end
$$;
comment on function dp.grant_budget(regrole, numeric, numeric, text) is 'set the total privacy budget of a role';
