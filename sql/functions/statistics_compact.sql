-- Internal: forgets statistics, sketches and kept questions of dropped relations, measurements that nothing is of, and
-- changes that no measurement that is left has still to count; adds up those that the same measurements
-- have to count, so that reading them costs what the number of measurements is.  A sum keeps one of its
-- transactions: each is older or newer than a measurement as all of them are (docs/proofs/stale.md).
-- While nobody measures, and in READ COMMITTED: an older snapshot does not show the newest measurements,
-- and what only they have to count would be deleted.
-- Without nested loops: after many writes the planner may still believe that there are few.
-- Security definer on purpose: writes tables of ours, for sketches too.
create or replace function dp.compact_changes()
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using
            errcode = 'PD040',
            message = 'counted changes cannot be forgotten in this transaction',
            detail = format('It is %s: its snapshot may be older than measurements that still count them.',
                            upper(current_setting('transaction_isolation'))),
            hint = 'Use a transaction that is READ COMMITTED.';
    end if;
    lock table dp.measurement in share row exclusive mode;
    delete from dp.sketch as s
     using dp.sketch_counter as c
     where c.sketch = s.id and not exists (select from pg_class as r where r.oid = c.relation);
    delete from dp.kept_query as k  -- with their statistics
     where not k.relations <@ array(select c.oid from pg_class as c);
    delete from dp.statistic as s
     using (select t.measurement, t.relation
              from dp.statistic as t
             where t.kept is null and not array[t.relation] <@ array(select c.oid from pg_class as c)
             group by 1, 2) as gone
     where s.measurement = gone.measurement and s.relation = gone.relation;
    delete from dp.measured_relation as r
     where not exists (
           select from dp.statistic as s left join dp.kept_query as k on k.id = s.kept
            where s.measurement = r.measurement
              and (s.relation = r.relation or r.relation = any (k.relations)))
       and not exists (
           select from dp.sketch_counter as c
            where c.measurement = r.measurement and c.relation = r.relation);
    delete from dp.measurement as m
     where not exists (select from dp.measured_relation as r where r.measurement = m.id);

    with wanted as materialized (
        select u.member, m.id, m.snapshot, m.transaction
          from dp.measured_relation as r
          join dp.measurement as m on m.id = r.measurement
         cross join unnest(r.members) as u(member)),
    origin as materialized (  -- of changes, and which measurements have to count them
        select o.relation, o.transaction,
               coalesce(array_agg(w.id order by w.id) filter (where w.id is not null), '{}') as measurements
          from (select c.relation, c.transaction from dp.change as c
                union
                select k.relation, k.transaction from dp.changed_key as k) as o
          left join wanted as w
                 on w.member = o.relation
                and (o.transaction = w.transaction
                     or not pg_visible_in_snapshot(o.transaction, w.snapshot))
         group by o.relation, o.transaction),
    total as materialized (
        select c.relation, o.measurements, sum(c.inserted)::bigint as inserted,
               sum(c.updated)::bigint as updated, bool_or(c.uncounted) as uncounted,
               (array_agg(c.transaction order by c.transaction desc))[1] as transaction,
               count(*) as rows
          from dp.change as c join origin as o using (relation, transaction)
         group by c.relation, o.measurements),
    replaced as (
        delete from dp.change as c
         using origin as o join total as t using (relation, measurements)
         where c.relation = o.relation and c.transaction = o.transaction
           and (t.rows > 1 or t.measurements = '{}')),
    forgotten as (
        delete from dp.changed_key as k
         using origin as o
         where k.relation = o.relation and k.transaction = o.transaction and o.measurements = '{}'),
    known as materialized (
        select k.relation, k.key, o.measurements, max(k.ctid) as kept
          from dp.changed_key as k join origin as o using (relation, transaction)
         where o.measurements <> '{}'
         group by k.relation, k.key, o.measurements
        having count(*) > 1),
    repeated as (
        delete from dp.changed_key as k
         using origin as o join known as n using (relation, measurements)
         where k.relation = o.relation and k.transaction = o.transaction
           and k.key = n.key and k.ctid <> n.kept)
    insert into dp.change (relation, transaction, inserted, updated, uncounted)
    select t.relation, t.transaction, t.inserted, t.updated, t.uncounted
      from total as t
     where t.rows > 1 and t.measurements <> '{}';
end
$$;
comment on function dp.compact_changes() is
    'internal: forgets changes that every measurement has seen and adds up the others';
