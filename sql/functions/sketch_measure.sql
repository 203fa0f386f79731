-- Internal: begins to take sketches of relations.  From here to the end of the transaction no other
-- refresh forgets changes that a sketch has still to count.  Security definer on purpose: locks a
-- table of ours; dp.create_sketch has checked who asks.
create or replace function dp.begin_sketch(relations oid[])
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using
            errcode = 'PD040',
            message = 'sketches cannot be built in this transaction',
            detail = format('It is %s: its snapshot may be older than those of refreshes.',
                            upper(current_setting('transaction_isolation'))),
            hint = 'Build them in a transaction that is READ COMMITTED.';
    end if;
    lock table dp.measurement in share row exclusive mode;
    if dp.changed_here(array(select unnest(dp.statistics_members(r)) from unnest(relations) as r)) then
        raise exception using
            errcode = 'PD040',
            message = 'sketches cannot be built in a transaction that changed the rows itself',
            hint = 'Commit the changes first.';
    end if;
end
$$;
comment on function dp.begin_sketch(oid[]) is 'internal: locks out what would forget changes';

-- Internal: remembers what a sketch of a relation saw, so that dp.statistics_shift tells what was gained
-- since.  "fingerprint" is dp.statistics_fingerprint under that very snapshot; without one, changes
-- are not counted and the sketch answers nothing.  Security definer on purpose: writes tables of ours.
create or replace function dp.measure_sketch(relation oid, snapshot pg_snapshot, fingerprint text)
returns bigint
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    number bigint;
begin
    if fingerprint is null then
        return null;
    end if;
    insert into dp.measurement as m (snapshot, transaction)
    values (measure_sketch.snapshot, pg_current_xact_id())
    returning m.id into number;
    insert into dp.measured_relation (measurement, relation, members, keyed, fingerprint)
    values (number, measure_sketch.relation, dp.statistics_members(measure_sketch.relation),
            dp.statistics_keyed(measure_sketch.relation), measure_sketch.fingerprint);
    return number;
end
$$;
comment on function dp.measure_sketch(oid, pg_snapshot, text) is
    'internal: what a sketch of a relation saw; NULL: changes are not counted';
