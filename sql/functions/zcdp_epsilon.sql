-- The least epsilon (rounded up) for which "rho"-zCDP implies (epsilon, delta)-differential
-- privacy by the conversion of Canonne, Kamath and Steinke (docs/proofs/composition.md):
-- for every x = alpha - 1 > 0, epsilon = (1 + x) rho + dp.zcdp_offset(x, delta) is enough.  The
-- search for the best x may be inexact, the value at the x that is found is rounded outward.
create or replace function dp.zcdp_epsilon(rho numeric, delta numeric)
returns numeric
language plpgsql immutable parallel safe security invoker strict
set search_path = pg_catalog, pg_temp
as $$
declare
    r float8;
    l float8;
    low float8 := 1e-30;
    high float8;
    x float8;
begin
    if rho = 0 then
        return 0;
    end if;
    if rho < 0 or rho > 1e30 or delta < 1e-200 or delta >= 1 then
        return 'Infinity';
    end if;
    r := rho;
    l := -ln(delta);
    -- Stationary where rho x^2 = ln(1/delta) - ln(1 + x): the left side grows, the right one falls.
    high := sqrt(l / r) + 1e-30;
    for i in 1 .. 60 loop
        x := sqrt(low * high);
        if r * x * x + ln(1 + x) < l then
            low := x;
        else
            high := x;
        end if;
    end loop;
    return greatest(0, ceil(((1 + x::numeric) * rho + dp.zcdp_offset(x::numeric, delta)) * 1e20) * 1e-20);
end
$$;
comment on function dp.zcdp_epsilon(numeric, numeric) is
    'epsilon of (epsilon, delta)-DP that rho-zCDP implies, rounded up';
