-- Internal: an amount for people: its first twelve significant digits.  Views show rho so; what the ledger adds up
-- and compares is exact.
create or replace function dp.shown_amount(amount numeric)
returns numeric
language sql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when amount = 0 then amount
                else trim_scale(round(amount, 11 - floor(log(abs(amount)))::integer)) end
$$;
comment on function dp.shown_amount(numeric) is 'internal: an amount to twelve significant digits';
