-- Internal: refuses names of compositions that do not exist; NULL is "not given".
create or replace function dp.require_composition(function_name text, composition text)
returns void
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if composition not in ('basic', 'zcdp') then
        raise exception using
            errcode = 'PD040',
            message = format('parameter "composition" of %s must be basic or zcdp', function_name),
            detail = format('Got %s.', quote_literal(composition));
    end if;
end
$$;
comment on function dp.require_composition(text, text) is 'internal: checks the name of a composition';
