-- What may be spent and what was.  A role sees its own account; members of dp_owner see those of
-- all roles and of all protected relations.
--
-- account        'role' or 'relation'; the column of that name says which one
-- *_limit        granted to the role, or the cap of the relation (null: none)
-- *_spent        (epsilon_spent, delta_spent + delta_reserved) is what all spends together imply
-- *_remaining    the most that one further question may cost
-- delta_reserved kept for the conversion under zCDP composition
--
-- The union is wrapped because a barrier around a bare union does not keep a reader's own cheap
-- functions from seeing rows before they are filtered.
create or replace view dp.budgets with (security_barrier) as
select entry.account,
       entry.role,
       entry.relation,
       entry.composition,
       entry.epsilon_limit,
       entry.epsilon_spent,
       case when entry.epsilon_limit is null and entry.composition = 'basic' then null
            when entry.composition = 'basic' then greatest(entry.epsilon_limit - entry.epsilon_spent, 0)
            -- epsilon tanh(epsilon/2) is at most epsilon^2/2 and at most epsilon
            else pg_catalog.trunc(greatest(pg_catalog.sqrt(2 * entry.rho_remaining), entry.rho_remaining), 12)
       end as epsilon_remaining,
       entry.delta_limit,
       entry.delta_spent,
       greatest(entry.delta_limit - entry.delta_reserved - entry.delta_spent, 0) as delta_remaining,
       entry.delta_reserved,
       entry.rho_limit,
       entry.rho_spent,
       entry.rho_remaining,
       entry.spends
  from (
    select sums.account, sums.role, sums.relation, sums.composition, sums.spends,
           sums.epsilon_limit, sums.delta_limit, sums.delta_reserved, sums.rho_limit,
           case when sums.composition = 'basic' then sums.epsilon
                when sums.rho <= sums.rho_limit
                then least(dp.zcdp_epsilon(sums.rho, sums.delta_reserved), sums.epsilon_limit)
                else dp.zcdp_epsilon(sums.rho, sums.delta_reserved)
           end as epsilon_spent,
           case sums.composition when 'basic' then sums.delta else sums.rho_delta end as delta_spent,
           sums.rho as rho_spent,
           case when sums.rho_limit is null then null
                else greatest(sums.rho_limit - sums.rho, 0) end as rho_remaining
      from (
        select 'role' as account,
               coalesce(s.rolname, p.role_name) as role,
               null::text as relation,
               coalesce(b.composition, 'basic') as composition,
               coalesce(b.epsilon, 0) as epsilon_limit,
               coalesce(b.delta, 0) as delta_limit,
               coalesce(b.delta_reserved, 0) as delta_reserved,
               b.rho_limit,
               t.epsilon, t.delta, t.rho, t.rho_delta, t.spends
          from dp.principal as p
          left join pg_catalog.pg_roles as s on s.oid = p.role_oid
          left join dp.role_budget as b on b.principal = p.id
         cross join lateral (
               select coalesce(sum(l.epsilon), 0) as epsilon, coalesce(sum(l.delta), 0) as delta,
                      coalesce(sum(l.rho), 0) as rho, coalesce(sum(l.rho_delta), 0) as rho_delta,
                      coalesce(sum(l.spends), 0)::bigint as spends
                 from (select rt.epsilon, rt.delta, rt.rho, rt.rho_delta, rt.spends
                         from dp.role_total as rt where rt.principal = p.id
                       union all
                       select lo.epsilon, lo.delta, lo.rho, lo.rho_delta, 1
                         from dp.loss as lo where lo.principal = p.id) as l) as t
         where p.role_oid = dp.caller() or dp.caller_administers()
        union all
        select 'relation',
               null,
               pg_catalog.format('%I.%I', r.schema_name, r.relation_name),
               r.composition,
               r.epsilon_cap,
               r.delta_cap,
               r.delta_reserved,
               r.rho_limit,
               t.epsilon, t.delta, t.rho, t.rho_delta, t.spends
          from dp.root as r
         cross join lateral (
               select coalesce(sum(l.epsilon), 0) as epsilon, coalesce(sum(l.delta), 0) as delta,
                      coalesce(sum(l.rho), 0) as rho, coalesce(sum(l.rho_delta), 0) as rho_delta,
                      coalesce(sum(l.spends), 0)::bigint as spends
                 from (select rt.epsilon, rt.delta, rt.rho, rt.rho_delta, rt.spends
                         from dp.root_total as rt where rt.root = r.id
                       union all
                       select lo.epsilon, lo.delta, lo.rho, lo.rho_delta, 1
                         from dp.loss as lo where lo.root = r.id) as l) as t
         where dp.caller_administers()
      ) as sums
  ) as entry;
comment on view dp.budgets is 'privacy budgets: limit, spent, remaining';
