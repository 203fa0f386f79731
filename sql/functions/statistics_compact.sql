-- Internal: forgets statistics and sketches of dropped relations, measurements that nothing is of, and
-- changes that no measurement that is left has still to count; adds up those that the same measurements
-- have to count, so that reading them costs what the number of measurements is.  A sum keeps one of its
-- transactions: each is older or newer than a measurement as all of them are (docs/proofs/stale.md).
-- While nobody measures, and in READ COMMITTED: an older snapshot would count what is deleted here.
-- Security definer on purpose: writes tables of ours, for sketches too.
create or replace function dp.compact_changes()
returns void
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
    lock table dp.measurement in share row exclusive mode;
    delete from dp.sketch as s
     using dp.sketch_counter as c
     where c.sketch = s.id and not exists (select from pg_class as r where r.oid = c.relation);
    delete from dp.statistic as s
     using (select t.measurement, t.relation, t.kept
              from dp.statistic as t left join dp.kept_query as k on k.id = t.kept
             where not coalesce(k.relations, array[t.relation]) <@ array(select c.oid from pg_class as c)
             group by 1, 2, 3) as gone
     where s.measurement = gone.measurement and (s.relation = gone.relation or s.kept = gone.kept);
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

    with change as materialized (
        select c.ctid as place, c.*, dp.still_counting(c.relation, c.transaction) as measurements
          from dp.change as c),
    total as materialized (
        select c.relation, c.measurements, sum(c.inserted)::bigint as inserted,
               sum(c.updated)::bigint as updated, bool_or(c.uncounted) as uncounted,
               (array_agg(c.transaction order by c.transaction desc))[1] as transaction,
               count(*) as rows
          from change as c
         group by c.relation, c.measurements),
    gone as (
        delete from dp.change as c
         using change as k join total as t using (relation, measurements)
         where c.ctid = k.place and (t.rows > 1 or t.measurements = '{}'))
    insert into dp.change (relation, transaction, inserted, updated, uncounted)
    select t.relation, t.transaction, t.inserted, t.updated, t.uncounted
      from total as t
     where t.rows > 1 and t.measurements <> '{}';

    with known as (
        select k.ctid as place, k.measurements,
               row_number() over (partition by k.relation, k.key, k.measurements
                                  order by k.transaction desc) as place_in_line
          from (select k.ctid, k.*, dp.still_counting(k.relation, k.transaction) as measurements
                  from dp.changed_key as k) as k)
    delete from dp.changed_key as k
     using known
     where k.ctid = known.place and (known.place_in_line > 1 or known.measurements = '{}');
$$;
comment on function dp.compact_changes() is
    'internal: forgets changes that every measurement has seen and adds up the others';

-- Internal: the measurements that have to count what this transaction changed in a relation.
create or replace function dp.still_counting(relation oid, transaction xid8)
returns bigint[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return array(
        select m.id
          from dp.measured_relation as r
          join dp.measurement as m on m.id = r.measurement
         where still_counting.relation = any (r.members)
           and (still_counting.transaction = m.transaction
                or not pg_visible_in_snapshot(still_counting.transaction, m.snapshot))
         order by m.id);
end
$$;
comment on function dp.still_counting(oid, xid8) is
    'internal: which measurements have to count a change';
