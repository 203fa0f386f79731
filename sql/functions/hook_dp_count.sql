-- The private aggregates.  An analyst writes them in ordinary SQL; a query that
-- holds one is replaced by a call of dp.run before it is planned.  They never
-- return a value by themselves: without the interception they raise PD060.
-- None is pinned on purpose: what they call raises an error and looks up no name; aggregates cannot be pinned.

create or replace function dp.not_intercepted(state bigint) returns bigint
    language c volatile called on null input parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_not_intercepted';

create or replace function dp.not_intercepted(state bigint, value "any") returns bigint
    language c volatile called on null input parallel unsafe security invoker
    as 'MODULE_PATHNAME', 'dpsql_not_intercepted';

comment on function dp.not_intercepted(bigint) is 'internal: raises PD060: a private aggregate was executed';
comment on function dp.not_intercepted(bigint, "any") is
    'internal: raises PD060: a private aggregate was executed';

create or replace aggregate public.dp_count(*) (
    sfunc = dp.not_intercepted,
    stype = bigint,
    finalfunc = dp.not_intercepted,
    parallel = restricted
);

create or replace aggregate public.dp_count("any") (
    sfunc = dp.not_intercepted,
    stype = bigint,
    finalfunc = dp.not_intercepted,
    parallel = restricted
);

comment on aggregate public.dp_count(*) is 'number of rows, differentially private';
comment on aggregate public.dp_count("any") is
    'number of rows in which the argument is not null, differentially private';
