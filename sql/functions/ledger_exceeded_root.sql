-- The first of these roots whose cap does not allow a cost; null: all do.  Only dp_ledger may call it.
create or replace function dp.ledger_exceeded_root(
    roots integer[],
    epsilon numeric,
    delta numeric,
    rho numeric,
    rho_delta numeric)
returns integer
language sql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select r.id
      from dp.root as r
      left join dp.root_total as t on t.root = r.id
     cross join lateral (
           select coalesce(t.epsilon, 0) + coalesce(sum(l.epsilon), 0) as epsilon,
                  coalesce(t.delta, 0) + coalesce(sum(l.delta), 0) as delta,
                  coalesce(t.rho, 0) + coalesce(sum(l.rho), 0) as rho,
                  coalesce(t.rho_delta, 0) + coalesce(sum(l.rho_delta), 0) as rho_delta
             from dp.loss as l where l.root = r.id) as spent
     where r.id = any (ledger_exceeded_root.roots)
       and case r.composition
               when 'zcdp' then
                   spent.rho + ledger_exceeded_root.rho > r.rho_limit
                   or spent.rho_delta + ledger_exceeded_root.rho_delta > r.delta_cap - r.delta_reserved
               else
                   spent.epsilon + ledger_exceeded_root.epsilon > r.epsilon_cap
                   or spent.delta + ledger_exceeded_root.delta > r.delta_cap
           end
     order by r.id
     limit 1
$$;
comment on function dp.ledger_exceeded_root(integer[], numeric, numeric, numeric, numeric) is
    'internal: a root whose cap does not allow a cost';
