-- The largest rho (rounded down) for which rho-zCDP implies (epsilon, delta)-differential privacy:
-- the inverse of dp.zcdp_epsilon.  Any x = alpha - 1 > 0 gives a rho that is small enough.
create or replace function dp.zcdp_rho(epsilon numeric, delta numeric)
returns numeric
language plpgsql immutable parallel safe security invoker strict
set search_path = pg_catalog, pg_temp
as $$
declare
    e float8;
    l float8;
    low float8 := 1e-30;
    high float8;
    x float8;
begin
    if epsilon <= 0 or epsilon > 1e15 or delta < 1e-200 or delta >= 1 then
        return 0;
    end if;
    e := epsilon;
    l := -ln(delta);
    -- Stationary where x^2 (epsilon + ln(1 + 1/x)) = (1 + 2x) (ln(1/delta) - ln(1 + x)).
    high := 1 / delta::float8;
    for i in 1 .. 80 loop
        x := sqrt(low) * sqrt(high);
        if x / (1 + 2 * x) * (x * e + x * ln(1 + 1 / x)) + ln(1 + x) < l then
            low := x;
        else
            high := x;
        end if;
    end loop;
    return greatest(0, trunc((epsilon - dp.zcdp_offset(x::numeric, delta)) / (1 + x::numeric), 30));
end
$$;
comment on function dp.zcdp_rho(numeric, numeric) is
    'largest rho of zCDP that implies (epsilon, delta)-DP, rounded down';
