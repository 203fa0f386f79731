-- Releases that the reader can query, has made, or whose relations it owns: public facts.
create or replace view dp.releases with (security_barrier) as
select r.name,
       r.mechanism,
       r.noise,
       r.epsilon,
       r.delta,
       r.rho,
       r.rmse as expected_error,
       r.cells,
       r.domain,
       r.terms ->> 'postprocess' as postprocess,
       r.rows_of_a_unit,
       r.role_name as released_by,
       r.released_at,
       r.spend,
       pg_catalog.to_regclass(pg_catalog.format('dpv.%I', r.name)) as relation,
       r.question
  from dp.stored_release as r
 where dp.made_release(r)
    or coalesce(pg_catalog.has_table_privilege(
           dp.caller(), pg_catalog.to_regclass(pg_catalog.format('dpv.%I', r.name)), 'select'), false)
    or dp.owns_release(r)
 order by r.name;
comment on view dp.releases is 'published workloads: mechanism, budget, expected error, domain';
