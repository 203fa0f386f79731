-- Sets what a role may spend in this database: in total, what it spent before included, or, with
-- "budget_window", in each window of that length, counted from now on in UTC (dp.window_period).  A
-- window that runs goes on: no grant gives budget back before its end (dp.running_window).  Windows
-- do not bound what a role spends in the long run; the caps of the relations do (PRIVACY.md section
-- 7).  Makes the role a member of dp_analyst.  A grant counts for questions that are asked
-- after it was committed.  "composition" says how spends add up: "basic" (sums of epsilon and
-- delta) or "zcdp" (sums of rho, better for many small questions); NULL keeps what the role has,
-- "basic" at first.  NULL delta is 1e-6 or, for each window, 1e-7: a tenth of what relations may ever lose
-- by default.  Replacing a grant tells the caller what was before.
-- Callers: members of dp_owner.
-- Security definer on purpose: writes the catalogue and grants membership.
create or replace function dp.grant_budget(
    role regrole,
    epsilon numeric,
    delta numeric default null,
    composition text default null,
    budget_window interval default null)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    principal_id integer;
    before dp.role_budget;
    after dp.role_budget;
    anchor timestamptz;
begin
    perform dp.require_administrator();
    if role is null or epsilon is null then
        raise exception using errcode = 'PD040', message = 'parameters "role" and "epsilon" of dp.grant_budget must not be null';
    end if;
    delta := coalesce(delta, case when budget_window is null then 1e-6 else 1e-7 end);
    perform dp.require_loss('dp.grant_budget', epsilon, delta);
    perform dp.require_composition('dp.grant_budget', composition);
    perform dp.require_window('dp.grant_budget', budget_window);
    if role::text in ('dp_owner', 'dp_analyst', 'dp_executor', 'dp_ledger') or role::oid = 0 then
        raise exception using
            errcode = 'PD040',
            message = format('role %s cannot have a budget', role),
            hint = 'Grant the budget to the role that asks.';
    end if;
    perform dp.require_ledger_in_place();
    principal_id := dp.principal_of(role);
    select b.* into before from dp.role_budget as b where b.principal = principal_id;
    if budget_window is not null then
        -- Windows of the same length stay where they are.
        anchor := case when budget_window::text = before.budget_window::text then before.window_anchor
                       else date_trunc('second', clock_timestamp(), 'UTC') end;
    end if;
    insert into dp.role_budget as b (principal, epsilon, delta, granted_by, composition, budget_window,
                                     window_anchor)
    values (principal_id, epsilon, delta, (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller()),
            coalesce(grant_budget.composition, before.composition, 'basic'), grant_budget.budget_window,
            anchor)
    on conflict on constraint role_budget_pkey do update
       set epsilon = excluded.epsilon, delta = excluded.delta, composition = excluded.composition,
           granted_by = excluded.granted_by, granted_at = pg_catalog.clock_timestamp(),
           budget_window = excluded.budget_window, window_anchor = excluded.window_anchor
    returning b.* into after;
    if before.principal is not null then
        raise notice using
            message = format('the budget of role %s was replaced', role),
            detail = format('Before: %s; now: %s.',
                            dp.account_text(before.epsilon, before.delta, before.composition, before.rho_limit,
                                            before.budget_window),
                            dp.account_text(after.epsilon, after.delta, after.composition, after.rho_limit,
                                            after.budget_window))
                     || dp.composition_warning(
                            before.composition, after.composition, before.delta, after.delta,
                            exists (select from dp.role_total as t
                                     where t.principal = principal_id and t.spends > 0)),
            hint = case when after.budget_window is null then 'What the role has spent counts against it'
                        when before.budget_window is null
                        then 'In the first window what the role has ever spent counts against it'
                        else 'What the role has spent in the window that runs counts against it, until that ends' end
                   || case when before.composition <> after.composition
                           then ', at its price under the new composition.' else '.' end;
    end if;
    if not pg_has_role(role, 'dp_analyst', 'member') then
        execute format('grant dp_analyst to %s', role);
        raise notice using message = format('role %s is now a member of dp_analyst', role);
    end if;
    perform dp.warn_of_large_budget(role, epsilon, delta, budget_window);
    if budget_window is not null then
        perform dp.warn_without_caps(null);
    end if;
    perform dp.touch_catalogue(declarations => false);
end
$$;
comment on function dp.grant_budget(regrole, numeric, numeric, text, interval) is
    'set the privacy budget of a role, in total or for each window';
