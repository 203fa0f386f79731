-- Syntheses that the reader made, or whose protected relations it owns: public facts.
create or replace view dp.syntheses with (security_barrier) as
select s.id,
       s.target,
       s.role_name as made_by,
       s.state,
       dp.shown_cost(s.epsilon) as epsilon,
       dp.shown_cost(s.delta) as delta,
       (select pg_catalog.count(*) from dp.synthesis_table as t where t.synthesis = s.id) as tables,
       (select pg_catalog.sum(t.written)::bigint from dp.synthesis_table as t where t.synthesis = s.id) as rows_written,
       (select pg_catalog.sum(t.rows)::bigint from dp.synthesis_table as t where t.synthesis = s.id) as rows,
       array(select coalesce(pg_catalog.to_regclass(u.name)::text, u.name)
               from pg_catalog.unnest(s.protected) as u(name) order by 1) as reads,
       s.notes,
       s.spend,
       s.created_at,
       s.finished_at
  from dp.synthesis as s
 where dp.caller_made(s.role_oid, s.role_name, s.incarnation)
    or dp.caller_owns(s.relations, s.protected, s.incarnation)
 order by s.id;
comment on view dp.syntheses is 'synthetic databases: budget, and how far they are written';
comment on column dp.syntheses.target is 'the schema';
comment on column dp.syntheses.state is 'measured, writing, finishing (keys and indexes) or done';
comment on column dp.syntheses.epsilon is 'what it cost, rounded up; dp.ledger has the exact amount';
comment on column dp.syntheses.rows_written is 'rows that are there, of so many that there will be (rows)';
comment on column dp.syntheses.reads is 'the protected relations that were charged';
comment on column dp.syntheses.notes is 'what the copy lacks, and what was changed so that constraints hold';
