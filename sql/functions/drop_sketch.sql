-- Forget the sketch of that number (see dp.sketches), its counters and its seeds.  Callers: members
-- of dp_owner who own all its relations, as far as they still exist.
-- Security definer on purpose: the tables of sketches belong to the extension.
create or replace function dp.drop_sketch(sketch bigint)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_relation regclass;
begin
    perform dp.require_administrator();
    if sketch is null then
        raise exception using errcode = 'PD040', message = 'parameter "sketch" must not be null';
    end if;
    perform 1 from dp.sketch as s where s.id = drop_sketch.sketch;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = format('sketch %s does not exist', sketch),
            hint = 'SELECT * FROM dp.sketches;';
    end if;
    for found_relation in
        select c.relation
          from dp.sketch_counter as c
         where c.sketch = drop_sketch.sketch
           and exists (select from pg_catalog.pg_class as r where r.oid = c.relation)
         order by c.occurrence
    loop
        perform dp.require_ownership(found_relation);
    end loop;
    -- before any row of it, in the order of whoever builds one
    lock table dp.measurement in share row exclusive mode;
    delete from dp.sketch as s where s.id = drop_sketch.sketch;
    perform dp.compact_changes();
end
$$;
comment on function dp.drop_sketch(bigint) is 'forget a sketch with its counters and seeds';
