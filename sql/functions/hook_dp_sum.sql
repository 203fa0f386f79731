-- The private sums, averages, values by rank and histograms, for every type of number, the last two for dates and timestamps,
-- too: of a value, and of a value that is clamped to bounds.  As dp_count, they are answered instead of being executed, and raise PD060 otherwise.
-- None is pinned on purpose: as in hook_dp_count.sql.

do $create$
declare
    body record;
begin
    for body in
        select * from (values
            ('', 'state bigint, value "any", share "any"', 'bigint'),
            ('', 'state bigint, value "any", share "any", lower "any", upper "any"', 'bigint'),
            ('', 'state bigint, value "any", lower "any", upper "any"', 'bigint'),
            ('_smallint', 'state bigint', 'smallint'),
            ('_integer', 'state bigint', 'integer'),
            ('_array', 'state bigint', 'bigint[]'),
            ('_numeric', 'state bigint', 'numeric'),
            ('_double', 'state bigint', 'double precision'),
            ('_real', 'state bigint', 'real'),
            ('_date', 'state bigint', 'date'),
            ('_timestamp', 'state bigint', 'timestamp'),
            ('_timestamptz', 'state bigint', 'timestamptz')) as b(name, arguments, result)
    loop
        execute pg_catalog.format(
            'create or replace function dp.not_intercepted%s(%s) returns %s '
            'language c volatile called on null input parallel unsafe security invoker '
            'as %L, %L', body.name, body.arguments, body.result, 'MODULE_PATHNAME', 'dpsql_not_intercepted');
        execute pg_catalog.format(
            'comment on function dp.not_intercepted%s(%s) is %L', body.name, body.arguments,
            'internal: raises PD060: a private aggregate was executed');
    end loop;
end
$create$;

do $create$
declare
    value record;
    aggregate record;
    arguments text;
begin
    for value in
        select * from (values
            ('smallint', 'integer', '', '_numeric', '_smallint'),
            ('integer', 'integer', '', '_numeric', '_integer'),
            ('bigint', 'bigint', '_numeric', '_numeric', ''),
            ('numeric', 'numeric', '_numeric', '_numeric', '_numeric'),
            ('real', 'double precision', '_real', '_double', '_real'),
            ('double precision', 'double precision', '_double', '_double', '_double'),
            ('date', 'date', null, null, '_date'),
            ('timestamp', 'timestamp', null, null, '_timestamp'),
            ('timestamptz', 'timestamptz', null, null, '_timestamptz'))
            as v(type, bound, summed, averaged, itself)
    loop
        for aggregate in
            select * from (values
                ('dp_sum', value.summed, '', 'sum of a number over all rows'),
                ('dp_avg', value.averaged, '', 'average of a number'),
                ('dp_var_pop', value.averaged, '', 'population variance of a number'),
                ('dp_var_samp', value.averaged, '', 'sample variance of a number'),
                ('dp_variance', value.averaged, '', 'sample variance of a number'),
                ('dp_stddev_pop', value.averaged, '', 'population standard deviation of a number'),
                ('dp_stddev_samp', value.averaged, '', 'sample standard deviation of a number'),
                ('dp_stddev', value.averaged, '', 'sample standard deviation of a number'),
                ('dp_min', value.itself, '', 'about the least of values'),
                ('dp_max', value.itself, '', 'about the greatest of values'),
                ('dp_median', value.itself, '', 'about the middle of values'),
                ('dp_percentile', value.itself, ', share double precision',
                 'about the value that a share of all is at most')) as a(name, result, share, text)
             where a.result is not null
        loop
            foreach arguments in array array[
                pg_catalog.format('value %s%s', value.type, aggregate.share),
                pg_catalog.format('value %s%s, lower %s, upper %s', value.type, aggregate.share, value.bound, value.bound)]
            loop
                execute pg_catalog.format(
                    'create or replace aggregate public.%I(%s) (sfunc = dp.not_intercepted, stype = bigint, '
                    'finalfunc = dp.not_intercepted%s, parallel = restricted)',
                    aggregate.name, arguments, aggregate.result);
                execute pg_catalog.format(
                    'comment on aggregate public.%I(%s) is %L', aggregate.name, arguments,
                    aggregate.text || ', differentially private'
                    || case when arguments like '%lower%' then '; values are clamped to the bounds' else '' end);
            end loop;
        end loop;
        arguments := pg_catalog.format('value %s, lower %s, upper %s, cells integer', value.type, value.bound, value.bound);
        execute pg_catalog.format(
            'create or replace aggregate public.dp_histogram(%s) (sfunc = dp.not_intercepted, stype = bigint, '
            'finalfunc = dp.not_intercepted_array, parallel = restricted)', arguments);
        execute pg_catalog.format(
            'comment on aggregate public.dp_histogram(%s) is %L', arguments,
            'numbers of rows in cells of equal width between two bounds, differentially private');
    end loop;
end
$create$;
