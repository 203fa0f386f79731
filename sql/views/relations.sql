-- What owners declared: public facts.  "problem" tells why a relation cannot be asked about now.
create or replace view dp.relations with (security_barrier) as
select n.nspname as schema_name,
       c.relname as relation_name,
       p.kind,
       case p.kind when 'protected' then r.neighbours end as neighbours,
       p.privacy_unit,
       p.declared_by,
       p.declared_at,
       case p.kind when 'protected' then r.answer_lifetime end as answer_lifetime,
       case p.kind when 'protected' then r.heuristic end as heuristic_allowed,
       case when p.kind <> 'view' then dp.relation_problem(c.oid) end as problem
  from dp.policy as p
  join pg_catalog.pg_class as c on c.oid = p.relation
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  left join dp.root as r on r.id = p.root
 where p.kind <> 'withdrawn';
comment on view dp.relations is 'declared relations';
