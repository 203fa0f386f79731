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
