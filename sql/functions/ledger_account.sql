-- What a role's account limits at a moment and what counts against it, recorded losses included
-- (PRIVACY.md section 7): of all time, or of the window that runs then (dp.running_window).  "loss" is
-- epsilon or rho, whichever the account limits.  The last five are the spends alone that count, which
-- the next charge continues.  A null composition: no budget.  Only dp_ledger may call it.
create or replace function dp.ledger_account(
    principal integer,
    moment timestamptz,
    out composition text,
    out loss_limit numeric,
    out delta_limit numeric,
    out loss_spent numeric,
    out delta_spent numeric,
    out budget_window interval,
    out window_start timestamptz,
    out window_end timestamptz,
    out epsilon numeric,
    out delta numeric,
    out rho numeric,
    out rho_delta numeric,
    out spends bigint)
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    total dp.role_total;
    anchor timestamptz;
    counted text;
begin
    select b.composition,
           case b.composition when 'zcdp' then b.rho_limit else b.epsilon end,
           b.delta - b.delta_reserved, b.budget_window, b.window_anchor
      into composition, loss_limit, delta_limit, budget_window, anchor
      from dp.role_budget as b
     where b.principal = ledger_account.principal;
    if not found then
        return;
    end if;
    select t.* into total from dp.role_total as t where t.principal = ledger_account.principal;
    counted := 'all';
    if budget_window is not null then
        select w.starts, w.ends, w.counted into window_start, window_end, counted
          from dp.running_window(anchor, budget_window, total.window_start, total.window_end, moment) as w;
    end if;
    if counted = 'all' then
        epsilon := coalesce(total.epsilon, 0);
        delta := coalesce(total.delta, 0);
        rho := coalesce(total.rho, 0);
        rho_delta := coalesce(total.rho_delta, 0);
        spends := coalesce(total.spends, 0);
    elsif counted = 'known' then
        epsilon := total.window_epsilon;
        delta := total.window_delta;
        rho := total.window_rho;
        rho_delta := total.window_rho_delta;
        spends := total.window_spends;
    else
        epsilon := 0;
        delta := 0;
        rho := 0;
        rho_delta := 0;
        spends := 0;
    end if;
    select case ledger_account.composition
               when 'zcdp' then ledger_account.rho + coalesce(sum(l.rho), 0)
               else ledger_account.epsilon + coalesce(sum(l.epsilon), 0) end,
           case ledger_account.composition
               when 'zcdp' then ledger_account.rho_delta + coalesce(sum(l.rho_delta), 0)
               else ledger_account.delta + coalesce(sum(l.delta), 0) end
      into loss_spent, delta_spent
      from dp.loss as l
     where l.principal = ledger_account.principal
       and (ledger_account.window_start is null or l.recorded_at >= ledger_account.window_start);
end
$$;
comment on function dp.ledger_account(integer, timestamptz) is
    'internal: limits of a role and what counts against them';
