-- Internal: what dp.zcdp_epsilon and dp.zcdp_rho share, with x = alpha - 1:
-- (ln(1/delta) - ln(1 + x))/x + ln(x/(1 + x)), rounded up by far more than the error of the
-- logarithms, which have at least 40 decimals here.  NULL where x or delta is not above 0.
create or replace function dp.zcdp_offset(x numeric, delta numeric)
returns numeric
language plpgsql immutable parallel safe security invoker strict
set search_path = pg_catalog, pg_temp
as $$
declare
    zero constant numeric := 0.0000000000000000000000000000000000000000;
    log_next numeric;
    first numeric;
    second numeric;
begin
    if x <= 0 or delta <= 0 then
        return null;
    end if;
    log_next := ln(1 + x + zero);
    first := (-ln(delta + zero) - log_next + zero) / x;
    second := ln(x + zero) - log_next;
    return first + second + 1e-15 * (1 + abs(first) + abs(second));
end
$$;
comment on function dp.zcdp_offset(numeric, numeric) is 'internal: part of the conversion between zCDP and DP';
