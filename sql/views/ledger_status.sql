-- For owners: whether charges are possible, and what was charged but not answered.
create or replace view dp.ledger_status with (security_barrier) as
select case
           when pg_catalog.pg_is_in_recovery() then 'standby'
           when not exists (select from dp.ledger_identity) then 'empty'
           when dp.ledger_in_place() then 'ok'
           else 'restored'
       end as status,
       case
           when not pg_catalog.pg_is_in_recovery() and exists (select from dp.ledger_identity)
                and not dp.ledger_in_place()
           then 'Spends since the backup are missing. SELECT dp.acknowledge_restore(''<what happened>'');'
                ' then dp.record_loss(...) for those that are known.'
       end as advice,
       (select l.recorded_at from dp.ledger_identity as l order by l.id desc limit 1) as in_place_since,
       (select pg_catalog.count(*) from dp.spend as s where s.state = 'charged') as charged_unanswered,
       (select pg_catalog.count(*) from dp.spend as s where s.state = 'failed') as failed,
       (select pg_catalog.count(*) from dp.answer as a where a.payload is not null) as stored_answers,
       (select pg_catalog.count(*)
          from dp.answer as a
          join dp.spend as s on s.id = a.spend
          left join (select o.objects, dp.ledger_standing_tokens(o.objects) as tokens
                       from (select distinct b.objects from dp.answer as b
                              where b.payload is not null and b.objects is not null and b.token is not null
                             offset 0) as o
                     offset 0) as t on t.objects = a.objects
         where exists (select from dp.root as r
                        where r.id = any (s.roots)
                          and a.taken_at + r.answer_lifetime <= pg_catalog.clock_timestamp())
            or not exists (select from dp.stored_release as r where r.spend = a.spend) and a.token <> all (t.tokens))
           as expired_answers
 where dp.caller_administers();
comment on view dp.ledger_status is 'state of the ledger, for owners';
