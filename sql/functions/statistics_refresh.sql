-- Takes statistics of a relation: its maximum frequencies, and the boundaries of all kept questions
-- that read it, in one snapshot; nobody waits but other refreshes.  What was taken before stays in
-- force until this commits.  By the owner's command or by the clock, never by the amount of change
-- (PRIVACY.md section 4).  Callers: the relation's owner, if a member of dp_owner.  Security definer
-- on purpose: writes tables of ours.
create or replace function dp.refresh_statistics(relation regclass)
returns timestamptz
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    locked oid[];
    read_too oid[];
    questions jsonb;
    taken timestamptz;
begin
    perform dp.require_statistics(relation);
    perform dp.show_phase(1, 1, array[relation::oid], 1);
    -- Whatever would change what counts as a change of these waits until we are done; a question
    -- that somebody keeps while we wait is left to the next refresh.
    locked := array(select relation::oid
                    union
                    select unnest(k.relations) from dp.kept_query as k
                     where relation = any (k.relations));
    perform dp.begin_measuring(locked, 'statistics cannot be refreshed');
    if dp.statistics_fingerprint(relation) is null then
        raise exception using
            errcode = 'PD040',
            message = format('changes of relation %s are not counted', relation),
            detail = 'Without its triggers on the relation and on all its partitions nobody would know how old statistics are.',
            hint = format('SELECT dp.collect_statistics(%L);', relation);
    end if;
    select coalesce(jsonb_agg(jsonb_build_object('id', k.id, 'relations', k.relations::bigint[], 'role', k.kept_by::bigint)), '[]')
      into questions
      from dp.kept_query as k
     where relation = any (k.relations) and k.relations <@ locked
       and (select bool_and(dp.statistics_fingerprint(r.oid) is not null)
              from unnest(k.relations) as r(oid));
    select array_agg(distinct r.oid) into read_too
      from (select relation::oid as oid
            union
            select unnest(k.relations)
              from dp.kept_query as k join jsonb_array_elements(questions) as q on (q ->> 'id')::integer = k.id) as r;
    -- One statement is one snapshot: of the data, of the catalogue and of the changes.
    with found as materialized (
        select f.kept, f.kind, f.identity, f.value
          from jsonb_to_recordset(dp.measure_statistics(relation::oid, questions))
               as f(kept integer, kind text, identity text, value numeric)),
    this as (
        insert into dp.measurement (snapshot, transaction)
        values (pg_current_snapshot(), pg_current_xact_id())
        returning id, taken_at),
    seen as (
        insert into dp.measured_relation (measurement, relation, members, keyed, fingerprint)
        select this.id, r.oid, dp.statistics_members(r.oid), dp.statistics_keyed(r.oid),
               dp.statistics_fingerprint(r.oid)
          from this, unnest(read_too) as r(oid)),
    stored as (
        insert into dp.statistic (measurement, relation, kept, kind, identity, value)
        select this.id, case when f.kept is null then refresh_statistics.relation::oid end, f.kept,
               f.kind, f.identity, f.value
          from this, found as f)
    select this.taken_at into taken from this;
    perform dp.show_phase(1, 4, array[relation::oid], 1);
    delete from dp.statistic as s
     using (select n.measurement, n.relation, n.kept
              from dp.statistic as n join dp.measurement as m on m.id = n.measurement
             where m.transaction = pg_current_xact_id() and m.taken_at = taken
             group by n.measurement, n.relation, n.kept) as new
     where s.measurement <> new.measurement
       and (s.relation = new.relation or s.kept = new.kept);
    perform dp.compact_changes();
    perform dp.end_progress();
    return taken;
end
$$;
comment on function dp.refresh_statistics(regclass) is
    'take the statistics of a relation and of kept questions that read it';

-- Internal: keeps the definition of relations, partitions included, as it is until the transaction ends.
create or replace function dp.lock_declared(relations oid[])
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    member regclass;
begin
    for member in
        select c.oid::regclass from pg_class as c
         where c.oid = any (relations) and c.relkind in ('r', 'p') order by c.oid
    loop
        execute format('lock table %s in access share mode', member);
    end loop;
end
$$;
comment on function dp.lock_declared(oid[]) is 'internal: locks relations against changes of their definition';
