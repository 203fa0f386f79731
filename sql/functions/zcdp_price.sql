-- Internal: zCDP price of a mechanism of which only epsilon is known: every (epsilon, delta)-DP
-- mechanism is delta-approximately rho-zCDP with rho = epsilon tanh(epsilon/2), which is at most
-- epsilon^2/2 (Bun and Steinke 2016) and at most epsilon.  Exact (docs/proofs/composition.md).
create or replace function dp.zcdp_price(epsilon numeric)
returns numeric
language sql immutable parallel safe security invoker strict
set search_path = pg_catalog, pg_temp
as $$
    select least(epsilon * epsilon * 0.5, epsilon)
$$;
comment on function dp.zcdp_price(numeric) is 'internal: zCDP price of an epsilon-DP mechanism';
