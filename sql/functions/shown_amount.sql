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

-- Internal: a cost for people: six significant digits, rounded up, in the short form of double precision.
create or replace function dp.shown_cost(amount numeric)
returns double precision
language sql immutable strict parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when amount = 0 then 0
                else (select case when near.cost < amount then near.cost + ('1e' || -near.places)::numeric else near.cost end
                        from (select round(amount, digits.places) as cost, digits.places
                                from (select 5 - floor(log(amount))::integer as places) as digits) as near)
           end::double precision
$$;
comment on function dp.shown_cost(numeric) is 'internal: a cost to six significant digits, rounded up';
