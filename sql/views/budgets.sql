-- What may be spent and what was.  A role sees its own account; members of dp_owner see those of
-- all roles and of all protected relations.
--
-- account        'role' or 'relation'; the column of that name says which one
-- *_limit        granted to the role, in all or for each window, or the cap of the relation (null: none)
-- *_spent        (epsilon_spent, delta_spent + delta_reserved) is what all spends ever imply together;
--                no window takes anything from it
-- *_remaining    the most that one further question may cost now
-- rho_*          to twelve significant digits; what is compared is exact
-- delta_reserved kept for the conversion under zCDP composition
-- budget_window  the length of the budget's windows (null: none), with the window that runs now,
-- window_*       or would if a question were asked, and what counts in it
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
            when entry.composition = 'basic' then greatest(entry.epsilon_limit - entry.counted_epsilon, 0)
            -- epsilon tanh(epsilon/2) is at most epsilon^2/2 and at most epsilon
            else pg_catalog.trunc(greatest(pg_catalog.sqrt(2 * entry.rho_remaining), entry.rho_remaining), 12)
       end as epsilon_remaining,
       entry.delta_limit,
       entry.delta_spent,
       greatest(entry.delta_limit - entry.delta_reserved - entry.counted_delta, 0) as delta_remaining,
       entry.delta_reserved,
       dp.shown_amount(entry.rho_limit) as rho_limit,
       dp.shown_amount(entry.rho_spent) as rho_spent,
       dp.shown_amount(entry.rho_remaining) as rho_remaining,
       entry.spends,
       entry.budget_window,
       entry.window_start,
       entry.window_end,
       case when entry.budget_window is not null then entry.counted_epsilon end as window_epsilon_spent,
       case when entry.budget_window is not null then entry.counted_delta end as window_delta_spent,
       case when entry.budget_window is not null then dp.shown_amount(entry.counted_rho) end as window_rho_spent,
       case when entry.budget_window is not null then entry.counted_spends end as window_spends
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
                else greatest(sums.rho_limit - sums.counted_rho, 0) end as rho_remaining,
           sums.budget_window, sums.window_start, sums.window_end,
           case when sums.composition = 'basic' then sums.counted_epsilon
                when sums.counted_rho <= sums.rho_limit
                then least(dp.zcdp_epsilon(sums.counted_rho, sums.delta_reserved), sums.epsilon_limit)
                else dp.zcdp_epsilon(sums.counted_rho, sums.delta_reserved)
           end as counted_epsilon,
           case sums.composition when 'basic' then sums.counted_delta else sums.counted_rho_delta end
               as counted_delta,
           sums.counted_rho, sums.counted_spends
      from (
        select 'role' as account,
               coalesce(s.rolname, p.role_name) as role,
               null::text as relation,
               coalesce(b.composition, 'basic') as composition,
               coalesce(b.epsilon, 0) as epsilon_limit,
               coalesce(b.delta, 0) as delta_limit,
               coalesce(b.delta_reserved, 0) as delta_reserved,
               b.rho_limit,
               t.epsilon, t.delta, t.rho, t.rho_delta, t.spends,
               b.budget_window,
               -- the first window of a role that was limited for ever before counts all that came before
               case when w.starts = '-infinity' then b.window_anchor else w.starts end as window_start,
               w.ends as window_end,
               c.epsilon as counted_epsilon, c.delta as counted_delta, c.rho as counted_rho,
               c.rho_delta as counted_rho_delta, c.spends as counted_spends
          from dp.principal as p
          left join pg_catalog.pg_roles as s on s.oid = p.role_oid
          left join dp.role_budget as b on b.principal = p.id
          left join dp.role_total as rt on rt.principal = p.id
         cross join lateral (
               select r.starts, r.ends, coalesce(r.counted, 'all') as counted
                 from dp.running_window(b.window_anchor, b.budget_window, rt.window_start, rt.window_end,
                                        pg_catalog.clock_timestamp()) as r) as w
         cross join lateral (
               select coalesce(sum(l.epsilon), 0) as epsilon, coalesce(sum(l.delta), 0) as delta,
                      coalesce(sum(l.rho), 0) as rho, coalesce(sum(l.rho_delta), 0) as rho_delta,
                      coalesce(sum(l.spends), 0)::bigint as spends
                 from (select rt.epsilon, rt.delta, rt.rho, rt.rho_delta, rt.spends
                       union all
                       select lo.epsilon, lo.delta, lo.rho, lo.rho_delta, 1
                         from dp.loss as lo where lo.principal = p.id) as l) as t
         cross join lateral (
               select coalesce(sum(l.epsilon), 0) as epsilon, coalesce(sum(l.delta), 0) as delta,
                      coalesce(sum(l.rho), 0) as rho, coalesce(sum(l.rho_delta), 0) as rho_delta,
                      coalesce(sum(l.spends), 0)::bigint as spends
                 from (select case w.counted when 'all' then rt.epsilon when 'known' then rt.window_epsilon end as epsilon,
                              case w.counted when 'all' then rt.delta when 'known' then rt.window_delta end as delta,
                              case w.counted when 'all' then rt.rho when 'known' then rt.window_rho end as rho,
                              case w.counted when 'all' then rt.rho_delta when 'known' then rt.window_rho_delta end as rho_delta,
                              case w.counted when 'all' then rt.spends when 'known' then rt.window_spends end as spends
                       union all
                       select lo.epsilon, lo.delta, lo.rho, lo.rho_delta, 1
                         from dp.loss as lo
                        where lo.principal = p.id and (w.starts is null or lo.recorded_at >= w.starts)) as l) as c
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
               t.epsilon, t.delta, t.rho, t.rho_delta, t.spends,
               null, null, null,
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
