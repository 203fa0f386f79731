-- A stand-in for dp.run that shows what it was given: one row whose columns
-- hold 1, or the text and the parameters where the column's type is text.
create function dp.run(query text, parameters text[] default null) returns setof record
    language plpgsql stable parallel unsafe security definer
    set search_path = pg_catalog, pg_temp
    as $$
    declare
        wanted json := dp.analyze(query, parameters)::json;
        list text := '';
        kolumn json;
    begin
        raise notice 'dp.run: % %', query, parameters;
        for kolumn in select * from json_array_elements(wanted -> 'columns') loop
            list := list || case when list = '' then '' else ', ' end
                || format('cast(%s as %s)',
                    case when (kolumn ->> 'type')::oid in ('text'::regtype, 'varchar'::regtype,
                                                           'name'::regtype, 'bpchar'::regtype)
                         then quote_literal(coalesce(array_to_string(parameters, ' '), 'x'))
                         when (kolumn ->> 'type')::oid in ('bigint'::regtype, 'integer'::regtype,
                                                           'numeric'::regtype)
                         then '1' else 'null' end,
                    format_type((kolumn ->> 'type')::oid, (kolumn ->> 'typmod')::integer));
        end loop;
        return query execute 'select ' || list;
    end
    $$;
