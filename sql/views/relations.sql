-- What owners declared: public facts.  "problem" tells why a relation cannot be asked about now.
create or replace view dp.relations with (security_barrier) as
select n.nspname as schema_name,
       c.relname as relation_name,
       p.kind,
       case p.kind when 'protected' then r.neighbours end as neighbours,
       (select string_agg(concat_ws(' by ', format('%I.%I', o.relation_name, o.unit_column),
                   nullif((select string_agg(h ->> 'name', ', ') from jsonb_array_elements(u.hops) as h), '')), '; ')
          from dp.unit_paths(c.oid) as u join dp.root as o on o.id = u.root) as privacy_unit,
       o.declared_by,
       o.declared_at,
       case p.kind when 'protected' then r.answer_lifetime end as answer_lifetime,
       case p.kind when 'protected' then r.heuristic end as heuristic_allowed,
       case when p.kind <> 'view' then dp.relation_problem(c.oid) end as problem
  from dp.declarations() as p
  left join dp.policy as o on o.relation = p.relation and o.kind <> 'withdrawn'
  join pg_catalog.pg_class as c on c.oid = p.relation
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  left join dp.root as r on r.id = p.root;
comment on view dp.relations is 'declared relations';
