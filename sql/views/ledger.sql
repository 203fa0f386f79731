-- Every spend.  A role sees its own; members of dp_owner see all, with losses that were recorded
-- by hand.  A spend without relations paid for an answer that was computed before.
-- The union is wrapped because a barrier around a bare union does not keep a reader's own cheap
-- functions from seeing rows before they are filtered.
create or replace view dp.ledger with (security_barrier) as
select entry.*
  from (
    select s.id,
           s.at,
           s.role_name as role,
           s.epsilon,
           s.delta,
           s.mechanism,
           s.method,
           s.label,
           s.state,
           s.question,
           array(select pg_catalog.format('%I.%I', r.schema_name, r.relation_name)
                   from pg_catalog.unnest(s.roots) as u(root)
                   join dp.root as r on r.id = u.root
                  order by 1) as relations
      from dp.spend as s
     where s.principal = (select p.id from dp.principal as p where p.role_oid = dp.caller())
        or (select dp.caller_administers())
    union all
    select null, l.recorded_at, p.role_name, l.epsilon, l.delta, null, null, null, 'recorded', l.note,
           array(select pg_catalog.format('%I.%I', r.schema_name, r.relation_name)
                   from dp.root as r where r.id = l.root)
      from dp.loss as l
      left join dp.principal as p on p.id = l.principal
     where p.role_oid = dp.caller()
        or (select dp.caller_administers())
  ) as entry;
comment on view dp.ledger is 'every spend, each role its own';
