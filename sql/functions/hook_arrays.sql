-- The bytes of an array, in the machine's order, as an array; the smallest integer and NaN are NULL.
-- What a synthesis writes comes through them (dpsql/engine/synthesis_rows.py).
-- None is pinned on purpose: they copy numbers and look up no name.

create or replace function dp.integers(bytes bytea) returns integer[]
    language c immutable strict parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_integers';
comment on function dp.integers(bytea) is 'internal: integers from their bytes';

create or replace function dp.bigints(bytes bytea) returns bigint[]
    language c immutable strict parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_bigints';
comment on function dp.bigints(bytea) is 'internal: large integers from their bytes';

create or replace function dp.floats(bytes bytea) returns double precision[]
    language c immutable strict parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_floats';
comment on function dp.floats(bytea) is 'internal: floats from their bytes';
