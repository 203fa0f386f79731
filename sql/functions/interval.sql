-- Bounds of a confidence interval (level dp.confidence) around a dp_count or dp_sum of the same statement:
-- select dp_count(*), dp_interval_low(dp_count(*)), dp_interval_high(dp_count(*)) from ...
-- They exist only inside statements that the hook or dp.query answers; executed, they raise PD060.
do $create$
declare
    bound record;
    of record;
begin
    for bound in select * from (values ('low', 'lower'), ('high', 'upper')) as b(name, text) loop
        for of in
            select * from (values
                ('count', 'bigint'), ('sum', 'numeric'), ('sum', 'double precision'), ('sum', 'real'))
                as a(aggregate, type)
        loop
            execute pg_catalog.format($function$
                create or replace function public.dp_interval_%1$s(%2$s %3$s)
                returns %3$s
                language plpgsql immutable strict parallel unsafe security invoker
                set search_path = pg_catalog, pg_temp
                as $body$
                begin
                    raise exception 'dp_interval_%1$s was not intercepted' using
                        errcode = 'PD060',
                        hint = 'Use it on a dp_count or dp_sum in the select list of the same statement.';
                end
                $body$
                $function$, bound.name, of.aggregate, of.type);
            execute pg_catalog.format(
                'comment on function public.dp_interval_%s(%s) is %L', bound.name, of.type,
                pg_catalog.format('%s bound of the dp.confidence interval around a dp_%s; free, needs a public noise scale',
                                  bound.text, of.aggregate));
        end loop;
    end loop;
end
$create$;
