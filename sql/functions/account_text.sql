-- Internal: an account in words, for the owner's NOTICE.
create or replace function dp.account_text(
    epsilon numeric,
    delta numeric,
    composition text,
    rho_limit numeric)
returns text
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select format('epsilon = %s, delta = %s, %s composition', epsilon, delta, composition)
           || case when rho_limit is null then '' else format(' (rho = %s)', round(rho_limit, 6)) end
$$;
comment on function dp.account_text(numeric, numeric, text, numeric) is 'internal: an account in words';
