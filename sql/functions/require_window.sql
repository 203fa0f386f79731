-- Internal: refuses lengths of windows that mean nothing; NULL is "for ever".
create or replace function dp.require_window(function_name text, budget_window interval)
returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    seconds numeric := extract(epoch from budget_window);
begin
    if seconds < 3600 or seconds > extract(epoch from interval '100 years')
       or extract(year from budget_window) < 0 or extract(month from budget_window) < 0
       or extract(day from budget_window) < 0 or extract(hour from budget_window) < 0
       or extract(minute from budget_window) < 0 or extract(second from budget_window) < 0 then
        raise exception using
            errcode = 'PD040',
            message = format('parameter "budget_window" of %s must be from 1 hour to 100 years', function_name),
            detail = format('Got %s.', budget_window),
            hint = 'Give an interval without negative parts, such as ''1 month'', or NULL for a budget without windows.';
    end if;
end
$$;
comment on function dp.require_window(text, interval) is 'internal: checks the length of a window';
