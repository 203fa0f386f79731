-- The private sums and averages, for every type of number: of a value, and of a value that is clamped
-- to bounds.  As dp_count, they are answered instead of being executed, and raise PD060 otherwise.

create or replace function dp.not_intercepted(state bigint, value "any", lower "any", upper "any") returns bigint
    language c volatile called on null input parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_not_intercepted';
comment on function dp.not_intercepted(bigint, "any", "any", "any") is
    'raises PD060: a private aggregate was executed';

create or replace function dp.not_intercepted_numeric(state bigint) returns numeric
    language c volatile called on null input parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_not_intercepted';
comment on function dp.not_intercepted_numeric(bigint) is 'raises PD060: a private aggregate was executed';

create or replace function dp.not_intercepted_double(state bigint) returns double precision
    language c volatile called on null input parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_not_intercepted';
comment on function dp.not_intercepted_double(bigint) is 'raises PD060: a private aggregate was executed';

create or replace function dp.not_intercepted_real(state bigint) returns real
    language c volatile called on null input parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_not_intercepted';
comment on function dp.not_intercepted_real(bigint) is 'raises PD060: a private aggregate was executed';

do $create$
declare
    value record;
    aggregate record;
    final text;
begin
    for aggregate in
        select * from (values
            ('dp_sum', 'sum of a number over all rows, differentially private'),
            ('dp_avg', 'average of a number, differentially private'),
            ('dp_var_pop', 'population variance of a number, differentially private'),
            ('dp_var_samp', 'sample variance of a number, differentially private'),
            ('dp_variance', 'sample variance of a number, differentially private'),
            ('dp_stddev_pop', 'population standard deviation of a number, differentially private'),
            ('dp_stddev_samp', 'sample standard deviation of a number, differentially private'),
            ('dp_stddev', 'sample standard deviation of a number, differentially private')) as a(name, text)
    loop
        for value in
            select * from (values
                ('smallint', 'integer', '', '_numeric'),
                ('integer', 'integer', '', '_numeric'),
                ('bigint', 'bigint', '_numeric', '_numeric'),
                ('numeric', 'numeric', '_numeric', '_numeric'),
                ('real', 'double precision', '_real', '_double'),
                ('double precision', 'double precision', '_double', '_double'))
                as v(type, bound, summed, averaged)
        loop
            final := 'dp.not_intercepted' || case when aggregate.name = 'dp_sum' then value.summed else value.averaged end;
            execute pg_catalog.format(
                'create or replace aggregate public.%I(value %s) (sfunc = dp.not_intercepted, stype = bigint, '
                'finalfunc = %s, parallel = restricted)', aggregate.name, value.type, final);
            execute pg_catalog.format(
                'create or replace aggregate public.%I(value %s, lower %s, upper %s) (sfunc = dp.not_intercepted, '
                'stype = bigint, finalfunc = %s, parallel = restricted)',
                aggregate.name, value.type, value.bound, value.bound, final);
            execute pg_catalog.format(
                'comment on aggregate public.%I(%s) is %L', aggregate.name, value.type, aggregate.text);
            execute pg_catalog.format(
                'comment on aggregate public.%I(%s, %s, %s) is %L', aggregate.name, value.type, value.bound, value.bound,
                aggregate.text || '; values are clamped to the bounds');
        end loop;
    end loop;
end
$create$;
