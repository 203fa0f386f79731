-- Internal: warns of a budget that promises nothing (PRIVACY.md section 0: delta stays far below one over
-- the number of rows), and of windows of which one uses up what relations may ever lose in delta.
create or replace function dp.warn_of_large_budget(role regrole, epsilon numeric, delta numeric, budget_window interval)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    names text;
begin
    if epsilon > 1000 or delta > 0.01 then
        raise warning using
            message = format('a budget of epsilon = %s and delta = %s protects nobody',
                             trim_scale(epsilon), trim_scale(delta)),
            detail = 'Who spends all of it may learn single rows: odds can change by a factor of exp(epsilon), and with'
                     ' probability delta nothing is promised.',
            hint = format('Usual are epsilon up to 10 and delta far below one over the number of rows:'
                          ' SELECT dp.grant_budget(%L, epsilon => 10, delta => 1e-6);', role);
    end if;
    if budget_window is null or delta = 0 then
        return;
    end if;
    select string_agg(p.relation::text, ', ' order by p.relation::text) into names
      from dp.policy as p
      join dp.root as r on r.id = p.root
     where p.kind = 'protected' and r.delta_cap <= warn_of_large_budget.delta;
    if names is not null then
        raise warning using
            message = format('one window can use up all delta that relations may ever lose: it has delta = %s',
                             trim_scale(delta)),
            detail = format('Relations whose cap on delta is not larger: %s.', names),
            hint = 'Grant each window the cap''s part of it, or let owners raise the cap:'
                   ' SELECT dp.set_root_cap(relation, epsilon, delta).';
    end if;
end
$$;
comment on function dp.warn_of_large_budget(regrole, numeric, numeric, interval) is
    'internal: warns of budgets that protect nobody or last one window';
