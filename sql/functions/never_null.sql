-- Internal: whether NULL is forbidden in a column for all rows that are there; from PostgreSQL 18 on NOT NULL can be
-- not valid, and then says nothing of rows that were there before.
create or replace function dp.never_null(relation oid, attnum int2)
returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return exists (select from pg_attribute as a
                    where a.attrelid = relation and a.attnum = never_null.attnum and a.attnotnull)
       and not exists (select from pg_constraint as k
                        where k.conrelid = relation and k.contype = 'n' and not k.convalidated
                          and k.conkey = array[never_null.attnum]);
end
$$;
comment on function dp.never_null(oid, int2) is 'internal: whether no row has NULL in a column';
