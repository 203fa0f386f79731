-- A stand-in for dp.run that shows what it was given, as a notice in JSON, and
-- answers with one row: 1 for numbers, 'x' for text, NULL for anything else.
create or replace function dp.run(query text, parameters text[] default null)
    returns setof record
    language plpgsql stable parallel unsafe security definer
    set search_path = pg_catalog, pg_temp
    set client_min_messages = notice
as $$
declare
    -- without parameters also where nobody can tell who asks, as in REFRESH
    analysis json := case when parameters is null then dp.analyze_own(query)
                          else dp.analyze(query, parameters) end::json;
    answer text;
begin
    raise notice '%', json_build_object('query', query, 'parameters', parameters,
                                        'bound', analysis ->> 'sql');
    select string_agg(
               format('cast(%s as %s)',
                      case typcategory when 'N' then '1' when 'S' then '''x''' else 'null' end,
                      format_type(oid, nullif(typmod, -1))), ', ' order by ordinality)
        into answer
        from json_array_elements(analysis -> 'columns') with ordinality as c(kolumn, ordinality),
             lateral (select (kolumn ->> 'type')::oid, (kolumn ->> 'typmod')::integer)
                 as t(type, typmod)
             join pg_type on oid = type;
    return query execute 'select ' || answer;
end
$$;

-- Names of every schema must resolve here, declared or not.
alter function dp.run(text, text[]) owner to postgres;

grant usage on schema dp to public;
grant execute on function dp.run(text, text[]), dp.parameters("any"), dp.deparse(text),
    dp.analyze(text), dp.analyze(text, text[]) to public;
