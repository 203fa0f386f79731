-- Internal: an account in words, for the owner's NOTICE.
create or replace function dp.account_text(
    epsilon numeric,
    delta numeric,
    composition text,
    rho_limit numeric,
    budget_window interval)
returns text
language sql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select format('epsilon = %s, delta = %s, %s composition', epsilon, delta, composition)
           || case when rho_limit is null then '' else format(' (rho = %s)', round(rho_limit, 6)) end
           || case when budget_window is null then '' else format(', for each window of %s', budget_window) end
$$;
comment on function dp.account_text(numeric, numeric, text, numeric, interval) is 'internal: an account in words';
