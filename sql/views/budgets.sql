-- What may be spent and what was.  A role sees its own budget; members of dp_owner see those of
-- all roles and of all roots (relation is not null; an epsilon_budget of null is no cap).
-- The union is wrapped because a barrier around a bare union does not keep a reader's own cheap
-- functions from seeing rows before they are filtered.
create or replace view dp.budgets with (security_barrier) as
select entry.*
  from (
    select coalesce(s.rolname, p.role_name) as role,
           null::text as relation,
           b.epsilon as epsilon_budget,
           t.epsilon as epsilon_spent,
           greatest(coalesce(b.epsilon, 0) - t.epsilon, 0) as epsilon_remaining,
           b.delta as delta_budget,
           t.delta as delta_spent,
           greatest(coalesce(b.delta, 0) - t.delta, 0) as delta_remaining,
           t.spends
      from dp.principal as p
      left join pg_catalog.pg_roles as s on s.oid = p.role_oid
      left join dp.role_budget as b on b.principal = p.id
     cross join lateral (
           select coalesce(sum(l.epsilon), 0) as epsilon, coalesce(sum(l.delta), 0) as delta,
                  coalesce(sum(l.spends), 0)::bigint as spends
             from (select rt.epsilon, rt.delta, rt.spends from dp.role_total as rt where rt.principal = p.id
                   union all
                   select lo.epsilon, lo.delta, 1 from dp.loss as lo where lo.principal = p.id) as l) as t
     where p.role_oid = dp.caller() or dp.caller_administers()
    union all
    select null,
           pg_catalog.format('%I.%I', r.schema_name, r.relation_name),
           r.epsilon_cap,
           t.epsilon,
           case when r.epsilon_cap is not null then greatest(r.epsilon_cap - t.epsilon, 0) end,
           r.delta_cap,
           t.delta,
           case when r.delta_cap is not null then greatest(r.delta_cap - t.delta, 0) end,
           t.spends
      from dp.root as r
     cross join lateral (
           select coalesce(sum(l.epsilon), 0) as epsilon, coalesce(sum(l.delta), 0) as delta,
                  coalesce(sum(l.spends), 0)::bigint as spends
             from (select rt.epsilon, rt.delta, rt.spends from dp.root_total as rt where rt.root = r.id
                   union all
                   select lo.epsilon, lo.delta, 1 from dp.loss as lo where lo.root = r.id) as l) as t
     where dp.caller_administers()
  ) as entry;
comment on view dp.budgets is 'privacy budgets: granted, spent, remaining';
