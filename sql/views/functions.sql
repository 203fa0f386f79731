-- The functions that the reader may call, but for those that are parts of others.
create or replace view dp.functions with (security_barrier) as
select p.proname as name,
       case when p.prokind = 'p' then 'CALL ' when p.proretset then 'SELECT * FROM ' else 'SELECT ' end
           || pg_catalog.format('dp.%I(%s)', p.proname, pg_catalog.pg_get_function_arguments(p.oid)) as call,
       d.description
  from pg_catalog.pg_proc as p
  join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
 cross join lateral pg_catalog.obj_description(p.oid, 'pg_proc') as d(description)
 where n.nspname = 'dp' and d.description not like 'internal:%'
   and pg_catalog.has_function_privilege(p.oid, 'execute')
 order by p.proname, p.pronargs, p.oid;
comment on view dp.functions is 'functions that you may call, with their arguments';
