-- How budgets were spent over time: for each account (as in dp.budgets) and each step of time in which
-- something was spent, what that was and what all spends up to its end imply together.  The last row of an
-- account therefore agrees with dp.budgets.  A role sees its own account, members of dp_owner all.
--
-- step   null: the shortest of some usual lengths of which 100 cover the whole history
--
-- Security definer on purpose: reads the ledger, by principals and roots, which survive renames.
create or replace function dp.burn(step interval default null)
returns table (
    account text, role name, relation text, step_start timestamptz, spends bigint,
    epsilon numeric, delta numeric, rho numeric, spends_sum bigint, epsilon_spent numeric, delta_spent numeric,
    rho_spent numeric)
language plpgsql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    origin constant timestamptz := timestamptz '2001-01-01 00:00+00';  -- a Monday
    every constant boolean := dp.caller_administers();
    own constant integer := (select p.id from dp.principal as p where p.role_oid = dp.caller());
    width interval := burn.step;
begin
    if width is null then
        select coalesce(min(w.width) filter (where w.width * 100 >= h.length), interval '3640 days')
          into width
          from unnest(array['1 minute', '5 minutes', '15 minutes', '1 hour', '6 hours', '1 day', '7 days', '28 days',
                            '364 days']::interval[]) as w(width)
         cross join (select coalesce(max(e.at) - min(e.at), interval '0') as length
                       from (select s.at from dp.spend as s where every or s.principal = own
                              union all
                             select l.recorded_at from dp.loss as l where every or l.principal = own) as e) as h;
    end if;
    if extract(month from width) <> 0 or extract(year from width) <> 0 or width < interval '1 minute' then
        raise exception using
            errcode = 'PD040',
            message = format('steps of %L cannot be counted', width),
            hint = 'Give a length from a minute on, in minutes, hours and days.';
    end if;
    return query
    with entry as (
        select s.principal, null::integer as root, s.at, s.epsilon, s.delta, s.rho, s.rho_delta
          from dp.spend as s where every or s.principal = own
         union all
        select null, u.root, s.at, s.epsilon, s.delta, s.rho, s.rho_delta
          from dp.spend as s cross join unnest(s.roots) as u(root) where every
         union all
        select l.principal, null, l.recorded_at, l.epsilon, l.delta, l.rho, l.rho_delta
          from dp.loss as l where l.principal is not null and (every or l.principal = own)
         union all
        select null, l.root, l.recorded_at, l.epsilon, l.delta, l.rho, l.rho_delta
          from dp.loss as l where l.root is not null and every),
    binned as (
        select e.principal, e.root, date_bin(width, e.at, origin) as at, count(*) as spends, sum(e.epsilon) as epsilon,
               sum(e.delta) as delta, sum(e.rho) as rho, sum(e.rho_delta) as rho_delta
          from entry as e group by 1, 2, 3),
    running as (
        select b.*, sum(b.spends) over upto as all_spends, sum(b.epsilon) over upto as all_epsilon,
               sum(b.delta) over upto as all_delta, sum(b.rho) over upto as all_rho,
               sum(b.rho_delta) over upto as all_rho_delta
          from binned as b window upto as (partition by b.principal, b.root order by b.at)),
    known as (
        select n.*, case when n.root is null then 'role' else 'relation' end as account,
               case when n.root is null then coalesce(t.rolname, p.role_name) end as role,
               case when n.root is not null then format('%I.%I', r.schema_name, r.relation_name) end as relation,
               coalesce(b.composition, r.composition, 'basic') as composition,
               coalesce(b.epsilon, r.epsilon_cap) as epsilon_limit, coalesce(b.rho_limit, r.rho_limit) as rho_limit,
               coalesce(b.delta_reserved, r.delta_reserved, 0) as delta_reserved
          from running as n
          left join dp.principal as p on p.id = n.principal
          left join pg_roles as t on t.oid = p.role_oid
          left join dp.role_budget as b on b.principal = n.principal
          left join dp.root as r on r.id = n.root)
    select k.account, k.role, k.relation, k.at, k.spends, k.epsilon, k.delta, dp.shown_amount(k.rho), k.all_spends::bigint,
           case when k.composition = 'basic' then k.all_epsilon
                when k.all_rho <= k.rho_limit then least(dp.zcdp_epsilon(k.all_rho, k.delta_reserved), k.epsilon_limit)
                else dp.zcdp_epsilon(k.all_rho, k.delta_reserved) end,
           case k.composition when 'basic' then k.all_delta else k.all_rho_delta end,
           dp.shown_amount(k.all_rho)
      from known as k
     order by k.account desc, k.role, k.relation, k.at;
end
$$;
comment on function dp.burn(interval) is
    'how budgets were spent: for each account and step of time what was spent, and what all until then imply together';
