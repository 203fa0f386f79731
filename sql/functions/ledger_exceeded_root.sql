-- The first of these roots whose cap does not allow a cost; null: all do.  Only dp_ledger may call it.
create or replace function dp.ledger_exceeded_root(
    roots integer[],
    epsilon numeric,
    delta numeric,
    rho numeric,
    rho_delta numeric)
returns integer
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select r.id
          from dp.root as r
          left join dp.root_total as t on t.root = r.id
          left join dp.loss as l on l.root = r.id
         where r.id = any (ledger_exceeded_root.roots)
         group by r.id, t.root
        having case r.composition
                   when 'zcdp' then
                       coalesce(t.rho, 0) + coalesce(sum(l.rho), 0) + ledger_exceeded_root.rho > r.rho_limit
                       or coalesce(t.rho_delta, 0) + coalesce(sum(l.rho_delta), 0) + ledger_exceeded_root.rho_delta
                          > r.delta_cap - r.delta_reserved
                   else
                       coalesce(t.epsilon, 0) + coalesce(sum(l.epsilon), 0) + ledger_exceeded_root.epsilon
                          > r.epsilon_cap
                       or coalesce(t.delta, 0) + coalesce(sum(l.delta), 0) + ledger_exceeded_root.delta > r.delta_cap
               end
         order by r.id
         limit 1);
end
$$;
comment on function dp.ledger_exceeded_root(integer[], numeric, numeric, numeric, numeric) is
    'internal: a root whose cap does not allow a cost';

-- Whether the cap of a root does not even allow a question of hardly any cost.  Besides owners' functions only
-- dp_ledger may call it.
create or replace function dp.ledger_exhausted(root integer)
returns boolean
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return dp.ledger_exceeded_root(array[root], 1e-9, 0, dp.zcdp_price(1e-9), 0) is not null;
end
$$;
comment on function dp.ledger_exhausted(integer) is 'internal: whether a root has nothing left to spend';

alter function dp.ledger_exhausted(integer) owner to dp_ledger;
