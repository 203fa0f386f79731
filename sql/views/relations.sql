-- What owners declared: public facts.
--
-- privacy_unit  whose the rows are: the column that names the unit and, behind "by", each column that leads to it
-- problem       why a relation cannot be asked about now, and what its owner can run
create or replace view dp.relations with (security_barrier) as
select n.nspname as schema_name,
       c.relname as relation_name,
       p.kind,
       case p.kind when 'protected' then r.neighbours end as neighbours,
       (select string_agg(dp.shown_way(c.oid, u.hops, u.unit_column, w.relation, coalesce(a.attname, g.unit_column)), '; '
                          order by u.root, jsonb_array_length(u.hops), u.hops, u.unit_column)
          from dp.unit_paths(c.oid) as u
          join dp.policy as w on w.root = u.root
          join dp.root as g on g.id = u.root
          left join pg_catalog.pg_attribute as a on a.attrelid = w.relation and a.attnum = g.unit_attnum
                                               and not a.attisdropped) as privacy_unit,
       o.declared_by,
       o.declared_at,
       case p.kind when 'protected' then r.answer_lifetime end as answer_lifetime,
       case p.kind when 'protected' then r.heuristic end as heuristic_allowed,
       case when p.kind <> 'view' then
           (select nullif(concat_ws('; to mend by ', q.problem, q.mend), '') from dp.asking_problem(c.oid) as q)
       end as problem
  from dp.declarations() as p
  left join dp.policy as o on o.relation = p.relation and o.kind <> 'withdrawn'
  join pg_catalog.pg_class as c on c.oid = p.relation
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  left join dp.root as r on r.id = p.root
 order by n.nspname, c.relname;
comment on view dp.relations is 'declared relations';
