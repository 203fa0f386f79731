-- Rows that a relation gained since a measurement, at least (docs/proofs/stale.md); secret.  NULL
-- where the measurement cannot be used any more, which follows from public facts and from statements
-- that could not be counted.  Read in the caller's snapshot, like the data; from the oldest transaction
-- on that the measurement may not have seen, by an index alone, which skips rows that were added up
-- long before anybody vacuums them.
create or replace function dp.statistics_shift(measurement bigint, relation oid)
returns numeric
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
    return (
    select case when c.uncounted then null
                when r.keyed then c.inserted + (
                    select count(*)
                      from (select distinct k.key
                              from dp.changed_key as k
                             where k.relation = any (r.members)
                               and k.transaction >= least(m.transaction, pg_snapshot_xmin(m.snapshot))
                               and (k.transaction = m.transaction
                                    or not pg_visible_in_snapshot(k.transaction, m.snapshot))) as k)
                else c.inserted + c.updated
           end
      from dp.measured_relation as r
      join dp.measurement as m on m.id = r.measurement
     cross join lateral (
           select coalesce(bool_or(c.uncounted), false) as uncounted,
                  coalesce(sum(c.inserted), 0) as inserted,
                  coalesce(sum(c.updated), 0) as updated
             from dp.change as c
            where c.relation = any (r.members)
              and c.transaction >= least(m.transaction, pg_snapshot_xmin(m.snapshot))
              and (c.transaction = m.transaction
                   or not pg_visible_in_snapshot(c.transaction, m.snapshot))) as c
     where r.measurement = statistics_shift.measurement
       and r.relation = statistics_shift.relation
       and r.fingerprint = dp.statistics_fingerprint(r.relation));
end
$$;
comment on function dp.statistics_shift(bigint, oid) is
    'internal: rows that a relation gained since a measurement; NULL: not to be used';

-- The rows of the view dp.statistics: those of relations that the caller owns.  "changes" are rows
-- gained since, at least; NULL: not used any more, until the next refresh.  A sketch has one row: no
-- counter or norm of it is shown.  Security definer on purpose: reads tables of ours.
create or replace function dp.owned_statistics()
returns table (
    kind text, relations text[], identity text, value numeric, taken_at timestamptz, changes numeric,
    kept_question text, estimators bigint)
language sql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp
as $$
    with gained as materialized (
        select r.measurement, r.relation, dp.statistics_shift(r.measurement, r.relation) as gained
          from dp.measured_relation as r)
    select s.kind, o.relations, s.identity, s.value, m.taken_at, o.changes, k.query, null::bigint
      from dp.statistic as s
      join dp.measurement as m on m.id = s.measurement
      left join dp.kept_query as k on k.id = s.kept
      join lateral (
           select array_agg(r.relation::regclass::text order by r.relation) as relations,
                  case when bool_or(r.gained is null) then null else sum(r.gained) end as changes,
                  bool_and(coalesce(pg_has_role(dp.caller(), c.relowner, 'usage'), false)) as own
             from (select u.relation, g.gained
                     from unnest(coalesce(k.relations, array[s.relation])) as u(relation)
                     left join gained as g
                            on g.measurement = s.measurement and g.relation = u.relation) as r
             left join pg_class as c on c.oid = r.relation) as o on o.own
     where dp.caller_administers()
    union all
    select 'sketch', o.relations, s.identity, null, o.taken_at, o.changes, s.query,
           s.estimators::bigint * s.rows
      from dp.sketch as s
      join lateral (
           select array_agg(r.relation::regclass::text order by r.relation) as relations,
                  min(r.taken_at) as taken_at,
                  case when bool_and(r.valid) then sum(r.gained) end as changes,
                  bool_and(coalesce(pg_has_role(dp.caller(), t.relowner, 'usage'), false)) as own
             from (select c.relation::oid as relation, min(c.taken_at) as taken_at,
                          max(g.gained) as gained,
                          bool_and(g.gained is not null and coalesce(
                              c.fingerprint = dp.sketch_fingerprint(c.relation, c.columns), false))
                              as valid
                     from dp.sketch_counter as c
                     left join gained as g
                            on g.measurement = c.measurement and g.relation = c.relation
                    where c.sketch = s.id
                    group by c.relation) as r
             left join pg_class as t on t.oid = r.relation) as o on o.own
     where dp.caller_administers()
$$;
comment on function dp.owned_statistics() is 'internal: dp.statistics';
