-- Internal: refuses amounts of epsilon and delta that mean nothing; NULL is "not given".
create or replace function dp.require_loss(function_name text, epsilon numeric, delta numeric)
returns void
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if epsilon <= 0 or epsilon in ('NaN', 'Infinity') then
        raise exception using
            errcode = 'PD040',
            message = format('parameter "epsilon" of %s must be greater than 0 and finite', function_name),
            detail = format('Got %s.', epsilon);
    end if;
    if delta < 0 or delta > 1 or delta = 'NaN' then
        raise exception using
            errcode = 'PD040',
            message = format('parameter "delta" of %s must be between 0 and 1', function_name),
            detail = format('Got %s.', delta);
    end if;
end
$$;
comment on function dp.require_loss(text, numeric, numeric) is 'internal: checks amounts of epsilon and delta';
