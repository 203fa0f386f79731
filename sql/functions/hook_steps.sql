-- dp.steps(value, digits): a numeric times 10^digits; error 22003 where that is no bigint.  With low
-- and high it is clamped to these integers, NaN above all, and cut off towards zero: never an error.
-- sql/hook/steps.c says how.  For dp_executor.
-- Not pinned on purpose: they look up no name, and are called for each row.
create or replace function dp.steps(value numeric, digits integer) returns bigint
    language c immutable strict parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_steps';

create or replace function dp.steps(value numeric, low bigint, high bigint, digits integer)
    returns bigint
    language c immutable strict parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_clamped_steps';

comment on function dp.steps(numeric, integer) is 'internal: a numeric as an integer';
comment on function dp.steps(numeric, bigint, bigint, integer) is
    'internal: a clamped numeric as an integer';
