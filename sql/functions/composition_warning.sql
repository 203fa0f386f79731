-- Internal: what an owner should know who changes the composition of an account that has paid for
-- answers: if they were the reason, both deltas count (docs/proofs/composition.md).  Begins with a
-- blank; empty where nothing is to be told.
create or replace function dp.composition_warning(
    before text,
    after text,
    delta_before numeric,
    delta_after numeric,
    spent boolean)
returns text
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case
               when before <> after and spent then
                   format(' Answers were given under composition "%s"; if they are why it is now "%s",'
                          ' the deltas add up: the promise is epsilon with delta = %s.',
                          before, after, trim_scale(coalesce(delta_before, 0) + coalesce(delta_after, 0)))
               else ''
           end
$$;
comment on function dp.composition_warning(text, text, numeric, numeric, boolean) is
    'internal: what changing the composition of an account that was used means';
