-- The shift that an answer uses.  NULL also where this transaction itself changed the relation: a
-- statement counts its rows at its end, but a question that one of its functions asks, or whose cursor
-- one of them opened, sees them before (docs/proofs/stale.md, "What the counters are").
create or replace function dp.usable_shift(measurement bigint, relation oid)
returns numeric
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if dp.changed_here(dp.statistics_members(relation)) then
        return null;
    end if;
    return dp.statistics_shift(measurement, relation);
end
$$;
comment on function dp.usable_shift(bigint, oid) is
    'internal: rows that a relation gained since a measurement; NULL: not to be used here';
