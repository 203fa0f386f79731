-- dp.pack(a, ..., max_bytes) and dp.pack4: rows of one to four integers as one
-- bytea, row after row in the machine's byte order, for numpy.frombuffer.
-- A row with a NULL is left out; more than max_bytes is an error (54000).
-- Parallel: the rows arrive in no particular order.  For dp_executor.

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

create or replace function dp.pack_step(internal, a bigint, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_step';

create or replace aggregate dp.pack(a bigint, max_bytes bigint) (
    sfunc = dp.pack_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack(bigint, bigint) is
    'rows of 1 bigint as one bytea';

create or replace function dp.pack_step(internal, a bigint, b bigint, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_step';

create or replace aggregate dp.pack(a bigint, b bigint, max_bytes bigint) (
    sfunc = dp.pack_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack(bigint, bigint, bigint) is
    'rows of 2 bigints as one bytea';

create or replace function dp.pack_step(internal, a bigint, b bigint, c bigint, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_step';

create or replace aggregate dp.pack(a bigint, b bigint, c bigint, max_bytes bigint) (
    sfunc = dp.pack_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack(bigint, bigint, bigint, bigint) is
    'rows of 3 bigints as one bytea';

create or replace function dp.pack_step(internal, a bigint, b bigint, c bigint, d bigint, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack_step';

create or replace aggregate dp.pack(a bigint, b bigint, c bigint, d bigint, max_bytes bigint) (
    sfunc = dp.pack_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack(bigint, bigint, bigint, bigint, bigint) is
    'rows of 4 bigints as one bytea';

create or replace function dp.pack4_step(internal, a integer, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack4_step';

create or replace aggregate dp.pack4(a integer, max_bytes bigint) (
    sfunc = dp.pack4_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack4(integer, bigint) is
    'rows of 1 integer as one bytea';

create or replace function dp.pack4_step(internal, a integer, b integer, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack4_step';

create or replace aggregate dp.pack4(a integer, b integer, max_bytes bigint) (
    sfunc = dp.pack4_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack4(integer, integer, bigint) is
    'rows of 2 integers as one bytea';

create or replace function dp.pack4_step(internal, a integer, b integer, c integer, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack4_step';

create or replace aggregate dp.pack4(a integer, b integer, c integer, max_bytes bigint) (
    sfunc = dp.pack4_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack4(integer, integer, integer, bigint) is
    'rows of 3 integers as one bytea';

create or replace function dp.pack4_step(internal, a integer, b integer, c integer, d integer, max_bytes bigint)
    returns internal
    language c immutable called on null input parallel safe security invoker
    as 'MODULE_PATHNAME', 'dpsql_pack4_step';

create or replace aggregate dp.pack4(a integer, b integer, c integer, d integer, max_bytes bigint) (
    sfunc = dp.pack4_step,
    stype = internal,
    sspace = 1048576,
    finalfunc = dp.pack_final,
    combinefunc = dp.pack_combine,
    serialfunc = dp.pack_serialize,
    deserialfunc = dp.pack_deserialize,
    parallel = safe
);

comment on aggregate dp.pack4(integer, integer, integer, integer, bigint) is
    'rows of 4 integers as one bytea';
