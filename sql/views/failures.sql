-- Numbers of charged questions that ended without an answer, by role and relation; not those that a cancel or a timeout
-- ended, nor those that dp.resume reset.  A role sees its own; members of dp_owner see those of all roles, and the sum for
-- each protected relation (role is null).
--
-- failure_limit  the number of failures at which questions over the relation are refused (null: never)
-- stopped        whether they are refused
create or replace view dp.failures with (security_barrier) as
select entry.role,
       entry.relation,
       entry.failures,
       entry.failure_limit,
       coalesce(entry.failures >= entry.failure_limit, false) as stopped,
       entry.last_charged
  from (
    select p.role_name as role,
           pg_catalog.format('%I.%I', r.schema_name, r.relation_name) as relation,
           pg_catalog.count(*) as failures,
           r.failure_limit,
           max(s.at) as last_charged
      from dp.failure as f
      join dp.principal as p on p.id = f.principal
      join dp.spend as s on s.id = f.spend
      join dp.root as r on r.id = any (f.roots)
     where (p.role_oid = dp.caller() or dp.caller_administers())
       and dp.ledger_failed(f)
       and not exists (select from dp.resumption as u where u.spend = f.spend and u.root = r.id)
     group by p.id, r.id
    union all
    select null,
           pg_catalog.format('%I.%I', r.schema_name, r.relation_name),
           pg_catalog.count(f.spend),
           r.failure_limit_in_all,
           max(f.at)
      from dp.root as r
      left join lateral (
           select f.spend, s.at
             from dp.failure as f
             join dp.spend as s on s.id = f.spend
            where r.id = any (f.roots)
              and dp.ledger_failed(f)
              and not exists (select from dp.resumption as u where u.spend = f.spend and u.root = r.id)) as f on true
     where dp.caller_administers()
     group by r.id
  ) as entry;
comment on view dp.failures is 'charged questions that failed, by role and relation';
