-- Sketches of relations that the reader owns; no counter, norm or seed.  "valid": questions may use it.
create or replace view dp.sketches with (security_barrier) as
select s.id as sketch,
       s.query,
       s.estimators,
       s.rows,
       t.relations,
       t.taken_at,
       dp.sketch_usable(s.id) as valid
  from dp.sketch as s
 cross join lateral (
       select pg_catalog.array_agg(distinct c.relation order by c.relation) as relations,
              min(c.taken_at) as taken_at,
              -- of what is left, if anything is
              pg_catalog.bool_or(r.oid is not null) and pg_catalog.bool_and(r.oid is null
                  or pg_catalog.pg_has_role(dp.caller(), r.relowner, 'usage')) as owned
         from dp.sketch_counter as c
         left join pg_catalog.pg_class as r on r.oid = c.relation
        where c.sketch = s.id) as t
 where t.owned;
comment on view dp.sketches is 'sketches of your relations';
