-- dp.pack(max_bytes, a, ...): rows of one to sixteen integers (any mix of the three types) as one
-- bytea, column after column, four bytes a value where all fit; sql/hook/pack.c says how.
-- A row with a NULL is left out; more than max_bytes of values in one process is an error (54000).
-- NULL without rows.  Parallel: the rows arrive in no particular order.  For dp_executor.
-- None is pinned on purpose: they copy integers, look up no name, and are called for each row.

create or replace function dp.pack_step(internal, max_bytes bigint, variadic "any")
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_step';

create or replace function dp.pack_combine(internal, internal) returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_combine';

create or replace function dp.pack_serialize(internal) returns bytea
    language c immutable strict parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_serialize';

create or replace function dp.pack_deserialize(bytea, internal) returns internal
    language c immutable strict parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_deserialize';

create or replace function dp.pack_final(internal) returns bytea
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_final';

create or replace aggregate dp.pack(max_bytes bigint, variadic "any") (
    sfunc = dp.pack_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    finalfunc_modify = read_write,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack(bigint, variadic "any") is
    'internal: rows of integers as one bytea';
