-- Releases that the reader can query, has made, or whose relations it owns: public facts.
create or replace view dp.releases with (security_barrier) as
select r.name,
       r.mechanism,
       r.noise,
       dp.shown_cost(r.epsilon) as epsilon,
       dp.shown_cost(r.delta) as delta,
       dp.shown_cost(r.rho) as rho,
       r.rmse as expected_error,
       r.cells,
       r.domain,
       r.sets as queries,
       r.terms ->> 'postprocess' as postprocess,
       r.rows_of_a_unit,
       array(select coalesce(pg_catalog.to_regclass(u.name)::text, u.name)
               from pg_catalog.unnest(r.protected) as u(name) order by 1) as reads,
       r.role_name as released_by,
       r.measured_at,
       r.released_at,
       r.spend,
       pg_catalog.to_regclass(pg_catalog.format('dpv.%I', r.name)) as relation,
       r.question
  from dp.stored_release as r
 where dp.caller_made(r.role_oid, r.role_name, r.incarnation)
    or coalesce(pg_catalog.has_table_privilege(
           dp.caller(), pg_catalog.to_regclass(pg_catalog.format('dpv.%I', r.name)), 'select'), false)
    or dp.caller_owns(r.relations, r.protected, r.incarnation)
 order by r.name;
comment on view dp.releases is
    'published workloads: mechanism, budget, expected error, domain; the numbers are in dpv.<name>, where reading is free';
comment on column dp.releases.mechanism is 'the strategy that was measured, as in dp.plan_release';
comment on column dp.releases.noise is 'laplace or gaussian';
comment on column dp.releases.epsilon is 'what it cost, rounded up; dp.ledger has the exact amount';
comment on column dp.releases.delta is 'what it cost, rounded up';
comment on column dp.releases.rho is 'its price under zCDP composition, rounded up';
comment on column dp.releases.expected_error is
    'root mean squared error of a number before post-processing, expected; NULL where it depends on the data';
comment on column dp.releases.cells is 'rows of the table';
comment on column dp.releases.domain is 'for each attribute its keys, the number of its levels and, if they are few, the levels; told_apart: so many classes of them the queries tell apart';
comment on column dp.releases.queries is
    'what was asked: for each grouping set its query, its "grouping", the keys with their forms, the conditions of its own';
comment on column dp.releases.postprocess is 'none, non_negative, integral or pgm';
comment on column dp.releases.rows_of_a_unit is 'of each privacy unit so many rows count; 1: each has one, or rows are protected';
comment on column dp.releases.reads is 'the protected relations that were charged';
comment on column dp.releases.released_by is 'the role that paid; others read it after dp.share_release';
comment on column dp.releases.measured_at is 'when it was measured: of then are its numbers';
comment on column dp.releases.released_at is 'when the table was written, from what may have been measured long before';
comment on column dp.releases.spend is 'its entry in dp.ledger';
comment on column dp.releases.relation is 'the table';
comment on column dp.releases.question is 'the statement';
