-- Every spend.  A role sees its own; members of dp_owner see all, with losses that were recorded
-- by hand.  A spend without relations paid for an answer that was computed before.  (rho, rho_delta)
-- is its price under zCDP composition, rho to twelve significant digits.  taken_at tells when the stored answer was computed,
-- expires_at until when it is repeated for nothing (null: for ever); both are null once the answer is
-- no longer stored.  failure is 'counted' if a charged question ended without an answer, and not by a cancel or a
-- timeout; it is 'resumed' after dp.resume was called for all of its relations.
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
           dp.shown_amount(s.rho) as rho,
           s.rho_delta,
           s.mechanism,
           s.method,
           s.label,
           s.state,
           s.question,
           array(select pg_catalog.format('%I.%I', r.schema_name, r.relation_name)
                   from pg_catalog.unnest(s.roots) as u(root)
                   join dp.root as r on r.id = u.root
                  order by 1) as relations,
           a.taken_at,
           (select min(a.taken_at + r.answer_lifetime)
              from dp.spend as computed
              join dp.root as r on r.id = any (computed.roots)
             where computed.id = a.spend) as expires_at,
           (select case
                       when not dp.ledger_failed(f) then null
                       when exists (select from pg_catalog.unnest(f.roots) as u(root)
                                     where not exists (select from dp.resumption as e
                                                        where e.spend = f.spend and e.root = u.root)) then 'counted'
                       else 'resumed'
                   end
              from dp.failure as f
             where f.spend = s.id) as failure
      from dp.spend as s
      left join dp.answer as a on a.spend = s.source
     where s.principal = (select p.id from dp.principal as p where p.role_oid = dp.caller())
        or (select dp.caller_administers())
    union all
    select null, l.recorded_at, p.role_name, l.epsilon, l.delta, dp.shown_amount(l.rho), l.rho_delta, null, null, null,
           'recorded', l.note,
           array(select pg_catalog.format('%I.%I', r.schema_name, r.relation_name)
                   from dp.root as r where r.id = l.root),
           null, null, null
      from dp.loss as l
      left join dp.principal as p on p.id = l.principal
     where p.role_oid = dp.caller()
        or (select dp.caller_administers())
  ) as entry;
comment on view dp.ledger is 'every spend, each role its own';
