-- Internal: whether questions may use a sketch: no relation was altered, and all changes since are
-- counted.  Both are public.  Security definer on purpose: reads tables of ours.
create or replace function dp.sketch_usable(sketch bigint)
returns boolean
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select bool_and(coalesce(
                   c.fingerprint = dp.sketch_fingerprint(c.relation, c.columns)
                   and dp.statistics_shift(c.measurement, c.relation) is not null, false))
          from dp.sketch_counter as c
         where c.sketch = sketch_usable.sketch);
end
$$;
comment on function dp.sketch_usable(bigint) is 'internal: whether questions may use a sketch';
